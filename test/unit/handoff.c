/* unit/handoff.c: a green thread that calls something long keeps its thread and loses its P. What each kind
 * of call then does, and what the two who meet over a P owe each other.
 *
 * Where a test takes the P itself, the runtime has WEFT_EXCLUSIVE: its sysmon takes none, and there is
 * one retaker as there should be.
 */
#include "world.h"

#include "offers.h"

#include <poll.h>
#include <unistd.h>

static int64_t patience_ns(void) { return (int64_t)(3e9 * test_slack()); }
static weft_time patience(void) { return weft_in((weft_duration)patience_ns()); }

/* Keeps its thread, and weft knows nothing of it, until cond; not for ever. */
#define HELD_UNTIL(cond)                                                                           \
    do {                                                                                           \
        int64_t held_end = clock_ns() + patience_ns();                                             \
        while (!(cond)) {                                                                          \
            CHECK_LT(clock_ns(), held_end);                                                        \
            nanosleep(&(struct timespec){.tv_nsec = 20 * 1000}, NULL);                             \
        }                                                                                          \
    } while (0)

static void run_as(int procs, unsigned flags, weft_fn app) {
    weft_config c = config_of(procs);
    c.flags |= flags;
    CHECK_EQ(weft_run(app, NULL, &c, NULL), 0);
}

static weft_stats stats_now(void) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    return s;
}

static int set_flag(void *arg) {
    atomic_store((atomic_bool *)arg, true);
    return 0;
}

/* ---- taken by sysmon ---- */

static int write_byte(void *arg) {
    CHECK_EQ(write(*(int *)arg, "x", 1), 1);
    return 0;
}

/* Every P has one that reads what nobody has written yet. */
struct reader {
    int ends[2];
};

static int read_byte(void *arg) {
    struct reader *r = arg;
    struct pollfd p = {.fd = r->ends[0], .events = POLLIN};
    CHECK_EQ(poll(&p, 1, (int)(patience_ns() / 1000000)), 1);
    return 0;
}

PLAYED_GREEN(handoff, who_blocks_loses_his_p) {
    enum { MOST = 4 };
    struct reader r[MOST];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    uint64_t before = stats_now().handoff_blocked;
    for (int i = 0; i < MOST; i++) {
        CHECK_EQ(pipe(r[i].ends), 0);
        CHECK_EQ(weft_waitgroup_go(&w, read_byte, &r[i]), 0);
    }
    while (stats_now().gs_created < MOST + 1 || stats_now().gs_runnable > 0) {
        weft_yield(); /* all of them are in their poll, and this G has a P all the same */
    }
    for (int i = 0; i < MOST; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, write_byte, &r[i].ends[1]), 0);
    }
    CHECK_EQ(weft_waitgroup_wait_until(&w, patience()), 0);
    CHECK_GT(stats_now().handoff_blocked, before);
    for (int i = 0; i < MOST; i++) {
        close(r[i].ends[0]);
        close(r[i].ends[1]);
    }
}

/* By his clock who waits for a CPU meanwhile looks blocked. */
static uint64_t taken_from_computing(void) {
    weft_stats s = stats_now();
    return s.handoff_computing + (offers_thread_state() ? 0 : s.handoff_blocked);
}

PLAYED_GREEN(handoff, who_computes_loses_his_p) {
    atomic_bool ran = false;
    int procs = weft_current()->nprocs;
    uint64_t before = taken_from_computing();
    CHECK_EQ(weft_go(set_flag, &ran), 0);
    int64_t end = clock_ns() + patience_ns();
    while (!atomic_load(&ran) || (procs == 1 && taken_from_computing() == before)) {
        CHECK_LT(clock_ns(), end);
        for (volatile int i = 0; i < 1000000; i++) {
        }
    }
}

static int block_alone(void *arg) {
    (void)arg;
    struct reader r;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(pipe(r.ends), 0);
    CHECK_EQ(weft_waitgroup_go(&w, write_byte, &r.ends[1]), 0);
    read_byte(&r);
    weft_waitgroup_wait(&w);
    close(r.ends[0]);
    close(r.ends[1]);
    return 0;
}

