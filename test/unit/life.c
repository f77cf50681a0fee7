/* unit/life.c: how runtimes begin and end: run, start, submit, stop; what ends with main, what is cut
 * off, what a program that is stuck says, and that nothing is left behind.
 */
#include "world.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_config plain_config(int procs) {
    weft_config c = weft_config_default();
    c.procs = procs;
    c.flags = WEFT_IGNORE_ENV;
    return c;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

/* ---- status ---- */

static int give_status(void *arg) { return *(int *)arg; }

static int exit_with_status(void *arg) { weft_exit(*(int *)arg); }

TEST(life, the_result_is_the_status) {
    static const int results[] = {0, 1, -1, 255, 256, INT32_MAX, INT32_MIN};
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (size_t i = 0; i < WEFT_COUNT(results); i++) {
            int result = results[i], status = 3;
            weft_config c = plain_config(procs);
            CHECK_EQ(weft_run(give_status, &result, &c, &status), 0);
            CHECK_EQ(status, result);
            status = 3;
            CHECK_EQ(weft_run(exit_with_status, &result, &c, &status), 0);
            CHECK_EQ(status, result);
        }
    }
}

/* ---- where main runs ---- */

static sigset_t mask_of_host;

static int look_at_thread(void *arg) {
    sigset_t now;
    CHECK(pthread_equal(pthread_self(), *(pthread_t *)arg)); /* app begins on the calling thread */
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    CHECK_EQ(sigismember(&now, SIGUSR1), 1);
    CHECK_EQ(sigismember(&now, SIGINT), 0);
    return 0;
}

static int look_at_mask(void *arg) {
    sigset_t now;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    CHECK_EQ(sigismember(&now, SIGUSR1), 1);
    CHECK_EQ(sigismember(&now, SIGINT), 0);
    weft_event_set(arg);
    return 0;
}

TEST(life, the_hosts_thread_stays_its_own) {
    sigset_t set, after;
    stack_t before_stack, after_stack;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &mask_of_host), 0);
    CHECK_EQ(prctl(PR_SET_TIMERSLACK, 77777, 0, 0, 0), 0);
    CHECK_EQ(sigaltstack(NULL, &before_stack), 0);
    pthread_t self = pthread_self();
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = plain_config(procs);
        CHECK_EQ(weft_run(look_at_thread, &self, &c, NULL), 0);
    }
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    for (int s = 1; s < 32; s++) {
        CHECK_EQ(sigismember(&after, s), sigismember(&mask_of_host, s));
    }
    CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 77777);
    CHECK_EQ(sigaltstack(NULL, &after_stack), 0);
    CHECK(before_stack.ss_sp == after_stack.ss_sp);
    CHECK_EQ(before_stack.ss_flags, after_stack.ss_flags);
    CHECK(weft_current() == NULL);
    CHECK_EQ(weft_self(), 0);

    weft_runtime *rt; /* and the threads of weft inherit its mask */
    weft_event seen = WEFT_EVENT_INIT;
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_submit(rt, look_at_mask, &seen), 0);
    weft_event_wait(&seen);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- within each other ---- */

static int run_again(void *arg) {
    int status = 4;
    (void)arg;
    CHECK_EQ(weft_run(nothing, NULL, NULL, &status), -EDEADLK);
    CHECK_EQ(status, 4);
    return 0;
}

TEST(life, run_from_a_green_thread) {
    weft_config c = plain_config(2);
    CHECK_EQ(weft_run(run_again, NULL, &c, NULL), 0);
}

static int start_another(void *arg) {
    weft_runtime *other = NULL;
    weft_event seen = WEFT_EVENT_INIT;
    weft_config c = plain_config(2);
    (void)arg;
    weft_runtime *mine = weft_current();
    CHECK(mine != NULL);
    CHECK_EQ(weft_procs(NULL), weft_procs(mine));
    CHECK_EQ(weft_start(&other, &c), 0);
    CHECK(other != mine);
    CHECK_EQ(weft_procs(other), 2);
    CHECK_EQ(weft_submit(other, set_event, &seen), 0);
    weft_event_wait(&seen);
    CHECK(weft_current() == mine);
    CHECK_EQ(weft_stop(mine, 0), -EDEADLK);
    CHECK_EQ(weft_stop(other, -1), 0);
    return 0;
}

