/* unit/handoff_calls.c: the thread keeps the green thread, and loses the P. */
#include <sched.h>
#include <time.h>

#include "offers.h"
#include "test.h"
#include "unit/world.h"

static void thread_sleep(int64_t ns) {
    struct timespec t = {ns / WEFT_SECOND, ns % WEFT_SECOND};
    nanosleep(&t, NULL);
}

static weft_stats read_stats(void) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    return s;
}

static atomic_int ran;

static int count_one(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
    return 0;
}

/* ---- others run ---- */

/* Goes on only once the others have run: with a P that stays, this hangs. A look at the state finds one
   that sleeps again and again; to be found by his clock he sleeps for longer than three looks take. */
static void block_until(int n) {
    int64_t turn = offers_thread_state() ? 20 * WEFT_MICROSECOND : 5 * WEFT_MILLISECOND;
    while (atomic_load(&ran) < n) {
        thread_sleep(turn);
    }
}

static void compute_until(int n) {
    while (atomic_load(&ran) < n) {
    }
}

static int hold(void *arg) {
    void (*until)(int);
    memcpy(&until, arg, sizeof until);
    until(1000000);
    return 0;
}

static void hold_all_ps(void (*until)(int)) {
    weft_waitgroup holders = WEFT_WAITGROUP_INIT;
    atomic_store(&ran, 0);
    for (int i = 0; i < weft_procs(NULL) + 1; i++) {
        CHECK_EQ(weft_waitgroup_go(&holders, hold, &until), 0);
    }
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_go(count_one, NULL), 0);
    }
    until(10);
    CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    atomic_store(&ran, 1000000);
    weft_waitgroup_wait(&holders);
}

/* By his clock who waits for a CPU meanwhile looks blocked. */
static uint64_t taken_from_computing(void) {
    weft_stats s = read_stats();
    return s.handoff_computing + (offers_thread_state() ? 0 : s.handoff_blocked);
}

PLAYED_GREEN(handoff_calls, who_blocks_or_computes_keeps_nobody) {
    uint64_t before = read_stats().handoff_blocked;
    hold_all_ps(block_until);
    CHECK_GT(read_stats().handoff_blocked, before);
    before = taken_from_computing();
    hold_all_ps(compute_until);
    CHECK_GT(taken_from_computing(), before);
    CHECK_EQ(read_stats().handoff_hint, 0);
}

PLAYED_GREEN(handoff_calls, block_begin_gives_the_p_away_at_once) {
    for (int i = 1; i <= 20; i++) {
        atomic_store(&ran, 0);
        CHECK_EQ(weft_go(count_one, NULL), 0);
        weft_block_begin();
        weft_block_begin(); /* twice is harmless */
        compute_until(1);
        CHECK_EQ(weft_proc_self(), -1);
        weft_block_end();
        CHECK_GE(weft_proc_self(), 0);
        weft_stats now = read_stats(); /* sysmon may have been quicker than the hint */
        CHECK_LE(now.handoff_hint, i);
        CHECK_GE(now.handoff_hint + now.handoff_blocked + now.handoff_computing, i);
    }
    CHECK_GT(read_stats().handoff_hint, 0);
    weft_block_end(); /* without a begin, too */
}

static int exclusive(void *arg) {
    (void)arg;
    atomic_store(&ran, 0);
    CHECK_EQ(weft_go(count_one, NULL), 0);
    thread_sleep(30 * WEFT_MILLISECOND);
    weft_block_begin();
    thread_sleep(5 * WEFT_MILLISECOND);
    weft_block_end();
    CHECK_EQ(atomic_load(&ran), 0);
    weft_yield();
    CHECK_EQ(atomic_load(&ran), 1);
    CHECK_EQ(read_stats().handoff_blocked, 0);
    return 0;
}

TEST(handoff_calls, exclusive_is_one_at_a_time) {
    weft_config c = config_of(1);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(exclusive, NULL, &c, NULL), 0);
}

/* ---- without a P ---- */

static void lose_p(void) {
    weft_block_begin();
    CHECK_EQ(weft_proc_self(), -1);
}

static int receive(void *arg) {
    int v = 0;
    CHECK_EQ(weft_chan_recv(arg, &v), 0);
    CHECK_EQ(v, 7);
    return count_one(NULL);
}

static int lock_and_go(void *arg) {
    weft_mutex_lock(arg);
    weft_mutex_unlock(arg);
    return count_one(NULL);
}

static int await_event(void *arg) {
    weft_event_wait(arg);
    return count_one(NULL);
}

static void wait_until_waiting(uint64_t n) {
    while (read_stats().gs_waiting != n) {
        weft_yield();
    }
}