TEST(handoff, who_blocks_waits_for_what_lies_behind_him) { run_as(1, 0, block_alone); }

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Who computes has 10 ms of his thread's time before his P is asked back; a late timer does not wait for
   that. The clock is the thread's own, so another that has the CPU can make one try long, not all. */
static int timer_behind_computing(void *arg) {
    (void)arg;
    int64_t least = INT64_MAX;
    int64_t end = clock_ns() + 2 * patience_ns();
    while (least > 8 * WEFT_MILLISECOND) {
        atomic_bool fired = false;
        CHECK_LT(clock_ns(), end);
        CHECK_EQ(weft_after_func(NULL, 200 * WEFT_MICROSECOND, set_flag, &fired, NULL), 0);
        int64_t began = cpu_ns();
        while (!atomic_load(&fired)) {
            CHECK_LT(clock_ns(), end);
        }
        int64_t took = cpu_ns() - began;
        least = took < least ? took : least;
        weft_sleep(WEFT_MILLISECOND);
    }
    return 0;
}

TEST_IN(handoff, late_timer_waits_for_no_slice, 30) { run_as(1, 0, timer_behind_computing); }

/* ---- without a P ---- */

/* From here, and until a call that may park, this G runs without one. */
static weft__m *give_up_p(void) {
    weft_block_begin();
    weft__m *m = weft__m_self();
    CHECK(m->p == NULL);
    return m;
}

static void has_p_again(void) {
    weft_block_end();
    CHECK(weft__m_self()->p != NULL);
    CHECK_EQ(atomic_load(&weft__m_self()->incall), 0);
}

PLAYED_GREEN(handoff, hint_gives_the_p_away) {
    uint64_t before = stats_now().handoff_hint;
    for (int i = 0; i < 20; i++) {
        atomic_bool ran = false;
        CHECK_EQ(weft_go(set_flag, &ran), 0);
        give_up_p();
        HELD_UNTIL(atomic_load(&ran));
        weft_block_begin(); /* once more is nothing */
        has_p_again();
        weft_block_end();
    }
    CHECK_GT(stats_now().handoff_hint,
             before); /* sysmon may have been there first, but not always */
}

static int receive_one(void *arg) {
    int v;
    CHECK_EQ(weft_chan_recv(arg, &v), 0);
    CHECK_EQ(v, 7);
    return 0;
}

static weft_mutex lock = WEFT_MUTEX_INIT;

static int lock_once(void *arg) {
    (void)arg;
    weft_mutex_lock(&lock);
    weft_mutex_unlock(&lock);
    return 0;
}

static int wait_event(void *arg) {
    weft_event_wait(arg);
    return 0;
}

/* All at once, on one thread, under a lock that belongs to the thread. */
PLAYED_GREEN(handoff, calls_that_never_park_stay_on_their_thread) {
    pthread_mutexattr_t attr;
    pthread_mutex_t held;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&held, &attr);
    for (int i = 0; i < 10; i++) {
        weft_chan *c;
        weft_timer *t;
        int v = 7;
        weft_event e = WEFT_EVENT_INIT;
        weft_waitgroup w = WEFT_WAITGROUP_INIT;
        atomic_bool ran = false, fired = false;
        CHECK_EQ(weft_chan_new(&c, sizeof v, 0), 0);
        CHECK_EQ(weft_after_func(&t, 1000 * WEFT_SECOND, set_flag, &fired, NULL), 0);
        weft_mutex_lock(&lock);
        CHECK_EQ(weft_waitgroup_go(&w, receive_one, c), 0);
        CHECK_EQ(weft_waitgroup_go(&w, lock_once, NULL), 0);
        CHECK_EQ(weft_waitgroup_go(&w, wait_event, &e), 0);
        while (stats_now().gs_waiting < 3) {
            weft_yield();
        }
        pthread_t self = pthread_self();
        CHECK_EQ(pthread_mutex_lock(&held), 0);
        weft__m *m = give_up_p();
        CHECK_EQ(weft_proc_self(), -1);
        CHECK_EQ(weft_chan_try_send(c, &v), 0);
        weft_mutex_unlock(&lock);
        weft_event_set(&e);
        CHECK(weft_timer_stop(t));
        weft_timer_free(t);
        CHECK_EQ(weft_go(set_flag, &ran), 0);
        CHECK(weft__m_self() == m && m->p == NULL && pthread_equal(self, pthread_self()));
        CHECK(atomic_load(&m->ticket) & WEFT__REVOKE); /* H4 */
        CHECK_EQ(pthread_mutex_unlock(&held), 0);
        HELD_UNTIL(atomic_load(&ran)); /* they are run while this thread stays where it is */
        CHECK_EQ(weft_waitgroup_wait_until(&w, patience()), 0);
        CHECK(weft__m_self()->p != NULL);
        CHECK(!atomic_load(&fired));
        weft_chan_unref(c);
    }
    pthread_mutex_destroy(&held);
    pthread_mutexattr_destroy(&attr);
}