TEST(life, start_and_stop_from_a_green_thread) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = config_of(procs);
        CHECK_EQ(weft_run(start_another, NULL, &c, NULL), 0);
    }
}

static void *run_beside(void *arg) {
    for (int i = 0; i < 20; i++) {
        int status = 0, want = (int)(intptr_t)arg * 100 + i;
        weft_config c = plain_config(1 + i % 3);
        CHECK_EQ(weft_run(give_status, &want, &c, &status), 0);
        CHECK_EQ(status, want);
    }
    return NULL;
}

TEST(life, several_side_by_side) {
    pthread_t t[4];
    for (intptr_t i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, run_beside, (void *)i), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
}

/* ---- main leaves ---- */

struct left {
    weft_chan *chan, *full;
    weft_event event;
    weft_mutex mutex;
    weft_waitgroup group;
    weft_timer *timer;
    weft_conn conn, peer;
    weft_listener listener;
    atomic_int waiting, ended;
};

enum { WAYS = 17 };

static int64_t wait_in(struct left *l, int way) {
    uint64_t v = 0;
    char byte;
    static char much[1 << 20];
    weft_conn c;
    weft_time far = weft_in(WEFT_HOUR);
    atomic_fetch_add(&l->waiting, 1);
    switch (way) {
    case 0:
        return weft_sleep(WEFT_HOUR);
    case 1:
        return weft_sleep_until(WEFT_NEVER);
    case 2:
        return weft_chan_recv(l->chan, &v);
    case 3:
        return weft_chan_recv_until(l->chan, &v, far);
    case 4:
        return weft_chan_send(l->full, &v);
    case 5:
        return weft_chan_send_until(l->full, &v, far);
    case 6:
        return weft_chan_recv(NULL, &v);
    case 7:
        return weft_event_wait_until(&l->event, far);
    case 8:
        return weft_event_wait_until(&l->event, WEFT_NEVER);
    case 9:
        return weft_mutex_lock_until(&l->mutex, far);
    case 10:
        return weft_mutex_lock_until(&l->mutex, WEFT_NEVER);
    case 11:
        return weft_waitgroup_wait_until(&l->group, far);
    case 12:
        return weft_waitgroup_wait_until(&l->group, WEFT_NEVER);
    case 13:
        return weft_timer_wait(l->timer, NULL);
    case 14:
        return weft_conn_read(l->conn, &byte, 1);
    case 15:
        return weft_conn_write_all(l->conn, much, sizeof much, NULL);
    default:
        return weft_accept(&c, l->listener);
    }
}

struct way {
    struct left *left;
    int way;
};

static int wait_to_the_end(void *arg) {
    struct way w = *(struct way *)arg;
    struct left *l = w.left;
    int64_t err = wait_in(l, w.way);
    if (err != -ECANCELED) {
        test_fail(__FILE__, __LINE__, "wait %d ended with %lld", w.way, (long long)err);
    }
    uint64_t v = 0;
    CHECK_EQ(weft_sleep(WEFT_SECOND), -ECANCELED); /* so does each wait from here on */
    CHECK_EQ(weft_chan_recv(l->chan, &v), -ECANCELED);
    CHECK_EQ(weft_chan_send_until(l->chan, &v, WEFT_NEVER), -ECANCELED);
    CHECK_EQ(weft_event_wait_until(&l->event, WEFT_NEVER), -ECANCELED);
    CHECK_EQ(weft_conn_read(l->peer, &v, 1), -ECANCELED);
    CHECK_EQ(weft_chan_try_recv(l->chan, &v), -EAGAIN); /* what never waits does as ever */
    CHECK_EQ(weft_chan_try_send(l->full, &v), -EAGAIN);
    CHECK_EQ(weft_go(nothing, NULL), WEFT_ESTOPPING);
    CHECK_EQ(weft_submit(NULL, nothing, NULL), WEFT_ESTOPPING);
    CHECK_EQ(weft_go_copy(nothing, &v, sizeof v), WEFT_ESTOPPING);
    weft_yield();
    atomic_fetch_add(&l->ended, 1);
    return 0;
}

