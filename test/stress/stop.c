/* stress/stop.c: a runtime is stopped with everything under way: sleepers, timers, channels, locks,
 * connections, calls from outside. Every G ends, every cut-off call says so, and each time the process
 * gets back what it had.
 */
#include "stress.h"

#include <dirent.h>
#include <sys/socket.h>

static int entries_of(const char *path) {
    DIR *d = opendir(path);
    CHECK(d != NULL);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

/* What one runtime's green threads share. */
struct scene {
    weft_chan *chan, *full;
    weft_event never;
    weft_mutex held;
    weft_waitgroup open;
    weft_timer *timer, *function;
    weft_conn conn, peer, busy, busy_peer;
    weft_listener listener;
    weft_addr at;
    atomic_int begun, ended, set;
};

static bool cut_off(int64_t err) { return err == -ECANCELED || err == WEFT_ESTOPPING; }

static void end_one(struct scene *s) {
    atomic_fetch_add(&s->ended, 1);
    progress();
}

/* Waits in a way that nothing but the stop ends. */
static int64_t wait_for_ever(struct scene *s, uint32_t way) {
    char byte;
    uint64_t v = 0;
    weft_conn c;
    weft_time far = weft_in(WEFT_HOUR);
    switch (way % 16) {
    case 0:
        return weft_sleep(WEFT_FOREVER);
    case 1:
        return weft_sleep(WEFT_HOUR);
    case 2:
        return weft_chan_recv(s->chan, &v);
    case 3:
        return weft_chan_recv_until(s->chan, &v, far);
    case 4:
        return weft_chan_send(s->full, &v);
    case 5:
        return weft_chan_send_until(s->full, &v, far);
    case 6:
        return weft_chan_recv(NULL, &v);
    case 7:
        return weft_event_wait_until(&s->never, WEFT_NEVER);
    case 8:
        return weft_event_wait_until(&s->never, far);
    case 9: {
        int err = weft_mutex_lock_until(&s->held, way % 3 ? far : WEFT_NEVER);
        if (err == 0) { /* its holder was cut off before us and let go */
            weft_mutex_unlock(&s->held);
            err = weft_sleep(WEFT_HOUR);
        }
        return err;
    }
    case 10:
        return weft_waitgroup_wait_until(&s->open, way % 3 ? far : WEFT_NEVER);
    case 11:
        return weft_timer_wait(s->timer, NULL);
    case 12:
        return weft_conn_read(s->conn, &byte, 1);
    case 13:
        return weft_accept(&c, s->listener);
    case 14:
        return weft_accept_until(&c, s->listener, far);
    default:
        return weft_timer_wait_until(s->timer, NULL, far);
    }
}

static int wait_till_stopped(void *arg) {
    struct scene *s = arg;
    uint32_t way = (uint32_t)atomic_fetch_add(&s->begun, 1);
    int64_t err = wait_for_ever(s, way);
    if (err != -ECANCELED && (err != -EBUSY || way % 16 != 12)) { /* one reader at a time */
        test_fail(__FILE__, __LINE__, "wait %u ended with %lld", way % 16, (long long)err);
    }
    if (err == -ECANCELED) {
        uint64_t v;
        CHECK_EQ(weft_sleep(WEFT_SECOND), -ECANCELED); /* and from here every wait says so */
        CHECK_EQ(weft_chan_recv(s->chan, &v), -ECANCELED);
        CHECK_EQ(weft_go(wait_till_stopped, s), WEFT_ESTOPPING);
    }
    end_one(s);
    return 0;
}

/* Is always busy: with channels, sleeps, locks, new green threads, timers. */
static int work_on(void *arg) {
    struct scene *s = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    weft_chan *own;
    CHECK_EQ(weft_chan_new(&own, 8, 1), 0);
    int err = 0;
    while (!cut_off(err)) {
        uint64_t v = 0;
        switch (chance(&seed) % 8) {
        case 0:
            err = weft_chan_send_until(own, &v, weft_in(20 * WEFT_MICROSECOND));
            break;
        case 1:
            err = weft_chan_recv_until(own, &v, weft_in(20 * WEFT_MICROSECOND));
            break;
        case 2:
            err = weft_sleep((weft_duration)(chance(&seed) % 100) * WEFT_MICROSECOND);
            break;
        case 3:
            weft_mutex_lock(&s->held); /* cannot be cut off: its holder unlocks once stopped */
            weft_mutex_unlock(&s->held);
            break;
        case 4:
            weft_timer_reset(s->function, (weft_duration)(chance(&seed) % 100000));
            break;
        default:
            weft_yield();
            break;
        }
        CHECK(err == 0 || err == -ETIMEDOUT || cut_off(err));
    }
    weft_chan_unref(own);
    end_one(s);
    return 0;
}

static int hold_lock(void *arg) {
    struct scene *s = arg;
    weft_mutex_lock(&s->held);
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    weft_mutex_unlock(&s->held);
    end_one(s);
    return 0;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static int start_more(void *arg) {
    struct scene *s = arg;
    int err;
    while ((err = weft_go(nothing, NULL)) == 0) {
        weft_yield();
    }
    CHECK_EQ(err, WEFT_ESTOPPING);
    end_one(s);
    return 0;
}

/* A writer and a reader that never run dry. */
static int send_bytes(void *arg) {
    struct scene *s = arg;
    char buf[100] = "";
    ssize_t n;
    while ((n = weft_conn_write(s->busy_peer, buf, sizeof buf)) > 0) {
        weft_yield();
    }
    CHECK(cut_off(n));
    end_one(s);
    return 0;
}

static int take_bytes(void *arg) {
    struct scene *s = arg;
    char buf[70];
    ssize_t n;
    while ((n = weft_conn_read(s->busy, buf, sizeof buf)) > 0) {
    }
    CHECK(cut_off(n));
    end_one(s);
    return 0;
}

static void pair(weft_conn *a, weft_conn *b) {
    int fd[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(b, fd[1]), 0);
}

enum { WAITERS = 40, WORKERS = 6 };

static int set_scene(void *arg) {
    struct scene *s = arg;
    uint64_t v = 0;
    CHECK_EQ(weft_chan_new(&s->chan, 8, 0), 0);
    CHECK_EQ(weft_chan_new(&s->full, 8, 1), 0);
    CHECK_EQ(weft_chan_try_send(s->full, &v), 0);
    weft_waitgroup_add(&s->open, 1);
    CHECK_EQ(weft_timer_new(&s->timer, WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_after_func(&s->function, WEFT_HOUR, nothing, NULL, NULL), 0);
    pair(&s->conn, &s->peer);
    pair(&s->busy, &s->busy_peer);
    CHECK_EQ(weft_listen(&s->listener, "tcp", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(weft_listener_addr(s->listener, &s->at), 0);
    CHECK_EQ(weft_go(hold_lock, s), 0);
    weft_yield();
    for (int i = 0; i < WAITERS; i++) {
        CHECK_EQ(weft_go(wait_till_stopped, s), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        CHECK_EQ(weft_go(work_on, s), 0);
    }
    CHECK_EQ(weft_go(start_more, s), 0);
    CHECK_EQ(weft_go(send_bytes, s), 0);
    CHECK_EQ(weft_go(take_bytes, s), 0);
    end_one(s);
    atomic_store(&s->set, 1);
    return 0;
}

enum { ALL = WAITERS + WORKERS + 5 };

static void drop_scene(struct scene *s) {
    CHECK_EQ(atomic_load(&s->ended), ALL);
    weft_timer_free(s->timer); /* may be done when its runtime has gone */
    weft_timer_free(s->function);
    weft_chan_unref(s->chan);
    weft_chan_unref(s->full);
    CHECK_EQ(weft_conn_close(s->conn), -EBADF); /* ended with the runtime */
    CHECK_EQ(weft_listener_close(s->listener), -EBADF);
}

/* ---- from outside ---- */

/* Submits and talks to the runtime until the stop is announced. */
struct outside {
    weft_runtime *rt;
    atomic_int announced;
    struct scene *scene;
};

static void *submit_till_told(void *arg) {
    struct outside *o = arg;
    while (!atomic_load(&o->announced)) {
        int err = weft_submit(o->rt, nothing, NULL);
        CHECK_EQ(err, 0);
    }
    return NULL;
}

/* A plain thread that is inside a read when the runtime goes. */
static void *read_to_the_end(void *arg) {
    struct outside *o = arg;
    char byte;
    ssize_t n;
    while ((n = weft_conn_read(o->scene->peer, &byte, 1)) > 0) {
    }
    CHECK_EQ(n, -EBADF);
    return NULL;
}

static void one_round(int procs, uint64_t *seed) {
    weft_runtime *rt;
    weft_config c = stress_config(procs);
    static struct scene s;
    s = (struct scene){0};
    CHECK_EQ(weft_start(&rt, &c), 0);
    atomic_store(&watchdog.rt[0], rt);
    CHECK_EQ(weft_submit(rt, set_scene, &s), 0);
    struct outside o = {.rt = rt, .scene = &s};
    pthread_t submitter, reader;
    CHECK_EQ(pthread_create(&submitter, NULL, submit_till_told, &o), 0);
    while (!atomic_load(&s.set)) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000}, NULL);
    }
    CHECK_EQ(pthread_create(&reader, NULL, read_to_the_end, &o), 0);
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % 3000) * 1000}, NULL);
    atomic_store(&o.announced, 1);
    pthread_join(submitter, NULL);
    atomic_store(&watchdog.rt[0], NULL);
    CHECK_EQ(weft_stop(rt, -1), 0);
    pthread_join(reader, NULL);
    drop_scene(&s);
    progress();
}