static int never_park_then_may(void *arg) {
    (void)arg;
    weft_event e = WEFT_EVENT_INIT;
    for (int i = 0; i < 100; i++) {
        give_up_p();
        weft_event_set(&e);
        CHECK_EQ(weft_proc_self(), -1);
        weft_yield();
        CHECK(weft__m_self()->p != NULL);
        CHECK_EQ(atomic_load(&weft__m_self()->incall), 0);
    }
    return 0;
}

TEST(handoff, may_park_after_a_call_that_does_not_1) { run_as(1, 0, never_park_then_may); }
TEST(handoff, may_park_after_a_call_that_does_not_2) { run_as(2, 0, never_park_then_may); }

static int return_without_p(void *arg) {
    (void)arg;
    give_up_p();
    return 0;
}

static int exit_without_p(void *arg) {
    (void)arg;
    give_up_p();
    weft_exit(0);
}

PLAYED_GREEN(handoff, ends_without_a_p) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, i % 2 ? return_without_p : exit_without_p, NULL), 0);
    }
    CHECK_EQ(weft_waitgroup_wait_until(&w, patience()), 0);
    int64_t end = clock_ns() + patience_ns();
    do { /* the last is done before it has ended; this G has a P, so it is not counted itself */
        CHECK_LT(clock_ns(), end);
        weft_yield();
    } while (atomic_load(&weft_current()->nstrays) != 0);
}

/* Has the only P until somebody waits for it in the queue. */
static int keep_p(void *arg) {
    atomic_store((atomic_bool *)arg, true);
    int64_t end = clock_ns() + patience_ns();
    while (atomic_load(&weft_current()->inject) == NULL) {
        CHECK_LT(clock_ns(), end);
        sched_yield();
    }
    return 0;
}

/* The only P is in use: who wants one again waits in the queue. His own thread sleeps by then, so the other
   one runs him. */
static int queues_and_migrates(void *arg) {
    (void)arg;
    int64_t end = clock_ns() + patience_ns();
    for (int migrated = 0; migrated < 20;) {
        atomic_bool kept = false;
        CHECK_LT(clock_ns(), end);
        CHECK_EQ(weft_go(keep_p, &kept), 0);
        weft__m *m = give_up_p();
        HELD_UNTIL(atomic_load(&kept));
        weft_block_end();
        weft__m *now = weft__m_self();
        CHECK(now->p == weft_current()->ps[0]);
        CHECK_EQ(atomic_load(&now->incall), 0);
        migrated += now != m;
    }
    return 0;
}

TEST(handoff, comes_back_by_way_of_the_queue) { run_as(1, 0, queues_and_migrates); }

/* ---- who gives a P up looks again ---- */

static struct {
    weft_runtime *rt;
    atomic_int turn, served;
} late;

/* One piece a turn, now at once, now a little later. */
static void *submit_in_turn(void *arg) {
    atomic_bool *ran = arg;
    for (int n = 1; n <= 100; n++) {
        HELD_UNTIL(atomic_load(&late.turn) >= n);
        for (volatile int i = n % 4 * 20000; i > 0; i--) {
        }
        CHECK_EQ(weft_submit(late.rt, set_flag, ran), 0);
    }
    return NULL;
}

/* The only P goes idle for want of work just as a piece of it comes. No timer and no descriptor, for whose
   sake somebody would look about. */