static int leave_all_waiting(void *arg) {
    struct left *l = arg;
    uint64_t v = 0;
    int fd[2];
    CHECK_EQ(weft_chan_new(&l->chan, 8, 0), 0);
    CHECK_EQ(weft_chan_new(&l->full, 8, 1), 0);
    CHECK_EQ(weft_chan_send(l->full, &v), 0);
    weft_mutex_lock(&l->mutex);
    weft_waitgroup_add(&l->group, 1);
    CHECK_EQ(weft_timer_new(&l->timer, WEFT_HOUR, NULL), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&l->conn, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&l->peer, fd[1]), 0);
    CHECK_EQ(weft_listen(&l->listener, "tcp", "127.0.0.1:0", NULL), 0);
    for (int way = 0; way < WAYS; way++) {
        struct way w = {l, way};
        CHECK_EQ(weft_go_copy(wait_to_the_end, &w, sizeof w), 0);
    }
    weft_stats s;
    do {
        nap();
        CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    } while (s.gs_waiting < WAYS);
    return 11;
}

TEST(life, the_rest_is_cancelled_when_main_returns) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int i = 0; i < rounds(20); i++) {
            static struct left l;
            l = (struct left){0};
            int status = 0;
            weft_config c = plain_config(procs);
            CHECK_EQ(weft_run(leave_all_waiting, &l, &c, &status), 0);
            CHECK_EQ(status, 11);
            CHECK_EQ(atomic_load(&l.ended), WAYS);
            weft_timer_free(l.timer);
            weft_chan_unref(l.chan);
            weft_chan_unref(l.full);
        }
    }
}

static int come_later(void *arg) {
    CHECK_EQ(weft_sleep(3 * WEFT_MILLISECOND), 0);
    weft_yield();
    CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    atomic_fetch_add((atomic_int *)arg, 1);
    CHECK_EQ(weft_go(nothing, NULL), 0); /* it may even start others */
    return 0;
}

static int exit_first(void *arg) {
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_go(come_later, arg), 0);
    }
    weft_exit(6);
}

TEST(life, the_rest_runs_on_after_weft_exit) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int i = 0; i < 10; i++) {
            atomic_int came = 0;
            int status = 0;
            weft_config c = plain_config(procs);
            CHECK_EQ(weft_run(exit_first, &came, &c, &status), 0);
            CHECK_EQ(status, 6);
            CHECK_EQ(atomic_load(&came), 10);
        }
    }
}

/* ---- limits of a stop ---- */

static atomic_bool let_go;
static atomic_int stubborn_ended;

static int stubborn(void *arg) {
    (void)arg;
    while (!atomic_load(&let_go)) {
        weft_yield();
    }
    atomic_fetch_add(&stubborn_ended, 1);
    return 0;
}

static struct {
    atomic_int lines;
    char text[300];
} reported;

static void keep_report(void *arg, int level, const char *line) {
    (void)arg;
    if (level == WEFT_LOG_ERROR && atomic_fetch_add(&reported.lines, 1) == 0) {
        snprintf(reported.text, sizeof reported.text, "%s", line);
    }
}

TEST(life, a_stop_has_a_limit_and_may_be_repeated) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_runtime *rt;
        weft_config c = plain_config(procs);
        c.log = keep_report;
        atomic_store(&reported.lines, 0);
        atomic_store(&let_go, false);
        atomic_store(&stubborn_ended, 0);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_submit(rt, stubborn, NULL), 0);
        int64_t start = clock_ns();
        CHECK_EQ(weft_stop(rt, 0), -ETIMEDOUT);
        CHECK_EQ(atomic_load(&reported.lines), 1);
        CHECK_EQ(weft_stop(rt, 5 * WEFT_MILLISECOND), -ETIMEDOUT);
        CHECK_GE(clock_ns() - start, 5 * WEFT_MILLISECOND);
        CHECK_EQ(atomic_load(&reported.lines), 2);
        CHECK_EQ(weft_submit(rt, nothing, NULL), WEFT_ESTOPPING);
        CHECK_EQ(weft_procs(rt), procs); /* nothing was freed */
        atomic_store(&let_go, true);
        CHECK_EQ(weft_stop(rt, 20 * WEFT_SECOND), 0);
        CHECK_EQ(atomic_load(&stubborn_ended), 1);
    }
}

