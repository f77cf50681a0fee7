/* unit/outside.c: what is done to a runtime from outside: by plain threads, and by green threads of the
 * same and of another runtime.
 */
#include "world.h"

#include <signal.h>

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

/* ---- calls ---- */

static int answer(void *arg) {
    weft_sleep(WEFT_MILLISECOND);
    return *(int *)arg;
}

static int answer_by_exit(void *arg) { weft_exit(*(int *)arg); }

static int which_runtime(void *arg) {
    CHECK(weft_current() == arg);
    CHECK_NE(weft_self(), 0);
    return 0;
}

static int call_in_ways(void *arg) {
    weft_runtime *rt = arg;
    int n = 7, result = 0;
    CHECK_EQ(weft_call(rt, answer, &n, WEFT_NEVER, &result), 0);
    CHECK_EQ(result, 7);
    n = -8;
    CHECK_EQ(weft_call(rt, answer_by_exit, &n, weft_in(WEFT_HOUR), &result), 0);
    CHECK_EQ(result, -8);
    CHECK_EQ(weft_call(rt, which_runtime, rt, WEFT_NEVER, NULL), 0);
    CHECK_EQ(weft_call(rt, NULL, NULL, WEFT_NEVER, &result), -EINVAL);
    CHECK_EQ(result, -8);
    return 0;
}

static void started(void (*scene)(weft_runtime *rt, enum place where), int most) {
    for (int procs = 1; procs <= most; procs *= 2) {
        for (enum place where = PLAIN; where < PLACES; where++) {
            weft_runtime *rt;
            weft_config c = config_of(procs);
            CHECK_EQ(weft_start(&rt, &c), 0);
            scene(rt, where);
            CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
        }
    }
}

static void calls_in_ways(weft_runtime *rt, enum place where) {
    do_at(where, rt, call_in_ways, rt);
}
TEST(call, brings_the_result) { started(calls_in_ways, 4); }

TEST(call, needs_a_runtime) {
    CHECK_EQ(weft_call(NULL, nothing, NULL, WEFT_NEVER, NULL), WEFT_ENORUNTIME);
}

/* The waits of fn are cut off when time is up, and each that follows; the call waits for fn all the
   same. */
static int outlast(void *arg) {
    int *waits = arg;
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    CHECK_EQ(weft_chan_recv(NULL, NULL), -ECANCELED);
    for (int i = 0; i < 20; i++) {
        weft_yield();
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    *waits = 2;
    return 3;
}

static int outlast_held(void *arg) {
    CHECK_EQ(weft_chan_recv(NULL, NULL), -ECANCELED);
    return outlast(arg);
}

static int unmarked(void *arg) { /* a G that had been cut off leaves nothing to the next */
    (void)arg;
    CHECK_EQ(weft_sleep(10 * WEFT_MICROSECOND), 0);
    return 0;
}

static int call_with_times(void *arg) {
    weft_runtime *rt = arg;
    static const int64_t lengths[] = {-WEFT_SECOND, 0, 1, 50 * WEFT_MICROSECOND,
                                      3 * WEFT_MILLISECOND};
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        int waits = 0, result = 0;
        weft_time until = weft_in(lengths[i]);
        CHECK_EQ(weft_call(rt, i % 2 ? outlast : outlast_held, &waits, until, &result), 0);
        CHECK_EQ(result, 3);
        CHECK_EQ(waits, 2);
        CHECK_GE(weft_time_sub(weft_now(), until), 0);
        CHECK_EQ(weft_call(rt, unmarked, NULL, WEFT_NEVER, NULL), 0);
    }
    return 0;
}

static void calls_with_times(weft_runtime *rt, enum place where) {
    do_at(where, rt, call_with_times, rt);
}
TEST(call, is_cut_off_at_its_time) { started(calls_with_times, 4); }

/* As ends_a_park_that_came_behind_its_pass: had looked at its flag before time was up. */
static int park_behind_the_flag(void *arg) {
    struct late *l = arg;
    weft__waitq q = {NULL, NULL};
    weft__waiter w;
    bool cancelled = false;
    weft__m *m = weft__enter();
    weft__lock_take(&l->lock);
    weft__waiter_init(&w, m->g, 0, NULL);
    weft__waitq_push(&q, &w);
    while (atomic_load(&m->g->cancel) == 0) sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL); /* the first claim has missed it */
    m = weft__park_held(m, &l->lock, true, WEFT__WAIT_RECV, l, NULL, &cancelled);
    weft__leave(m);
    CHECK(cancelled);
    return 9;
}

