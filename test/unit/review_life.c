/* The life of a runtime at its edges: how it ends, and who may still hold on to it. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

static int run_on(int procs, weft_fn app, void *arg, int *status) {
    weft_config cfg = weft_config_default();
    cfg.procs = procs;
    cfg.flags = WEFT_IGNORE_ENV;
    return weft_run(app, arg, &cfg, status);
}

/* ---- weft_exit in main ------------------------------------------------------------------------- */

static int done_later(void *arg) {
    int err = weft_sleep(5 * WEFT_MILLISECOND);
    *(int *)arg = err == 0;
    return 0;
}

static int starts_and_exits(void *arg) {
    CHECK_EQ(weft_go(done_later, arg), 0);
    weft_exit(3);
}

TEST(review_life, rest_runs_on_after_weft_exit_in_main) {
    for (int procs = 1; procs <= 3; procs++) {
        int status = 0, done = 0;
        CHECK_EQ(run_on(procs, starts_and_exits, &done, &status), 0);
        CHECK_EQ(status, 3);
        CHECK_EQ(done, 1);
    }
}

static int waits_for_ever(void *arg) { return weft_chan_recv(arg, NULL); }

static int leaves_one_stuck(void *arg) {
    CHECK_EQ(weft_go(waits_for_ever, arg), 0);
    weft_exit(0);
}

TEST(review_life, rest_that_is_stuck_is_reported) {
    static weft_chan *c; /* the dead stand in it for good */
    CHECK_EQ(weft_chan_new(&c, 1, 0), 0);
    for (int procs = 1; procs <= 2; procs++) {
        CHECK_EQ(run_on(procs, leaves_one_stuck, c, NULL), -EDEADLK);
    }
}

/* ---- stuck while somebody still sleeps in the poller -------------------------------------------- */

static int waits_on_timer(void *arg) { return weft_timer_wait(arg, NULL); }

/* The other thread sleeps in the poller for the timer when it is stopped. */
static int stops_what_is_waited_for(void *arg) {
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_go(waits_on_timer, t), 0);
    CHECK_EQ(weft_sleep(20 * WEFT_MILLISECOND), 0);
    CHECK(weft_timer_stop(t));
    return weft_chan_recv(arg, NULL);
}

TEST(review_life, stuck_is_seen_behind_a_sleeper_in_the_poller) {
    static weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, 1, 0), 0);
    CHECK_EQ(run_on(2, stops_what_is_waited_for, c, NULL), -EDEADLK);
}

/* ---- a stop and those who are not of the runtime ------------------------------------------------ */

static int counts(void *arg) {
    atomic_fetch_add((_Atomic int *)arg, 1);
    return 0;
}

struct submitter {
    weft_runtime *rt;
    _Atomic int begun, ran, done;
};

static void *submits(void *arg) {
    struct submitter *s = arg;
    int err;
    while ((err = weft_submit(s->rt, counts, &s->ran)) == 0) {
        atomic_fetch_add(&s->begun, 1);
    }
    CHECK_EQ(err, WEFT_ESTOPPING);
    atomic_store(&s->done, 1);
    return NULL;
}

static int stops_runtime(void *arg) { return weft_stop(arg, 5 * WEFT_SECOND); }

/* What was accepted runs, however close the stop. The runtime stays until the submitter has heard of
   the stop: a G that waits for that keeps it. */
static int stays_until_told(void *arg) {
    struct submitter *s = arg;
    while (atomic_load(&s->done) == 0) {
        weft_yield();
    }
    return 0;
}

TEST(review_life, what_was_submitted_before_a_stop_runs) {
    for (int round = 0; round < 20; round++) {
        struct submitter s = {.begun = 0};
        pthread_t thread;
        CHECK_EQ(weft_start(&s.rt, NULL), 0);
        CHECK_EQ(weft_submit(s.rt, stays_until_told, &s), 0);
        CHECK_EQ(pthread_create(&thread, NULL, submits, &s), 0);
        usleep((unsigned)round * 100);
        CHECK_EQ(stops_runtime(s.rt), 0);
        pthread_join(thread, NULL);
        CHECK_EQ(s.ran, s.begun);
    }
}

static int sleeps_long(void *arg) {
    int err = weft_sleep(WEFT_HOUR);
    *(_Atomic int *)arg = err;
    return 0;
}

TEST(review_life, stop_without_time_still_cancels) {
    weft_config cfg = weft_config_default();
    weft_runtime *rt;
    _Atomic int result = 0;
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, sleeps_long, &result), 0);
    int err = -ETIMEDOUT;
    for (int i = 0; i < 1000 && err == -ETIMEDOUT; i++) {
        err = weft_stop(rt, 0);
        usleep(1000);
    }
    CHECK_EQ(err, 0);
    CHECK_EQ(result, -ECANCELED);
}