static int leave_stubborn(void *arg) {
    CHECK_EQ(weft_go(stubborn, arg), 0);
    return 8;
}

TEST(life, run_has_a_stop_limit) {
    int status = 2;
    weft_config c = plain_config(2);
    c.log = keep_report;
    c.stop_limit = 10 * WEFT_MILLISECOND;
    atomic_store(&let_go, false);
    int64_t start = clock_ns();
    CHECK_EQ(weft_run(leave_stubborn, NULL, &c, &status), -ETIMEDOUT);
    CHECK_GE(clock_ns() - start, 10 * WEFT_MILLISECOND);
    CHECK_EQ(status, 2);
    CHECK_EQ(atomic_load(&reported.lines), 1);
    atomic_store(&let_go, true); /* it is still there, and ends */
    UNTIL(atomic_load(&stubborn_ended) == 1);
}

static void *let_go_later(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    atomic_store(&let_go, true);
    return arg;
}

TEST(life, no_limit) {
    int status = 0;
    pthread_t t;
    weft_config c = plain_config(1);
    c.stop_limit = -1;
    atomic_store(&let_go, false);
    CHECK_EQ(pthread_create(&t, NULL, let_go_later, NULL), 0);
    CHECK_EQ(weft_run(leave_stubborn, NULL, &c, &status), 0);
    CHECK_EQ(status, 8);
    CHECK_EQ(atomic_load(&stubborn_ended), 1);
    pthread_join(t, NULL);
}

/* A plain lock cannot be cut off: it ends when its holder does. */
static weft_mutex held;

static int hold_till_cancelled(void *arg) {
    weft_mutex_lock(&held);
    weft_event_set(arg);
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    weft_mutex_unlock(&held);
    return 0;
}

static int lock_plainly(void *arg) {
    weft_mutex_lock(&held);
    atomic_fetch_add((atomic_int *)arg, 1);
    weft_mutex_unlock(&held);
    return 0;
}

static int leave_a_line(void *arg) {
    weft_event locked = WEFT_EVENT_INIT;
    CHECK_EQ(weft_go(hold_till_cancelled, &locked), 0);
    weft_event_wait(&locked);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_go(lock_plainly, arg), 0);
    }
    weft_yield();
    return 0;
}

TEST(life, a_line_at_a_lock_ends_with_its_holder) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        atomic_int got = 0;
        weft_config c = plain_config(procs);
        CHECK_EQ(weft_run(leave_a_line, &got, &c, NULL), 0);
        CHECK_EQ(atomic_load(&got), 5);
    }
}

/* ---- misuse of stop and submit ---- */

static int stop_mine(void *arg) {
    CHECK_EQ(weft_stop(weft_current(), -1), -EDEADLK);
    weft_event_set(arg);
    return 0;
}

TEST(life, stop_badly) {
    weft_runtime *rt;
    weft_event seen = WEFT_EVENT_INIT;
    CHECK_EQ(weft_stop(NULL, 0), -EINVAL);
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_submit(rt, stop_mine, &seen), 0);
    weft_event_wait(&seen);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

static int stop_what_runs(void *arg) {
    *(int *)arg = weft_stop(world.foreign, 0);
    return 0;
}

static int run_and_be_stopped(void *arg) {
    int err = 1;
    weft_config c = plain_config(1);
    weft_runtime *other;
    (void)arg;
    world.foreign = weft_current();
    CHECK_EQ(weft_start(&other, &c), 0);
    CHECK_EQ(weft_submit(other, stop_what_runs, &err), 0);
    CHECK_EQ(weft_stop(other, -1), 0);
    CHECK_EQ(err, -EDEADLK); /* what weft_run runs ends with its main only */
    return 0;
}

TEST(life, what_run_runs_is_not_stopped) {
    weft_config c = config_of(2);
    CHECK_EQ(weft_run(run_and_be_stopped, NULL, &c, NULL), 0);
}