static void stops(int procs) {
    stress_begin(2);
    uint64_t seed = chance_seed(6);
    one_round(procs, &seed); /* stand-ins and tables that stay are made once */
    int threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    while (stress_more()) {
        one_round(procs, &seed);
        CHECK_EQ(entries_of("/proc/self/fd"), fds);
        CHECK_EQ(entries_of("/proc/self/task"), threads);
    }
    stress_over();
}

TEST_IN(stop, under_load_1, 40) { stops(1); }
TEST_IN(stop, under_load_2, 40) { stops(2); }
TEST_IN(stop, under_load_4, 40) { stops(4); }

/* ---- the same by the return of main ---- */

static int main_returns(void *arg) {
    struct scene *s = arg;
    set_scene(s);
    uint64_t seed = chance_seed(2);
    weft_sleep((weft_duration)(chance(&seed) % 2000) * WEFT_MICROSECOND);
    return 17;
}

static void returns(int procs) {
    stress_begin(1.5);
    while (stress_more()) {
        static struct scene s;
        s = (struct scene){0};
        weft_config c = stress_config(procs);
        int status = 0;
        c.stop_limit = -1;
        CHECK_EQ(weft_run(main_returns, &s, &c, &status), 0);
        CHECK_EQ(status, 17);
        drop_scene(&s);
        progress();
    }
    stress_over();
}