static int work_comes_meanwhile(void *arg) {
    (void)arg;
    static atomic_bool ran;
    pthread_t t;
    late.rt = weft_current();
    CHECK_EQ(pthread_create(&t, NULL, submit_in_turn, (void *)&ran), 0);
    for (int n = 1; n <= 100; n++) {
        atomic_store(&ran, false);
        atomic_store(&late.turn, n);
        weft_block_begin();
        HELD_UNTIL(atomic_load(&ran));
        weft_block_end();
    }
    pthread_join(t, NULL);
    return 0;
}

TEST(handoff, who_hands_a_p_off_looks_again) { run_as(1, 0, work_comes_meanwhile); }

/* ---- asked back ---- */

static void ask_back(weft__m *m) {
    atomic_fetch_or(&m->ticket, WEFT__REVOKE);
    weft__fence_heavy();
}

/* A look that finds the M inside leaves the request standing, so that a later one needs no new one. */
static int asked_while_inside(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) {
        weft__m *m = weft__enter();
        weft__p *p = m->p;
        CHECK(p != NULL);
        ask_back(m);
        CHECK(!weft__retake(m->r, p, m));
        CHECK(m->p == p);
        CHECK(weft__enter_nopark() == m); /* as from a callback: the outer call holds the P */
        CHECK(m->p == p);
        weft__leave(m);
        CHECK(weft__enter() == m);
        CHECK(m->p == p);
        weft__leave(m);
        weft__leave(m);
        atomic_store(&m->r->retaking, 1);
        CHECK(weft__retake(m->r, p, m)); /* in user code, and not asked again */
        weft__handoffp(m->r, p);
        atomic_store(&m->r->retaking, 0);
        CHECK(m->p == NULL);
        weft_yield();
        CHECK(weft__m_self()->p != NULL);
        CHECK_EQ(atomic_load(&weft__m_self()->ticket), WEFT__PEACE);
    }
    return 0;
}

TEST(handoff, request_outlives_a_look_1) { run_as(1, WEFT_EXCLUSIVE, asked_while_inside); }
TEST(handoff, request_outlives_a_look_2) { run_as(2, WEFT_EXCLUSIVE, asked_while_inside); }

/* The P that was meant is another's by now, or nobody's. */
static int seen_from_afar(void *arg) {
    (void)arg;
    weft__r *r = weft_current();
    weft__m *m = weft__m_self();
    weft__p *own = m->p, *other = r->ps[own == r->ps[0] ? 1 : 0];
    ask_back(m);
    CHECK(!weft__retake(r, other, m));
    CHECK(m->p == own);
    CHECK(atomic_load(&own->m) == m);
    weft_yield();
    return 0;
}

TEST(handoff, another_p_is_not_taken) { run_as(2, WEFT_EXCLUSIVE, seen_from_afar); }

/* Asked back all the time by another thread, which takes what it finds in user code. */
static struct {
    weft__r *r;
    atomic_bool stop;
    atomic_int took;
} retaker;

static void *take_all_the_time(void *arg) {
    (void)arg;
    weft__r *r = retaker.r;
    while (!atomic_load(&retaker.stop)) {
        for (int i = 0; i < r->nprocs; i++) {
            weft__p *p = r->ps[i];
            weft__m *m = atomic_load_explicit(&p->m, memory_order_acquire);
            if (m == NULL) {
                continue;
            }
            atomic_store(&r->retaking, 1);
            ask_back(m);
            if (weft__retake(r, p, m)) {
                atomic_fetch_add(&retaker.took, 1);
                weft__handoffp(r, p);
            }
            atomic_store(&r->retaking, 0);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000}, NULL);
    }
    return NULL;
}

/* Inside a call that may park the P is this M's, and stays so. */
static void hold_inside(int turns) {
    weft__m *m = weft__enter();
    weft__p *p = m->p;
    CHECK(p != NULL);
    for (volatile int i = turns; i > 0; i--) {
    }
    CHECK(m->p == p);
    CHECK(atomic_load(&p->m) == m);
    weft__leave(m);
}

static int call_all_the_time(void *arg) {
    int64_t end = clock_ns() + WEFT_SECOND;
    unsigned seed = (unsigned)(intptr_t)arg;
    while (clock_ns() < end) {
        seed = seed * 1103515245 + 12345;
        for (volatile unsigned i = seed >> 16 & 8191; i > 0; i--) {
        }
        hold_inside((int)(seed >> 20 & 1023));
    }
    return 0;
}