static int submit_to_mine(void *arg) {
    atomic_int *count = arg;
    int before = atomic_load(count);
    CHECK_EQ(weft_submit(NULL, lock_plainly, count), 0);
    CHECK_EQ(weft_submit(weft_current(), lock_plainly, count), 0);
    UNTIL(atomic_load(count) == before + 2);
    return 0;
}

TEST(life, submit_to_the_own_runtime) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        atomic_int count = 0;
        weft_config c = plain_config(procs);
        CHECK_EQ(weft_run(submit_to_mine, &count, &c, NULL), 0);
        CHECK_EQ(atomic_load(&count), 2);
    }
}

static void *submit_many(void *arg) {
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(weft_submit(world.foreign, lock_plainly, arg), 0);
    }
    return NULL;
}

TEST(life, submit_from_many_threads) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        atomic_int count = 0;
        pthread_t t[4];
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&world.foreign, &c), 0);
        for (int i = 0; i < 4; i++) {
            CHECK_EQ(pthread_create(&t[i], NULL, submit_many, &count), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(t[i], NULL);
        }
        CHECK_EQ(weft_stop(world.foreign, -1), 0); /* what was accepted is run */
        CHECK_EQ(atomic_load(&count), 4000);
    }
}

/* ---- stuck ---- */

static int recv_from_nobody(void *arg) {
    (void)arg;
    int v, err = weft_chan_recv(NULL, &v);
    (void)err;
    return 0;
}

static int lock_twice(void *arg) {
    weft_mutex m = WEFT_MUTEX_INIT;
    (void)arg;
    weft_mutex_lock(&m);
    weft_mutex_lock(&m);
    return 0;
}

static int wait_for_nobody(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    (void)arg;
    weft_waitgroup_add(&w, 1);
    weft_waitgroup_wait(&w);
    return 0;
}

static int sleep_for_ever(void *arg) {
    (void)arg;
    return weft_sleep(WEFT_FOREVER);
}

/* What the stuck hold stays with them; a leak checker shall find it. */
static void keep(void *object) {
    static void *kept[64] __attribute__((used));
    static int n;
    CHECK_LT(n, 64);
    kept[n++] = object;
}

static int wait_for_a_stopped_timer(void *arg) {
    weft_timer *t;
    (void)arg;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    CHECK(weft_timer_stop(t));
    keep(t);
    return weft_timer_wait(t, NULL);
}

static int after_some_work(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, nothing, arg), 0);
    }
    weft_waitgroup_wait(&w);
    weft_sleep(WEFT_MILLISECOND);
    return recv_from_nobody(arg);
}

static int wait_for_each_other(void *arg) {
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, 0, 0), 0);
    keep(c);
    CHECK_EQ(weft_go(recv_from_nobody, arg), 0);
    CHECK_EQ(weft_go(wait_for_nobody, arg), 0);
    return weft_chan_recv(c, NULL);
}

static int exit_and_leave_stuck(void *arg) {
    CHECK_EQ(weft_go(recv_from_nobody, arg), 0);
    weft_exit(0);
}

/* Another G had a reader in the poller, which has been closed. */
static int read_till_closed(void *arg) {
    char byte;
    CHECK_EQ(weft_conn_read(*(weft_conn *)arg, &byte, 1), -EBADF);
    return 0;
}

static int stuck_behind_the_poller(void *arg) {
    weft_conn a, b;
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&b, fd[1]), 0);
    CHECK_EQ(weft_go(read_till_closed, &a), 0);
    weft_sleep(2 * WEFT_MILLISECOND);
    CHECK_EQ(weft_conn_close(a), 0);
    return recv_from_nobody(arg);
}

/* Somebody waits in the poller for a time that has been taken back. */
static int stuck_behind_a_timer(void *arg) {
    weft_timer *t;
    CHECK_EQ(weft_after_func(&t, WEFT_HOUR, nothing, NULL, NULL), 0);
    weft_sleep(2 * WEFT_MILLISECOND);
    CHECK(weft_timer_stop(t));
    weft_timer_free(t);
    return recv_from_nobody(arg);
}

