/* unit/canary_sched.c: the scheduler's promises that a run at ease may keep by luck: each scene here leaves
 * one way only for the work to be done. */
#include "world.h"

static weft_time patience(void) { return weft_in((weft_duration)(3 * test_slack() * WEFT_SECOND)); }
static int64_t patience_ns(void) { return (int64_t)(3e9 * test_slack()); }

/* Computes, or waits without weft's knowing, until cond; not for ever. */
#define BUSY_UNTIL(cond)                                                                           \
    do {                                                                                           \
        int64_t busy_end = clock_ns() + patience_ns();                                             \
        while (!(cond)) {                                                                          \
            CHECK_LT(clock_ns(), busy_end);                                                        \
            sched_yield();                                                                         \
        }                                                                                          \
    } while (0)

static uint64_t waiting(weft_runtime *rt) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    return s.gs_waiting;
}

static void run_on(int procs, weft_fn app) {
    weft_config c = config_of(procs);
    c.flags |= procs == 1 ? WEFT_EXCLUSIVE : 0; /* one at a time, however long it computes */
    CHECK_EQ(weft_run(app, NULL, &c, NULL), 0);
}

/* ---- work from outside ---- */

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

static void submit_to_idle(int procs) {
    weft_runtime *rt;
    weft_config c = config_of(procs);
    CHECK_EQ(weft_start(&rt, &c), 0);
    for (int i = 0; i < 20; i++) {
        weft_event done = WEFT_EVENT_INIT;
        BUSY_UNTIL(atomic_load(&rt->npidle) == (uint32_t)procs &&
                   atomic_load(&rt->nmspinning) == 0);
        CHECK_EQ(weft_submit(rt, set_event, &done), 0);
        CHECK_EQ(weft_event_wait_until(&done, patience()), 0);
    }
    CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
}

TEST(canary_sched, work_from_outside_wakes_an_idle_runtime) {
    submit_to_idle(1);
    submit_to_idle(2);
}

/* The next piece comes while the M that ran the last one looks about and gives its P up: after nothing,
   or as long as a few looks take. Nobody else submits, so a piece that was passed over stays undone. */
static atomic_uint pieces_done;

static int count_piece(void *arg) {
    (void)arg;
    atomic_fetch_add(&pieces_done, 1);
    return 0;
}

static bool comes_to(unsigned n) {
    int64_t end = 0;
    for (unsigned i = 1; atomic_load(&pieces_done) != n; i++) {
        if (i % 1024 == 0) {
            end = end == 0 ? clock_ns() + patience_ns() : end;
            if (clock_ns() > end) {
                return false;
            }
            sched_yield();
        }
    }
    return true;
}

TEST(canary_sched, who_gives_up_a_p_looks_again) {
    weft_runtime *rt;
    weft_config c = config_of(2);
    CHECK_EQ(weft_start(&rt, &c), 0);
    int64_t end = clock_ns() + 2 * WEFT_SECOND;
    for (unsigned n = 1; clock_ns() < end; n++) {
        CHECK_EQ(weft_submit(rt, count_piece, NULL), 0);
        CHECK(comes_to(n));
        for (volatile unsigned i = n * 7 % 1500; i > 0; i--) {
        }
    }
    CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
}

enum { PIECES = 64 };
static struct {
    int order[PIECES], count;
    weft_runtime *rt;
    atomic_bool submitted;
} line;

static int stand_in_line(void *arg) {
    line.order[line.count++] = (int)(intptr_t)arg;
    return 0;
}

static void *submit_all(void *arg) {
    (void)arg;
    for (intptr_t i = 0; i < PIECES; i++) {
        CHECK_EQ(weft_submit(line.rt, stand_in_line, (void *)i), 0);
    }
    atomic_store(&line.submitted, true);
    return NULL;
}

/* They come while the only P computes, so that it finds them all at once. */
static int submitted_while_busy(void *arg) {
    (void)arg;
    pthread_t t;
    line.rt = weft_current();
    CHECK_EQ(pthread_create(&t, NULL, submit_all, NULL), 0);
    BUSY_UNTIL(atomic_load(&line.submitted));
    pthread_join(t, NULL);
    while (line.count < PIECES) {
        weft_yield();
    }
    for (int i = 0; i < PIECES; i++) {
        CHECK_EQ(line.order[i], i);
    }
    return 0;
}