static int asked_all_the_time(void *arg) {
    (void)arg;
    pthread_t t;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    retaker.r = weft_current();
    atomic_store(&retaker.stop, false);
    atomic_store(&retaker.took, 0);
    CHECK_EQ(pthread_create(&t, NULL, take_all_the_time, NULL), 0);
    for (intptr_t i = 0; i < 3; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, call_all_the_time, (void *)(i * 7919 + 1)), 0);
    }
    weft_waitgroup_wait(&w);
    atomic_store(&retaker.stop, true);
    pthread_join(t, NULL);
    CHECK_GT(atomic_load(&retaker.took), 0);
    return 0;
}

TEST(handoff, who_comes_back_waits_for_the_retaker_1) {
    run_as(1, WEFT_EXCLUSIVE, asked_all_the_time);
}
TEST(handoff, who_comes_back_waits_for_the_retaker_2) {
    run_as(2, WEFT_EXCLUSIVE, asked_all_the_time);
}

static int yield_until(void *arg) {
    while (!atomic_load((atomic_bool *)arg)) {
        weft_yield();
    }
    return 0;
}

/* sysmon's own look and the end of a short block, which meet again and again. Another waits for the P all
   the time: else sysmon would look seldom. Short is about as long as sysmon takes to know a block. */
static int blocks_shortly(void *arg) {
    (void)arg;
    unsigned shortest = offers_thread_state() ? 50 : 1200,
             range = offers_thread_state() ? 300 : 800;
    atomic_bool over = false;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_go(&w, yield_until, &over), 0);
    int64_t end = clock_ns() + 2 * WEFT_SECOND;
    uint64_t before = stats_now().handoff_blocked;
    for (unsigned n = 0; clock_ns() < end; n++) {
        nanosleep(&(struct timespec){.tv_nsec = (shortest + n * 37 % range) * 1000}, NULL);
        if (n % 2 == 0) {
            weft_yield();
        }
        hold_inside(500);
    }
    atomic_store(&over, true);
    weft_waitgroup_wait(&w);
    CHECK_GT(stats_now().handoff_blocked, before);
    return 0;
}

TEST(handoff, short_blocks_meet_sysmon) { run_as(1, 0, blocks_shortly); }

/* ---- what bounds it ---- */

static int computes_and_blocks(void *arg) {
    int64_t end = clock_ns() + 40 * WEFT_MILLISECOND;
    while (clock_ns() < end) {
        CHECK(!atomic_load((atomic_bool *)arg));
    }
    nanosleep(&(struct timespec){.tv_nsec = 40 * 1000000}, NULL);
    CHECK(!atomic_load((atomic_bool *)arg));
    weft_block_begin(); /* no more than a word here */
    CHECK(weft__m_self()->p != NULL);
    CHECK(!atomic_load((atomic_bool *)arg));
    return 0;
}

static int exclusive(void *arg) {
    (void)arg;
    static atomic_bool other;
    CHECK_EQ(weft_go(set_flag, (void *)&other), 0);
    computes_and_blocks((void *)&other);
    weft_stats s = stats_now();
    CHECK_EQ(s.handoff_blocked + s.handoff_computing + s.handoff_hint, 0);
    return 0;
}

TEST(handoff, exclusive_takes_nothing) { run_as(1, WEFT_EXCLUSIVE, exclusive); }

enum { HELPERS = 2 }; /* sysmon and the maker, which max_threads does not count */

static struct {
    weft_runtime *rt;
    int ends[2];
    atomic_int blocked, ended;
} bound;

static int block_on_pipe(void *arg) {
    (void)arg;
    char byte;
    atomic_fetch_add(&bound.blocked, 1);
    CHECK_EQ(read(bound.ends[0], &byte, 1), 1);
    atomic_fetch_add(&bound.ended, 1);
    return 0;
}

static uint64_t threads_of(weft_runtime *rt) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    return s.threads;
}