TEST_IN(stop, main_returns_1, 40) { returns(1); }
TEST_IN(stop, main_returns_2, 40) { returns(2); }
TEST_IN(stop, main_returns_4, 40) { returns(4); }

/* ---- begun and ended over and over ---- */

static int one_submitted(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

/* A submit that was accepted is run, however close the stop is behind it. */
static void short_lives(int procs) {
    stress_begin(1.5);
    uint64_t seed = chance_seed(4);
    while (stress_more()) {
        weft_runtime *rt;
        weft_config c = stress_config(procs);
        atomic_int count = 0;
        int n = (int)(chance(&seed) % 4);
        CHECK_EQ(weft_start(&rt, &c), 0);
        for (int i = 0; i < n; i++) {
            CHECK_EQ(weft_submit(rt, one_submitted, &count), 0);
        }
        if (chance(&seed) % 2 == 0) {
            nanosleep(&(struct timespec){.tv_nsec = (long)(chance(&seed) % 200) * 1000}, NULL);
        }
        CHECK_EQ(weft_stop(rt, -1), 0);
        CHECK_EQ(atomic_load(&count), n);
        progress();
    }
    stress_over();
}

TEST_IN(stop, short_lives_1, 30) { short_lives(1); }
TEST_IN(stop, short_lives_3, 30) { short_lives(3); }

/* Several threads, each with runtimes of its own. */
static void *live_on(void *arg) {
    int procs = (int)(intptr_t)arg;
    while (stress_more()) {
        atomic_int count = 0;
        weft_config c = stress_config(procs);
        CHECK_EQ(weft_run(one_submitted, &count, &c, NULL), 0);
        CHECK_EQ(atomic_load(&count), 1);
        progress();
    }
    return NULL;
}

TEST_IN(stop, side_by_side, 30) {
    pthread_t t[3];
    stress_begin(1.5);
    for (intptr_t i = 0; i < 3; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, live_on, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    stress_over();
}