TEST(canary_sched, work_from_outside_runs_in_its_order) { run_on(1, submitted_while_busy); }

/* ---- as many Ms as there is work for ---- */

enum { MEETING = 4 };
static atomic_int there;

static int meet(void *arg) {
    (void)arg;
    atomic_fetch_add(&there, 1);
    BUSY_UNTIL(atomic_load(&there) >= MEETING);
    return 0;
}

/* All are there in one go, so one M is woken for all: it must see to the others. */
static int meetings(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        weft_waitgroup w = WEFT_WAITGROUP_INIT;
        atomic_store(&there, 0);
        BUSY_UNTIL(atomic_load(&weft_current()->npidle) == MEETING - 1);
        for (int k = 1; k < MEETING; k++) {
            CHECK_EQ(weft_waitgroup_go(&w, meet, NULL), 0);
        }
        meet(NULL);
        weft_waitgroup_wait(&w);
    }
    return 0;
}

TEST(canary_sched, who_finds_work_wakes_another_for_the_rest) { run_on(MEETING, meetings); }

/* ---- fairness ---- */

struct talk {
    weft_chan *a, *b;
};

static int talker(void *arg) {
    struct talk *t = arg;
    char x = 0;
    while (weft_chan_send(t->a, &x) == 0 && weft_chan_recv(t->b, &x) == 0) {
    }
    return 0;
}

static int answerer(void *arg) {
    struct talk *t = arg;
    char x;
    while (weft_chan_recv(t->a, &x) == 0 && weft_chan_send(t->b, &x) == 0) {
    }
    return 0;
}

static int pair_and_yielder(void *arg) {
    (void)arg;
    struct talk t;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_chan_new(&t.a, 1, 0), 0);
    CHECK_EQ(weft_chan_new(&t.b, 1, 0), 0);
    CHECK_EQ(weft_waitgroup_go(&w, talker, &t), 0);
    CHECK_EQ(weft_waitgroup_go(&w, answerer, &t), 0);
    for (int i = 0; i < 100; i++) {
        weft_yield(); /* at the ring's tail, while the two are next in line by turns */
    }
    CHECK_EQ(weft_chan_close(t.a), 0);
    CHECK_EQ(weft_chan_close(t.b), 0);
    weft_waitgroup_wait(&w);
    weft_chan_unref(t.a);
    weft_chan_unref(t.b);
    return 0;
}

TEST_IN(canary_sched, a_pair_that_talks_leaves_the_ring_its_turn, 5) {
    run_on(1, pair_and_yielder);
}

/* ---- time ---- */

static int sleep_after_computing(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) {
        int64_t until = clock_ns() + 5 * WEFT_MILLISECOND;
        while (clock_ns() < until) {
        }
        weft_time began = weft_now();
        CHECK_EQ(weft_sleep(2 * WEFT_MILLISECOND), 0);
        CHECK_GE(weft_time_sub(weft_now(), began), 2 * WEFT_MILLISECOND);
    }
    return 0;
}

TEST(canary_sched, sleep_after_computing_is_not_early) { run_on(1, sleep_after_computing); }

static atomic_bool fired;

static int fire(void *arg) {
    (void)arg;
    atomic_store(&fired, true);
    return 0;
}

/* Somebody sleeps in the poller until a far time. Then a timer comes that is due soon, from a P that
   computes on: the sleeper alone can run it. */
static int earlier_timer(void *arg) {
    (void)arg;
    weft__r *r = weft_current();
    weft_timer *far;
    CHECK_EQ(weft_after_func(&far, 1000 * WEFT_SECOND, fire, NULL, NULL), 0);
    for (int i = 0; i < 5; i++) {
        atomic_store(&fired, false);
        weft_sleep(WEFT_MILLISECOND);
        BUSY_UNTIL(atomic_load(&r->poll_until) > clock_ns() + 100 * WEFT_SECOND);
        CHECK_EQ(weft_after_func(NULL, WEFT_MILLISECOND, fire, NULL, NULL), 0);
        BUSY_UNTIL(atomic_load(&fired));
    }
    CHECK(weft_timer_stop(far));
    weft_timer_free(far);
    return 0;
}