TEST(life, stuck_is_reported) {
    static const weft_fn stuck[] = {recv_from_nobody,        lock_twice,
                                    wait_for_nobody,         sleep_for_ever,
                                    after_some_work,         wait_for_a_stopped_timer,
                                    wait_for_each_other,     exit_and_leave_stuck,
                                    stuck_behind_the_poller, stuck_behind_a_timer};
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (size_t i = 0; i < WEFT_COUNT(stuck); i++) {
            int status = 9;
            weft_config c = plain_config(procs);
            c.log = keep_report;
            atomic_store(&reported.lines, 0);
            CHECK_EQ(weft_run(stuck[i], NULL, &c, &status), -EDEADLK);
            CHECK_EQ(status, 9);
            CHECK_EQ(atomic_load(&reported.lines), 1);
            CHECK(strncmp(reported.text, "weft: deadlock", 14) == 0);
        }
    }
}

/* A submitter that is slow to leave is no reason to miss it: here he stays till all threads sleep. */
static void *stay_inside(void *arg) {
    weft_runtime *rt = arg;
    for (bool asleep = false; !asleep; nap()) {
        weft__lock_take(&rt->lock);
        asleep = rt->nm == rt->nmidle && rt->make_list == NULL;
        weft__lock_drop(&rt->lock);
    }
    atomic_fetch_sub(&rt->users, 1);
    return NULL;
}

static int stuck_with_somebody_inside(void *arg) {
    weft_runtime *rt = weft_current();
    pthread_t *t = arg;
    atomic_fetch_add(&rt->users, 1); /* as a submit does */
    CHECK_EQ(pthread_create(t, NULL, stay_inside, rt), 0);
    return recv_from_nobody(NULL);
}

TEST(life, stuck_is_seen_once_a_submitter_has_left) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        pthread_t t;
        weft_config c = plain_config(procs);
        CHECK_EQ(weft_run(stuck_with_somebody_inside, &t, &c, NULL), -EDEADLK);
        pthread_join(t, NULL);
    }
}

static void be_fatally_stuck(void *arg) {
    weft_config c = plain_config(2);
    c.flags |= WEFT_STUCK_FATAL;
    int err = weft_run(recv_from_nobody, arg, &c, NULL);
    (void)err;
}

static void start_fatally_stuck(void *arg) {
    weft_runtime *rt;
    weft_config c = plain_config(2);
    c.flags |= WEFT_STUCK_FATAL;
    if (weft_start(&rt, &c) == 0 && weft_submit(rt, recv_from_nobody, arg) == 0) {
        pause();
    }
}

static int app_stuck(int argc, char **argv) {
    (void)argc, (void)argv;
    return recv_from_nobody(NULL);
}

static void main_stuck(void *arg) {
    char name[] = "x", *argv[] = {name, NULL};
    (void)arg;
    _exit(weft_main(1, argv, app_stuck));
}

TEST(life, stuck_is_fatal_if_asked) {
    CHECK_FAILS(SIGABRT, "weft: deadlock", be_fatally_stuck, NULL);
    CHECK_FAILS(SIGABRT, "channel (NULL)", be_fatally_stuck, NULL); /* the dump says why */
    CHECK_FAILS(SIGABRT, "weft: deadlock", start_fatally_stuck, NULL);
    CHECK_FAILS(TEST_EXIT(255), "weft: deadlock", main_stuck, NULL);
}

static int take_one(void *arg) {
    int v;
    CHECK_EQ(weft_chan_recv(arg, &v), 0);
    return 0;
}

/* With weft_start, or when told to ignore it, somebody outside may still come. */
TEST(life, not_stuck_while_somebody_may_come) {
    weft_chan *c;
    int v = 1;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 0), 0);
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_runtime *rt;
        weft_config cfg = plain_config(procs);
        cfg.log = keep_report;
        atomic_store(&reported.lines, 0);
        CHECK_EQ(weft_start(&rt, &cfg), 0);
        for (int i = 0; i < 20; i++) {
            CHECK_EQ(weft_submit(rt, take_one, c), 0);
            nap();
            CHECK_EQ(weft_chan_send(c, &v), 0);
        }
        CHECK_EQ(weft_stop(rt, -1), 0);
        CHECK_EQ(atomic_load(&reported.lines), 0);
    }
    weft_chan_unref(c);
}