static int call_late(void *arg) {
    struct late l = {0};
    int result = 0;
    CHECK_EQ(weft_call(arg, park_behind_the_flag, &l, weft_in(WEFT_MILLISECOND), &result), 0);
    CHECK_EQ(result, 9);
    return 0;
}

static void calls_late(weft_runtime *rt, enum place where) {
    if (where != SAME) { /* with one P the caller would never come to its turn */
        do_at(where, rt, call_late, rt);
    }
}
TEST(call, ends_a_park_that_came_behind_its_claim) { started(calls_late, 2); }

static int cut_off_by_stop(void *arg) {
    atomic_store((atomic_int *)arg, 1);
    CHECK_EQ(weft_sleep(WEFT_HOUR), -ECANCELED);
    return 4;
}

struct stopped_call {
    weft_runtime *rt;
    atomic_int begun;
};

static int call_until_stopped(void *arg) {
    struct stopped_call *s = arg;
    int result = 0;
    CHECK_EQ(weft_call(s->rt, cut_off_by_stop, &s->begun, WEFT_NEVER, &result), 0);
    CHECK_EQ(result, 4);
    return 0;
}

static void *call_until_stopped_plainly(void *arg) {
    call_until_stopped(arg);
    return NULL;
}

TEST(call, returns_what_a_stopped_function_gave) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int i = 0; i < rounds(20); i++) {
            weft_config c = config_of(procs);
            struct stopped_call s = {0}, own = {0}, far = {0};
            weft_runtime *other;
            pthread_t t;
            CHECK_EQ(weft_start(&s.rt, &c), 0);
            CHECK_EQ(weft_start(&other, &c), 0);
            own.rt = far.rt = s.rt;
            CHECK_EQ(pthread_create(&t, NULL, call_until_stopped_plainly, &s), 0);
            CHECK_EQ(weft_submit(s.rt, call_until_stopped, &own), 0);
            CHECK_EQ(weft_submit(other, call_until_stopped, &far), 0);
            UNTIL(atomic_load(&s.begun) && atomic_load(&own.begun) && atomic_load(&far.begun));
            CHECK_EQ(weft_stop(s.rt, WEFT_SECOND * 20), 0);
            pthread_join(t, NULL);
            CHECK_EQ(weft_stop(other, WEFT_SECOND * 20), 0);
        }
    }
}

TEST(call, is_refused_once_a_stop_is_asked_for) {
    weft_runtime *rt;
    weft_config c = config_of(1);
    int result = 6;
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_request_stop(rt), 0);
    CHECK_EQ(weft_call(rt, nothing, NULL, WEFT_NEVER, &result), WEFT_ESTOPPING);
    CHECK_EQ(result, 6);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

static int call_abroad(void *arg) { /* its own runtime has nobody else who could wake it */
    int n = 1, result = 0;
    CHECK_EQ(weft_call(arg, answer, &n, WEFT_NEVER, &result), 0);
    CHECK_EQ(result, 1);
    return 0;
}

TEST(call, who_waits_abroad_is_not_stuck) {
    weft_runtime *rt;
    weft_config c = config_of(2);
    CHECK_EQ(weft_start(&rt, &c), 0);
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config strict = strict_config(procs);
        CHECK_EQ(weft_run(call_abroad, rt, &strict, NULL), 0);
    }
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- wakers that weft cannot see ---- */

struct outsider {
    weft_event event;
    weft_runtime *rt;
    atomic_int go;
    pthread_t thread;
};

/* As a callback does it: a wake, then the last word, which must find the runtime still there. */
static void *set_then_end(void *arg) {
    struct outsider *o = arg;
    weft_runtime *rt = o->rt;
    nanosleep(&(struct timespec){.tv_nsec = 3 * 1000 * 1000}, NULL); /* all are asleep by then */
    weft_event_set(&o->event);
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
    weft_external_end(rt);
    return NULL;
}

