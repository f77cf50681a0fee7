/* unit/outside.c: what is done to a runtime from outside: by plain threads, and by green threads of the
 * same and of another runtime.
 */
#include "world.h"

/* What is tried from each of the places that weft promises to serve. */
enum place { PLAIN, SAME, OTHER, PLACES };

struct errand {
    weft_fn fn;
    void *arg;
    atomic_int done;
};

static int run_errand(void *arg) {
    struct errand *e = arg;
    e->fn(e->arg);
    atomic_store(&e->done, 1);
    return 0;
}

static void *run_errand_plainly(void *arg) {
    run_errand(arg);
    return NULL;
}

/* fn(arg) on a thread that weft never saw, on a G of rt, or on one of another runtime; waits for it. */
static void do_at(enum place where, weft_runtime *rt, weft_fn fn, void *arg) {
    struct errand e = {.fn = fn, .arg = arg};
    if (where == PLAIN) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, run_errand_plainly, &e), 0);
        pthread_join(t, NULL);
    } else if (where == SAME) {
        CHECK_EQ(weft_submit(rt, run_errand, &e), 0);
        UNTIL(atomic_load(&e.done));
    } else {
        weft_runtime *other;
        weft_config c = config_of(2);
        CHECK_EQ(weft_start(&other, &c), 0);
        CHECK_EQ(weft_submit(other, run_errand, &e), 0);
        UNTIL(atomic_load(&e.done));
        CHECK_EQ(weft_stop(other, -1), 0);
    }
}

static weft_config strict_config(int procs) { /* one that says when it is stuck */
    weft_config c = config_of(procs);
    c.flags = WEFT_IGNORE_ENV;
    return c;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static atomic_int log_lines;
static void count_lines(void *arg, int level, const char *line) {
    (void)arg, (void)level;
    atomic_fetch_add(&log_lines, strncmp(line, "weft: deadlock", 14) == 0);
}

/* ---- a stop that is asked for ---- */

static int request(void *arg) {
    CHECK_EQ(weft_request_stop(arg), 0);
    CHECK_EQ(weft_request_stop(arg), 0); /* once is enough */
    return 0;
}

static int ask_for_the_own_stop(void *arg) {
    (void)arg;
    CHECK_EQ(weft_request_stop(NULL), 0);
    CHECK_EQ(weft_go(nothing, NULL), WEFT_ESTOPPING);
    CHECK_EQ(weft_submit(weft_current(), nothing, NULL), WEFT_ESTOPPING);
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    CHECK_EQ(weft_chan_recv(NULL, NULL), -ECANCELED);
    return 5;
}

TEST(request_stop, from_main) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        int status = 0;
        weft_config c = strict_config(procs);
        CHECK_EQ(weft_run(ask_for_the_own_stop, NULL, &c, &status), 0);
        CHECK_EQ(status, 5);
    }
}

TEST(request_stop, needs_a_runtime) { CHECK_EQ(weft_request_stop(NULL), WEFT_ENORUNTIME); }

static int wait_till_cut_off(void *arg) {
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int receive_till_cut_off(void *arg) { /* a held park */
    CHECK_EQ(weft_chan_recv(NULL, NULL), -ECANCELED);
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

TEST(request_stop, ends_all_that_may_end_and_a_stop_follows) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (enum place where = PLAIN; where < PLACES; where++) {
            weft_runtime *rt;
            weft_config c = config_of(procs);
            atomic_int ended = 0;
            CHECK_EQ(weft_start(&rt, &c), 0);
            for (int i = 0; i < 10; i++) {
                CHECK_EQ(weft_submit(rt, wait_till_cut_off, &ended), 0);
                CHECK_EQ(weft_submit(rt, receive_till_cut_off, &ended), 0);
            }
            do_at(where, rt, request, rt);
            UNTIL(atomic_load(&ended) == 20); /* with nobody in weft_stop */
            CHECK_EQ(weft_submit(rt, nothing, NULL), WEFT_ESTOPPING);
            CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
        }
    }
}

/* Has looked at its flag; parks, held, once the stop has been asked for and its pass is over. */
struct late {
    weft__lock lock;
    atomic_int looked, asked, ended;
};

static int park_late(void *arg) {
    struct late *l = arg;
    weft__waitq q = {NULL, NULL};
    weft__waiter w;
    bool cancelled = false;
    weft__m *m = weft__enter();
    weft__lock_take(&l->lock);
    weft__waiter_init(&w, m->g, 0, NULL);
    weft__waitq_push(&q, &w);
    CHECK(!weft__cancelled(m->g));
    atomic_store(&l->looked, 1);
    while (!atomic_load(&l->asked)) sched_yield();
    m = weft__park_held(m, &l->lock, true, WEFT__WAIT_RECV, l, NULL, &cancelled);
    weft__leave(m);
    CHECK(cancelled);
    atomic_store(&l->ended, 1);
    return 0;
}

TEST(request_stop, ends_a_park_that_came_behind_its_pass) {
    for (int procs = 1; procs <= 2; procs++) {
        weft_runtime *rt;
        weft_config c = config_of(procs);
        struct late l = {0};
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_submit(rt, park_late, &l), 0);
        UNTIL(atomic_load(&l.looked));
        CHECK_EQ(weft_request_stop(rt), 0);
        atomic_store(&l.asked, 1);
        UNTIL(atomic_load(&l.ended));
        UNTIL(atomic_load(&rt->cancel_settled)); /* and then the passes end */
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
    }
}

static int wait_uncancellably(void *arg) {
    weft_event_wait(arg);
    return 0;
}

static int ask_then_wait_for_nobody(void *arg) {
    CHECK_EQ(weft_go(wait_till_cut_off, arg), 0);
    CHECK_EQ(weft_request_stop(NULL), 0);
    static weft_event never;
    return wait_uncancellably(&never);
}

/* No stop's limit runs here, so it must be said. */
TEST(request_stop, stuck_is_still_seen) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        atomic_int ended = 0;
        weft_config c = strict_config(procs);
        c.log = count_lines;
        atomic_store(&log_lines, 0);
        CHECK_EQ(weft_run(ask_then_wait_for_nobody, &ended, &c, NULL), -EDEADLK);
        CHECK_EQ(atomic_load(&log_lines), 1);
        CHECK_EQ(atomic_load(&ended), 1);
    }
}

static int leave_sleepers(void *arg) {
    weft_runtime *_Atomic *rt = arg;
    static atomic_int unused;
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_go(wait_till_cut_off, &unused), 0);
    }
    atomic_store(rt, weft_current());
    weft_exit(3);
}

static void *request_once_known(void *arg) {
    weft_runtime *_Atomic *rt = arg;
    UNTIL(atomic_load(rt) != NULL);
    nap();
    CHECK_EQ(weft_request_stop(atomic_load(rt)), 0);
    return NULL;
}

TEST(request_stop, ends_what_main_left_running) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_runtime *_Atomic rt = NULL;
        pthread_t t;
        int status = 0;
        weft_config c = strict_config(procs);
        CHECK_EQ(pthread_create(&t, NULL, request_once_known, (void *)&rt), 0);
        CHECK_EQ(weft_run(leave_sleepers, (void *)&rt, &c, &status), 0);
        CHECK_EQ(status, 3);
        pthread_join(t, NULL);
    }
}