static int several_kinds_of_waiting(void *arg) {
    weft_event e = WEFT_EVENT_INIT;
    weft_timer *t;
    int fd[2];
    char byte;
    weft_conn a;
    (void)arg;
    CHECK_EQ(weft_sleep(3 * WEFT_MILLISECOND), 0);
    CHECK_EQ(weft_event_wait_until(&e, weft_in(3 * WEFT_MILLISECOND)), -ETIMEDOUT);
    CHECK_EQ(weft_timer_new(&t, 3 * WEFT_MILLISECOND, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    weft_timer_free(t);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&a, fd[0]), 0);
    pid_t child = fork();
    if (child == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
        _exit(write(fd[1], "x", 1) == 1 ? 0 : 1);
    }
    CHECK_EQ(weft_conn_read(a, &byte, 1), 1); /* another process may write */
    close(fd[1]);
    return 0;
}

TEST(life, waiting_for_time_or_descriptors_is_not_stuck) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = plain_config(procs);
        c.log = keep_report;
        CHECK_EQ(weft_run(several_kinds_of_waiting, NULL, &c, NULL), 0);
        CHECK_EQ(atomic_load(&reported.lines), 0);
    }
}

/* ---- weft_main ---- */

static int app(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    CHECK_STR(argv[1], "argument");
    CHECK_EQ(weft_self(), 1);
    return 0x1ff;
}

TEST(life, weft_main) {
    char name[] = "x", argument[] = "argument", *argv[] = {name, argument, NULL};
    CHECK_EQ(weft_main(2, argv, app), 0xff);
}

/* ---- nothing is left behind ---- */

static weft_event used;

static int use_everything(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    weft_chan *c;
    weft_timer *t;
    int v = 1, fd[2];
    weft_conn a;
    (void)arg;
    weft_set_name("user of everything");
    CHECK_EQ(weft_chan_new(&c, sizeof v, 1), 0);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, nothing, NULL), 0);
    }
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_chan_send(c, &v), 0);
    weft_chan_unref(c);
    CHECK_EQ(weft_after_func(NULL, 0, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_after_func(NULL, WEFT_HOUR, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_timer_new(&t, 1, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    weft_timer_free(t);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&a, fd[0]), 0);
    close(fd[1]);
    CHECK_EQ(weft_go(sleep_for_ever, NULL), 0);
    weft_event_set(&used);
    return 0;
}

static void one_life(int i) {
    weft_config c = plain_config(1 + i % 4);
    weft_event_reset(&used);
    if (i % 8 == 0) {
        c.flags |= WEFT_CATCH_OVERFLOW;
    }
    if (i % 2) {
        weft_runtime *rt;
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_submit(rt, use_everything, NULL), 0);
        weft_event_wait(&used);
        CHECK_EQ(weft_stop(rt, -1), 0);
    } else {
        CHECK_EQ(weft_run(use_everything, NULL, &c, NULL), 0);
    }
}

static long mapped_pages(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long pages = 0;
    CHECK(f != NULL);
    CHECK_EQ(fscanf(f, "%ld", &pages), 1);
    fclose(f);
    return pages;
}

static size_t allocated(void) {
#if defined(WEFT__ASAN) || defined(WEFT__TSAN) || !defined(__GLIBC__)
    return 0; /* LeakSanitizer has its own verdict, at the end of the process */
#else
    return mallinfo2().uordblks;
#endif
}

TEST_IN(life, two_hundred_lives_leave_nothing, 120) {
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 1); /* a new arena, of 64 MB, would look like a leaked slab */
#endif
    for (int i = 0; i < 40; i++) { /* pools that stay for the next runtime are filled */
        one_life(i);
    }
    int threads = threads_now(), fds = fds_now();
    size_t before = allocated();
    long pages = mapped_pages();
    for (int i = 0; i < 200; i++) {
        one_life(i);
        UNTIL(threads_now() <= threads); /* a joined thread is listed until the kernel buries it */
        CHECK_EQ(fds_now(), fds);
    }
    CHECK_LE(allocated(),
             before + 20000); /* not a hundred bytes a life: buffers of stdio and such */
#if !defined(WEFT__ASAN) && !defined(WEFT__TSAN)
    CHECK_LE(mapped_pages(), pages + 2048); /* a leaked slab would be 50,000 */
#else
    (void)pages;
#endif
}