struct lent {
    weft_conn conn;
    int far;
    weft_event made;
};

static int lends_conn(void *arg) {
    struct lent *l = arg;
    int sv[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    CHECK_EQ(weft_conn_from_fd(&l->conn, sv[0]), 0);
    l->far = sv[1];
    weft_event_set(&l->made);
    return 0;
}

static void lend(weft_runtime **rt, struct lent *l) {
    CHECK_EQ(weft_start(rt, NULL), 0);
    CHECK_EQ(weft_submit(*rt, lends_conn, l), 0);
    weft_event_wait(&l->made);
}

static void *reads_lent(void *arg) {
    struct lent *l = arg;
    char byte;
    CHECK_EQ(weft_conn_read(l->conn, &byte, 1), -EBADF);
    CHECK_EQ(weft_conn_close(l->conn), -EBADF);
    return NULL;
}

TEST(review_life, conn_outlives_no_stop_under_a_plain_thread) {
    for (unsigned round = 0; round < 10; round++) {
        struct lent l = {.made = WEFT_EVENT_INIT};
        weft_runtime *rt;
        pthread_t thread;
        lend(&rt, &l);
        CHECK_EQ(pthread_create(&thread, NULL, reads_lent, &l), 0);
        usleep(round * 200);
        CHECK_EQ(stops_runtime(rt), 0);
        pthread_join(thread, NULL);
        close(l.far);
    }
}

static int reads_as_g(void *arg) {
    reads_lent(arg);
    return 0;
}

struct guest {
    weft_runtime *rt;
    struct lent l;
};

/* One P only: the reader needs it to leave the conn that the stop waits for. */
static int stops_from_another(void *arg) {
    struct guest *g = arg;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_go(&w, reads_as_g, &g->l), 0);
    weft_yield();
    CHECK_EQ(stops_runtime(g->rt), 0);
    weft_waitgroup_wait(&w);
    return 0;
}

TEST(review_life, stop_from_another_runtime_leaves_its_p_to_others) {
    struct guest g = {.l = {.made = WEFT_EVENT_INIT}};
    lend(&g.rt, &g.l);
    CHECK_EQ(run_on(1, stops_from_another, &g, NULL), 0);
    close(g.l.far);
}

/* ---- timers of a runtime that has gone ---------------------------------------------------------- */

static int makes_timers(void *arg) {
    weft_timer **t = arg;
    CHECK_EQ(weft_after_func(NULL, WEFT_HOUR, counts, NULL, NULL), 0);
    CHECK_EQ(weft_after_func(&t[0], WEFT_HOUR, counts, NULL, NULL), 0);
    CHECK_EQ(weft_timer_new(&t[1], WEFT_HOUR, NULL), 0);
    return 0;
}

static int uses_old_timers(void *arg) {
    weft_timer **t = arg;
    weft_timer_reset(t[0], WEFT_MILLISECOND);
    CHECK(!weft_timer_stop(t[0]));
    weft_timer_reset(t[1], WEFT_MILLISECOND);
    CHECK_EQ(weft_timer_wait(t[1], NULL), -EBADF);
    weft_timer_free(t[0]);
    weft_timer_free(t[1]);
    return 0;
}

TEST(review_life, timers_may_be_touched_after_their_runtime) {
    for (int round = 0; round < 3; round++) {
        weft_timer *t[2];
        CHECK_EQ(run_on(1, makes_timers, t, NULL), 0);
        CHECK_EQ(run_on(2, uses_old_timers, t, NULL), 0);
    }
}

struct lent_timer {
    weft_timer *t;
    weft_event made;
};

static int lends_timer(void *arg) {
    struct lent_timer *l = arg;
    CHECK_EQ(weft_timer_new(&l->t, WEFT_HOUR, NULL), 0);
    weft_event_set(&l->made);
    return 0;
}

static void *waits_for_lent(void *arg) {
    struct lent_timer *l = arg;
    CHECK_EQ(weft_timer_wait(l->t, NULL), -EBADF);
    weft_timer_free(l->t);
    return NULL;
}

TEST(review_life, waiter_from_outside_hears_that_the_timer_went) {
    struct lent_timer l = {.made = WEFT_EVENT_INIT};
    weft_runtime *rt;
    pthread_t thread;
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_submit(rt, lends_timer, &l), 0);
    weft_event_wait(&l.made);
    CHECK_EQ(pthread_create(&thread, NULL, waits_for_lent, &l), 0);
    usleep(10000); /* it waits by now, or will find the timer gone */
    CHECK_EQ(stops_runtime(rt), 0);
    pthread_join(thread, NULL);
}