static int wait_for_outsider(void *arg) {
    struct outsider *o = arg;
    o->rt = weft_current();
    weft_external_begin(NULL);
    CHECK_EQ(pthread_create(&o->thread, NULL, set_then_end, o), 0);
    weft_event_wait(&o->event);
    return 2;
}

TEST(external, is_waited_for) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int i = 0; i < rounds(10); i++) {
            struct outsider o = {.event = WEFT_EVENT_INIT};
            int status = 0;
            weft_config c = strict_config(procs);
            CHECK_EQ(weft_run(wait_for_outsider, &o, &c, &status), 0);
            CHECK_EQ(status, 2);
            pthread_join(o.thread, NULL);
        }
    }
}

static bool all_asleep(weft_runtime *rt) {
    weft__lock_take(&rt->lock);
    bool asleep = rt->nm == rt->nmidle && rt->make_list == NULL;
    weft__lock_drop(&rt->lock);
    return asleep;
}

/* Never wakes anybody, and says so when all threads have long been asleep. */
static void *end_only(void *arg) {
    struct outsider *o = arg;
    UNTIL(all_asleep(o->rt));
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    CHECK_EQ(atomic_load(&log_lines), 0);
    weft_external_end(o->rt);
    CHECK_EQ(atomic_load(&log_lines), 0); /* it was one of two */
    weft_external_end(o->rt);
    return NULL;
}

static int wait_for_nobody(void *arg) {
    struct outsider *o = arg;
    o->rt = weft_current();
    weft_external_begin(o->rt);
    weft_external_begin(o->rt);
    CHECK_EQ(pthread_create(&o->thread, NULL, end_only, o), 0);
    static weft_event never;
    weft_event_wait(&never);
    return 0;
}

TEST(external, the_end_looks_for_a_deadlock) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        struct outsider o = {.event = WEFT_EVENT_INIT};
        weft_config c = strict_config(procs);
        c.log = count_lines;
        atomic_store(&log_lines, 0);
        CHECK_EQ(weft_run(wait_for_nobody, &o, &c, NULL), -EDEADLK);
        CHECK_EQ(atomic_load(&log_lines), 1);
        pthread_join(o.thread, NULL);
    }
}

/* By the G itself around its wait. */
static int begin_and_end_around(void *arg) {
    struct outsider *o = arg;
    CHECK_EQ(pthread_create(&o->thread, NULL, set_then_end, o), 0);
    weft_external_begin(NULL);
    weft_event_wait(&o->event);
    weft_external_end(NULL);
    static weft_event never;
    weft_event_wait(&never); /* and from here it is stuck as ever */
    return 0;
}

TEST(external, around_a_wait) {
    weft_runtime *other;
    weft_config c = config_of(1);
    CHECK_EQ(weft_start(&other, &c), 0);
    for (int procs = 1; procs <= 4; procs *= 2) {
        struct outsider o = {.event = WEFT_EVENT_INIT, .rt = other};
        weft_external_begin(other); /* from here, for another */
        weft_config strict = strict_config(procs);
        CHECK_EQ(weft_run(begin_and_end_around, &o, &strict, NULL), -EDEADLK);
        pthread_join(o.thread, NULL);
    }
    CHECK_EQ(weft_stop(other, -1), 0);
}

TEST(external, a_stop_waits_within_its_limit) {
    weft_runtime *rt;
    weft_config c = config_of(2);
    CHECK_EQ(weft_start(&rt, &c), 0);
    weft_external_begin(rt);
    CHECK_EQ(weft_stop(rt, WEFT_MILLISECOND), -ETIMEDOUT);
    struct outsider o = {.event = WEFT_EVENT_INIT, .rt = rt};
    CHECK_EQ(pthread_create(&o.thread, NULL, set_then_end, &o), 0);
    CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
    pthread_join(o.thread, NULL);
}

static void end_without_begin(void *arg) {
    weft_runtime *rt;
    (void)arg;
    if (weft_start(&rt, NULL) == 0) {
        weft_external_end(rt);
    }
}

TEST(external, an_end_too_many_is_fatal) {
    CHECK_FAILS(SIGABRT, "weft_external_end", end_without_begin, NULL);
}