/* Calls that never park do their work from a thread without a P, and stay there; the next that may park
   has one again. */
static void no_p(void) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    weft_mutex mutex = WEFT_MUTEX_INIT;
    weft_event event = WEFT_EVENT_INIT;
    weft_chan *c;
    weft_timer *t;
    int v = 7;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 0), 0);
    for (int round = 0; round < 20; round++) {
        atomic_store(&ran, 0);
        weft_event_reset(&event);
        weft_mutex_lock(&mutex);
        CHECK_EQ(weft_waitgroup_go(&all, receive, c), 0);
        CHECK_EQ(weft_waitgroup_go(&all, lock_and_go, &mutex), 0);
        CHECK_EQ(weft_waitgroup_go(&all, await_event, &event), 0);
        wait_until_waiting(3);
        lose_p();
        pthread_t here = pthread_self();
        CHECK_EQ(weft_chan_try_send(c, &v), 0);
        weft_mutex_unlock(&mutex);
        weft_event_set(&event);
        CHECK_EQ(weft_waitgroup_go(&all, count_one, NULL), 0);
        CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
        CHECK(weft_timer_reset(t, 2 * WEFT_HOUR));
        CHECK(weft_timer_stop(t));
        weft_timer_free(t);
        CHECK_EQ(weft_after_func(NULL, 1, count_one, NULL, NULL), 0);
        CHECK_EQ(weft_proc_self(), -1);
        compute_until(5); /* all of it got somewhere, with no call of ours that could help */
        CHECK(pthread_equal(here, pthread_self()));
        CHECK_EQ(weft_proc_self(), -1);
        weft_waitgroup_wait(&all);
        weft_yield();
        CHECK_GE(weft_proc_self(), 0);
    }
    weft_chan_unref(c);
}

TEST(handoff_calls, without_a_p_each_call_finds_one_or_does_without) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        play(no_p, procs, PARTIES_GREEN);
    }
}

static int end_without_p(void *arg) {
    lose_p();
    if (arg != NULL) {
        weft_exit(0);
    }
    return 0;
}

PLAYED_GREEN(handoff_calls, a_body_may_end_without_a_p) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < 40; i++) {
        CHECK_EQ(weft_waitgroup_go(&all, end_without_p, (void *)(i % 2)), 0);
    }
    weft_waitgroup_wait(&all);
    CHECK_EQ(read_stats().handoff_hint, 40);
}

/* ---- sysmon ---- */

/* The P is lost, everything is idle, sysmon sleeps for ever; a call takes the P again without passing
   the scheduler, and blocks with it. */
static int back_and_blocked(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++) {
        thread_sleep(400 * WEFT_MILLISECOND);
        weft_yield();
        atomic_store(&ran, 0);
        CHECK_EQ(weft_go(count_one, NULL), 0);
        for (int64_t end = clock_ns() + 4 * WEFT_SECOND; atomic_load(&ran) == 0;) {
            thread_sleep(20 * WEFT_MICROSECOND);
            CHECK_LT(clock_ns(), end); /* for ever, if it was not seen */
        }
    }
    return 0;
}

TEST(handoff_calls, who_comes_back_and_blocks_again_is_seen) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(back_and_blocked, NULL, &c, NULL), 0);
}

/* Less than the 10 ms that would end any computation, over and over: the timer's lateness is what does.
   Not in each try, for the machine may be busy elsewhere. */
static int short_computations(void *arg) {
    int in_time = 0;
    (void)arg;
    for (int i = 0; i < 40; i++) {
        atomic_store(&ran, 0);
        CHECK_EQ(weft_after_func(NULL, WEFT_MILLISECOND, count_one, NULL, NULL), 0);
        int64_t end = clock_ns() + 6 * WEFT_MILLISECOND;
        while (clock_ns() < end && atomic_load(&ran) == 0) {
        }
        in_time += atomic_load(&ran);
        CHECK_EQ(weft_sleep(10 * WEFT_MILLISECOND), 0);
        CHECK_EQ(atomic_load(&ran), 1);
    }
    CHECK_GE(in_time, 3);
    return 0;
}

TEST(handoff_calls, a_late_timer_ends_a_short_computation) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(short_computations, NULL, &c, NULL), 0);
}

/* Threads that only blocked calls made needed are ended. */
static int block_a_while(void *arg) {
    (void)arg;
    thread_sleep(5 * WEFT_MILLISECOND);
    return 0;
}

static void wait_for_threads(weft_runtime *rt, uint64_t most) {
    weft_stats s;
    do {
        thread_sleep(WEFT_MILLISECOND);
        CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    } while (s.threads > most);
}