/* Without handoff: there sysmon sees late timers, a millisecond later. */
TEST(canary_sched, earlier_timer_wakes_who_sleeps_for_a_later_one) {
    weft_config c = config_of(2);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(earlier_timer, NULL, &c, NULL), 0);
}

/* ---- waits and who ends them ---- */

static int receive_for_ever(void *arg) {
    char x;
    CHECK_EQ(weft_chan_recv(arg, &x), -ECANCELED);
    return 0;
}

TEST(canary_sched, stop_ends_a_wait_without_a_time) {
    weft_runtime *rt;
    weft_chan *c;
    weft_config cfg = config_of(2);
    CHECK_EQ(weft_chan_new(&c, 1, 0), 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, receive_for_ever, c), 0);
    BUSY_UNTIL(waiting(rt) == 1);
    CHECK_EQ(weft_stop(rt, (weft_duration)(3 * test_slack() * WEFT_SECOND)), 0);
    weft_chan_unref(c);
}

static weft_mutex lock = WEFT_MUTEX_INIT;

static int lock_once(void *arg) {
    weft_mutex_lock(&lock);
    weft_mutex_unlock(&lock);
    weft_event_set(arg);
    return 0;
}

static int unlock_for_another(void *arg) {
    (void)arg;
    weft_event done = WEFT_EVENT_INIT;
    weft_mutex_lock(&lock);
    CHECK_EQ(weft_go(lock_once, &done), 0);
    while (waiting(NULL) != 1) {
        weft_yield();
    }
    weft_mutex_unlock(&lock);
    CHECK_EQ(weft_event_wait_until(&done, patience()), 0);
    return 0;
}

TEST(canary_sched, unlock_wakes_who_waits) { run_on(1, unlock_for_another); }

static int wait_for_event(void *arg) {
    weft_event_wait(arg);
    return 0;
}

static int set_for_all(void *arg) {
    (void)arg;
    static weft_event e = WEFT_EVENT_INIT;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, wait_for_event, &e), 0);
    }
    while (waiting(NULL) != 3) {
        weft_yield();
    }
    weft_event_set(&e);
    CHECK_EQ(weft_waitgroup_wait_until(&w, patience()), 0);
    return 0;
}

TEST(canary_sched, event_wakes_all_who_wait) { run_on(1, set_for_all); }

/* A frame's memory is used again as soon as the call has returned. */
__attribute__((noinline)) static void reuse_stack(void) {
    volatile char frame[8192];
    for (size_t i = 0; i < sizeof frame; i++) {
        frame[i] = 0x5a;
    }
}

static int give_up_receiving(void *arg) {
    (void)arg;
    weft_chan *c;
    uint64_t v = 7;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 0), 0);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_chan_recv_until(c, &v, weft_in(100 * WEFT_MICROSECOND)), -ETIMEDOUT);
        reuse_stack();
        CHECK_EQ(weft_chan_try_send(c, &v), -EAGAIN);
        CHECK_EQ(weft_chan_send_until(c, &v, weft_in(100 * WEFT_MICROSECOND)), -ETIMEDOUT);
        reuse_stack();
        CHECK_EQ(weft_chan_try_recv(c, &v), -EAGAIN);
    }
    CHECK_EQ(v, 7);
    weft_chan_unref(c);
    return 0;
}

TEST(canary_sched, who_gave_up_is_in_no_queue) { run_on(1, give_up_receiving); }

/* A claimer that comes a wait too late. No source of today keeps a waiter so long, but a stop may hold on
   to the word it has read for as long as its thread is put aside. */
TEST(canary_sched, claim_meant_for_an_earlier_wait_loses) {
    weft__g g = {0};
    uint64_t first = weft__park_begin(&g, true);
    CHECK_EQ(weft__claim(&g, first, WEFT__BY_SOURCE), WEFT__WON);
    CHECK_EQ(weft__claim(&g, first, WEFT__BY_DEADLINE), WEFT__LOST);
    uint64_t second = weft__park_begin(&g, false);
    CHECK_NE(first, second);
    CHECK_EQ(weft__claim(&g, first, WEFT__BY_CANCEL), WEFT__LOST);
    CHECK_EQ(weft__claim(&g, second, WEFT__BY_SOURCE), WEFT__WON);
}