/* ---- a dump into a pipe ------------------------------------------------------------------------- */

enum { MANY = 2000 }; /* their lines do not fit a pipe */

struct dumped {
    int out;
    weft_conn in;
    weft_waitgroup all;
    weft_event stop;
};

static int waits_in_dump(void *arg) {
    weft_event_wait(arg);
    return 0;
}

/* Needs a new stack between two reads. */
static int reads_dump(void *arg) {
    struct dumped *d = arg;
    char buf[4096];
    ssize_t n;
    while ((n = weft_conn_read(d->in, buf, sizeof buf)) > 0) {
        CHECK_EQ(weft_waitgroup_go(&d->all, waits_in_dump, &d->stop), 0);
    }
    CHECK_EQ(n, 0);
    return 0;
}

static int dumps(void *arg) {
    struct dumped *d = arg;
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(weft_conn_from_fd(&d->in, fds[0]), 0);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(weft_waitgroup_go(&d->all, waits_in_dump, &d->stop), 0);
    }
    weft_waitgroup reader = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_go(&reader, reads_dump, d), 0);
    CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    CHECK_EQ(weft_dump(NULL, fds[1]), 0);
    close(fds[1]);
    weft_waitgroup_wait(&reader);
    weft_event_set(&d->stop);
    weft_waitgroup_wait(&d->all);
    return 0;
}

TEST(review_life, dump_into_a_pipe_holds_up_no_spawn) {
    struct dumped d = {.all = WEFT_WAITGROUP_INIT};
    CHECK_EQ(run_on(2, dumps, &d, NULL), 0);
}

/* ---- values at the edge of the type -------------------------------------------------------------- */

static int counts_copy(void *arg) {
    (void)arg;
    return 0;
}

static int uses_far_past(void *arg) {
    weft_time past = weft_time_at(INT64_MIN), nominal = past;
    weft_timer *t;
    CHECK_EQ(weft_after_func(&t, WEFT_FOREVER, counts, arg, NULL), 0);
    CHECK(!weft_timer_reset_at(t, past));
    while (*(_Atomic int *)arg == 0) {
        CHECK_EQ(weft_sleep(WEFT_MICROSECOND), 0);
    }
    weft_timer_free(t);
    CHECK_EQ(weft_timer_new(&t, INT64_MIN, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_LT(nominal.ns, 0);
    weft_timer_free(t);
    CHECK_EQ(weft_chan_recv_until(NULL, NULL, past), -ETIMEDOUT);
    CHECK_EQ(weft_go_copy(counts_copy, NULL, 0), 0);
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    CHECK_LT(s.timer_late.max, 10 * WEFT_SECOND); /* not since the beginning of time */
    return 0;
}

TEST(review_life, far_past_is_merely_due) {
    _Atomic int fired = 0;
    CHECK_EQ(run_on(2, uses_far_past, &fired, NULL), 0);
}

/* ---- the fatal hook goes with its runtime -------------------------------------------------------- */

static void says_hook(void *arg, const char *text) {
    (void)text;
    ssize_t n = write(STDERR_FILENO, arg, strlen(arg));
    (void)n;
}

static int unlocks_wrongly(void *arg) {
    (void)arg;
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_unlock(&m);
    return 0;
}

static int returns(void *arg) {
    (void)arg;
    return 0;
}

static void dies_in_runtime(void *arg) {
    weft_config cfg = weft_config_default();
    cfg.fatal = says_hook;
    cfg.hook_arg = "(hook called)";
    CHECK_EQ(weft_run(arg != NULL ? unlocks_wrongly : returns, NULL, &cfg, NULL), 0);
    unlocks_wrongly(NULL);
}

static void hook_is_silent_afterwards(void) {
    int fds[2];
    char text[1024] = "";
    CHECK_EQ(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        dies_in_runtime(NULL);
    }
    close(fds[1]);
    CHECK_EQ(waitpid(child, NULL, 0), child);
    CHECK(read(fds[0], text, sizeof text - 1) > 0);
    CHECK(strstr(text, "not locked") != NULL);
    CHECK(strstr(text, "(hook called)") == NULL);
}

TEST(review_life, fatal_hook_goes_with_its_runtime) {
    CHECK_FAILS(SIGABRT, "(hook called)", dies_in_runtime, "");
    hook_is_silent_afterwards();
}