TEST(handoff_calls, threads_come_and_go) {
    weft_config c = config_of(2);
    weft_runtime *rt;
    weft_stats s;
    CHECK_EQ(weft_start(&rt, &c), 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 60; i++) {
            CHECK_EQ(weft_submit(rt, block_a_while, NULL), 0);
        }
        do {
            CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
        } while (s.gs_ended != s.gs_created);
        wait_for_threads(rt, 2 + 3); /* sysmon and maker; one for each P, and a spare */
    }
    CHECK_EQ(weft_stop(rt, -1), 0);
    CHECK_GT(s.threads_created, 10);
}

/* At the bound whoever has work waits for one that comes back; nobody is lost. */
static int many_block(void *arg) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    (void)arg;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_waitgroup_go(&all, block_a_while, NULL), 0);
    }
    weft_waitgroup_wait(&all);
    CHECK_LE(read_stats().threads, 4 + 2);
    return 0;
}

TEST(handoff_calls, the_bound_on_threads_holds) {
    weft_config c = config_of(2);
    c.max_threads = 4;
    CHECK_EQ(weft_run(many_block, NULL, &c, NULL), 0);
}

/* ---- inside ---- */

/* The decision itself, with an M, two Ps and a runtime of straw. */
TEST(handoff_calls, a_p_is_taken_only_from_outside) {
    weft__r *r = weft__mem_alloc_aligned(sizeof *r, WEFT__LINE);
    weft__p *mine = weft__mem_alloc_aligned(sizeof *mine, WEFT__LINE);
    weft__p *other = weft__mem_alloc_aligned(sizeof *other, WEFT__LINE);
    static weft__m m;
    memset(r, 0, sizeof *r);
    memset(mine, 0, sizeof *mine);
    memset(other, 0, sizeof *other);
    mine->r = other->r = r;
    m.p = mine;
    atomic_store(&mine->m, &m);
    for (uint32_t inside = 0; inside < 2; inside++) {
        for (int asked = 0; asked < 2; asked++) {
            for (int meant = 0; meant < 2; meant++) {
                if (inside == 0 && asked && meant) {
                    continue;
                }
                atomic_store(&m.incall, inside);
                atomic_store(&m.ticket, WEFT__PEACE | (asked ? WEFT__REVOKE : 0));
                CHECK(!weft__retake(r, meant ? mine : other, &m));
                CHECK(m.p == mine && atomic_load(&mine->m) == &m);
                CHECK_EQ(atomic_load(&m.ticket), WEFT__PEACE | (asked ? WEFT__REVOKE : 0));
            }
        }
    }
    atomic_store(&m.incall, 0);
    atomic_store(&m.ticket, WEFT__PEACE | WEFT__REVOKE);
    CHECK(weft__retake(r, mine, &m));
    CHECK(m.p == NULL && atomic_load(&mine->m) == NULL && m.lost == mine);
    CHECK_EQ(atomic_load(&m.ticket), WEFT__PEACE | WEFT__REVOKE); /* up while it has none */
    CHECK(!weft__retake(r, mine, &m));
    weft__mem_free(r, sizeof *r);
    weft__mem_free(mine, sizeof *mine);
    weft__mem_free(other, sizeof *other);
}

/* Three who start others without end, and are inside nearly all of the time, never in a call that parks:
   so sysmon asks their Ps back. One that is taken from inside is used by two, and its queue breaks. */
enum { STARTERS = 3, A_TIME = 200 };
static atomic_long started;

static int inside(void *arg) {
    (void)arg;
    int64_t end = clock_ns() + 1500 * WEFT_MILLISECOND;
    while (clock_ns() < end) {
        for (int i = 0; i < A_TIME; i++) {
            CHECK_EQ(weft_go(count_one, NULL), 0);
        }
        long all = atomic_fetch_add(&started, A_TIME) + A_TIME;
        while (all - atomic_load(&ran) > 20000 && clock_ns() < end) {
            CHECK_GE(weft_procs(NULL), 1); /* the others' turn, without a park */
        }
    }
    return 0;
}

static void inside_scene(void) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    atomic_store(&ran, 0);
    for (int i = 0; i < STARTERS; i++) {
        CHECK_EQ(weft_waitgroup_go(&all, inside, NULL), 0);
    }
    weft_waitgroup_wait(&all);
    for (int64_t end = clock_ns() + 5 * WEFT_SECOND; atomic_load(&ran) != atomic_load(&started);) {
        CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
        CHECK_LT(clock_ns(), end);
    }
    weft_stats end = read_stats(); /* a new stack's page may make a thread wait in the system */
    CHECK_GT(end.handoff_computing + end.handoff_blocked, 0);
}

TEST(handoff_calls, nobody_is_robbed_inside) { play(inside_scene, 2, PARTIES_GREEN); }