static void block_many(int procs, int max_threads, int gs, int at_once) {
    weft_config c = config_of(procs);
    c.max_threads = max_threads;
    CHECK_EQ(pipe(bound.ends), 0);
    CHECK_EQ(weft_start(&bound.rt, &c), 0);
    for (int i = 0; i < gs; i++) {
        CHECK_EQ(weft_submit(bound.rt, block_on_pipe, NULL), 0);
    }
    HELD_UNTIL(atomic_load(&bound.blocked) == at_once);
}

static void unblock(int gs) {
    for (int i = 0; i < gs; i++) {
        CHECK_EQ(write(bound.ends[1], "x", 1), 1);
    }
    HELD_UNTIL(atomic_load(&bound.ended) == gs);
}

TEST(handoff, all_threads_blocked_at_the_bound) {
    block_many(1, 3, 8, 3);
    HELD_UNTIL(threads_of(bound.rt) >= 3 + HELPERS);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL); /* a fourth would come now */
    CHECK_EQ(threads_of(bound.rt), 3 + HELPERS);
    CHECK_EQ(atomic_load(&bound.blocked), 3);
    unblock(8);
    CHECK_LE(threads_of(bound.rt), 3 + HELPERS);
    CHECK_EQ(weft_stop(bound.rt, WEFT_SECOND * 20), 0);
}

TEST_IN(handoff, threads_that_nobody_needs_end, 40) {
    block_many(1, 0, 12, 12);
    HELD_UNTIL(threads_of(bound.rt) >= 12 + HELPERS); /* one is counted once it runs */
    unblock(12);
    int64_t end = clock_ns() + 4 * patience_ns();
    while (threads_of(bound.rt) > 3 + HELPERS) {
        CHECK_LT(clock_ns(), end);
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000000}, NULL);
    }
    CHECK_EQ(weft_stop(bound.rt, WEFT_SECOND * 20), 0);
}

/* ---- sysmon at rest ---- */

static int64_t cpu_of(pthread_t t) {
    clockid_t clock;
    struct timespec now;
    CHECK_EQ(pthread_getcpuclockid(t, &clock), 0);
    CHECK_EQ(clock_gettime(clock, &now), 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

TEST(handoff, sysmon_sleeps_for_ever_and_is_woken) {
    weft_config c = config_of(2);
    CHECK_EQ(pipe(bound.ends), 0);
    CHECK_EQ(weft_start(&bound.rt, &c), 0);
    for (int i = 0; i < 3; i++) {
        HELD_UNTIL(atomic_load(&bound.rt->sysmon_sleep) == WEFT__SYSMON_FOR_EVER);
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000000}, NULL); /* on its way to the futex */
        int64_t before = cpu_of(bound.rt->sysmon);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000}, NULL);
        CHECK_EQ(atomic_load(&bound.rt->sysmon_sleep), WEFT__SYSMON_FOR_EVER);
        CHECK_LT(cpu_of(bound.rt->sysmon) - before, WEFT_MILLISECOND / 10);
        /* All Ps are blocked: it must be there again. */
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(weft_submit(bound.rt, block_on_pipe, NULL), 0);
        }
        HELD_UNTIL(atomic_load(&bound.blocked) == 3 * (i + 1));
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(write(bound.ends[1], "x", 1), 1);
        }
        HELD_UNTIL(atomic_load(&bound.ended) == 3 * (i + 1));
    }
    CHECK_EQ(weft_stop(bound.rt, WEFT_SECOND * 20), 0);
}

/* ---- at a stop ---- */

static int blocks_for_a_while(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(intptr_t)arg * 100 * 1000}, NULL);
    int err = weft_sleep(WEFT_SECOND * 1000);
    CHECK(err == -ECANCELED);
    return 0;
}

static void stop_amid_handoffs(int procs) {
    for (int i = 0; i < 20; i++) {
        weft_runtime *rt;
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&rt, &c), 0);
        for (intptr_t k = 1; k < 16; k++) {
            CHECK_EQ(weft_submit(rt, blocks_for_a_while, (void *)k), 0);
        }
        nanosleep(&(struct timespec){.tv_nsec = i * 100 * 1000}, NULL);
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
    }
}

TEST(handoff, stop_amid_handoffs_1) { stop_amid_handoffs(1); }
TEST(handoff, stop_amid_handoffs_2) { stop_amid_handoffs(2); }
TEST(handoff, stop_amid_handoffs_4) { stop_amid_handoffs(4); }
