/* unit/stats.c: the figures add up, and the call treats its struct as promised. */
#include "world.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static weft_stats read_stats(void) {
    weft_stats s;
    memset(&s, 0xee, sizeof s);
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    return s;
}

TEST(stats, needs_a_runtime) {
    weft_stats s, before;
    memset(&s, 0xee, sizeof s);
    before = s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), WEFT_ENORUNTIME);
    CHECK_MEM(&s, &before, sizeof s);
}

/* A caller of an older build has a shorter struct, one of a newer a longer: what we have not is 0. */
PLAYED_GREEN(stats, sizes) {
    struct {
        weft_stats s;
        unsigned char more[16];
    } longer;
    CHECK_EQ(weft_stats_read(NULL, NULL, sizeof(weft_stats)), -EINVAL);
    memset(&longer, 0xee, sizeof longer);
    CHECK_EQ(weft_stats_read(NULL, &longer.s, offsetof(weft_stats, gs_created) + 8), 0);
    CHECK_GE(longer.s.gs_created, 1);
    CHECK_EQ(longer.s.gs_ended, (int64_t)0xeeeeeeeeeeeeeeee); /* not a byte more */
    CHECK_EQ(weft_stats_read(NULL, &longer.s, sizeof longer), 0);
    for (size_t i = 0; i < sizeof longer.more; i++) {
        CHECK_EQ(longer.more[i], 0);
    }
    memset(&longer, 0xee, sizeof longer);
    CHECK_EQ(weft_stats_read(NULL, &longer.s, 0), 0);
    CHECK_EQ(longer.s.gs_running, (int64_t)0xeeeeeeeeeeeeeeee);
}

TEST(stats, from_outside) {
    weft_runtime *rt;
    weft_config c = config_of(3);
    weft_stats s;
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    CHECK_EQ(s.gs_running + s.gs_runnable + s.gs_waiting, 0);
    CHECK_EQ(s.gs_created, 0);
    CHECK_EQ(s.gs_ended, 0);
    CHECK_GE(s.threads_created, 1); /* the maker */
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- green threads ---- */

static int wait_for(void *arg) {
    weft_event_wait(arg);
    return 0;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

PLAYED_GREEN(stats, green_threads) {
    weft_event e = WEFT_EVENT_INIT;
    party p[10];
    weft_stats s = read_stats();
    CHECK_EQ(s.gs_created, 1);
    CHECK_EQ(s.gs_running + s.gs_blocked, 1); /* who looks; perhaps without a P by now */
    CHECK_EQ(s.gs_waiting, 0);
    for (int i = 0; i < 10; i++) {
        party_start(&p[i], wait_for, &e);
    }
    for (int i = 0; i < 10; i++) {
        party_parked(&p[i]);
    }
    s = read_stats();
    CHECK_EQ(s.gs_created, 11);
    CHECK_EQ(s.gs_ended, 0);
    CHECK_EQ(s.gs_waiting, 10);
    CHECK_EQ(s.gs_running + s.gs_blocked, 1); /* who looks; perhaps without a P by now */
    CHECK_EQ(s.gs_runnable, 0);
    CHECK_EQ(s.stack_bytes_reserved, 11 * 256 * 1024);
    weft_event_set(&e);
    for (int i = 0; i < 10; i++) {
        party_end(&p[i]);
    }
    UNTIL(read_stats().gs_ended == 10);
    s = read_stats();
    CHECK_EQ(s.gs_waiting, 0);
    CHECK_EQ(s.gs_created - s.gs_ended, s.gs_running + s.gs_blocked + s.gs_runnable);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_go(nothing, NULL), 0);
    }
    UNTIL(read_stats().gs_ended == 110);
    CHECK_EQ(read_stats().gs_created, 111);
}

static int ready_ones(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_go(nothing, NULL), 0);
    }
    CHECK_EQ(read_stats().gs_runnable, 20); /* with one P nobody has run yet */
    return 0;
}

TEST(stats, runnable) {
    weft_config c = config_of(1);
    c.flags |= WEFT_EXCLUSIVE; /* else a slow spawner's P may go on to run some */
    CHECK_EQ(weft_run(ready_ones, NULL, &c, NULL), 0);
}

/* ---- threads ---- */

PLAYED_GREEN(stats, threads) {
    weft_stats s = read_stats();
    CHECK_GE(s.threads, 2); /* this one and the maker */
    CHECK_LT(s.threads_idle, s.threads);
    CHECK_LE(s.threads, s.threads_created + 1); /* this one came with weft_run */
    int mine = threads_now();
#ifndef WEFT__TSAN /* which has threads of its own */
    CHECK_LE(s.threads, mine + 1);
#else
    (void)mine;
#endif
}

/* ---- from outside ---- */

static void *submit_ten(void *arg) {
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_submit(arg, nothing, NULL), 0);
    }
    return NULL;
}

PLAYED_GREEN(stats, injections) {
    pthread_t t;
    uint64_t before = read_stats().injections;
    CHECK_EQ(pthread_create(&t, NULL, submit_ten, weft_current()), 0);
    UNTIL(read_stats().gs_ended == 10);
    pthread_join(t, NULL);
    CHECK_EQ(read_stats().injections, before + 10);
}

/* ---- timers ---- */

static void check_hist(const weft_hist *h) {
    uint64_t sum = 0;
    int last = -1;
    for (int b = 0; b < 48; b++) {
        sum += h->bucket[b];
        last = h->bucket[b] > 0 ? b : last;
    }
    CHECK_EQ(sum, h->count);
    CHECK_GE(h->sum, h->max);
    CHECK_LE(h->sum, h->max * h->count);
    CHECK(h->count == 0 ||
          h->max >> last <= 1); /* the longest is in the last bucket that has any */
}

PLAYED_GREEN(stats, timers) {
    weft_timer *t[10];
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_after_func(&t[i], WEFT_HOUR, nothing, NULL, NULL), 0);
    }
    weft_stats s = read_stats();
    CHECK_EQ(s.timers_pending, 10);
    CHECK_EQ(s.timers_fired, 0);
    CHECK_EQ(s.timer_late.count, 0);
    for (int i = 0; i < 5; i++) {
        CHECK(weft_timer_stop(t[i]));
    }
    CHECK_EQ(read_stats().timers_pending, 5);
    for (int i = 0; i < 5; i++) {
        weft_timer_reset(t[i], 100 * WEFT_MICROSECOND);
    }
    for (int i = 0; i < 20; i++) {
        weft_sleep(50 * WEFT_MICROSECOND);
    }
    UNTIL(read_stats().timers_fired >= 25);
    s = read_stats();
    CHECK_EQ(s.timer_late.count, s.timers_fired);
    check_hist(&s.timer_late);
    for (int i = 0; i < 10; i++) {
        weft_timer_free(t[i]);
    }
    CHECK_EQ(read_stats().timers_pending, 0);
}

/* ---- connections ---- */

PLAYED_GREEN(stats, connections) {
    int fd[2];
    weft_conn a, b;
    weft_listener l;
    CHECK_EQ(read_stats().conns_open, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    CHECK_EQ(weft_conn_from_fd(&a, fd[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&b, fd[1]), 0);
    CHECK_EQ(weft_listen(&l, "tcp", "127.0.0.1:0", NULL), 0);
    CHECK_EQ(read_stats().conns_open, 3);
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_conn_close(b), 0);
    CHECK_EQ(read_stats().conns_open, 1);
    CHECK_EQ(weft_listener_close(l), 0);
    CHECK_EQ(read_stats().conns_open, 0);
}

/* ---- across Ps ---- */

static atomic_int on_others;

static int count_if_elsewhere(void *arg) {
    if (weft_proc_self() != (int)(intptr_t)arg) {
        atomic_fetch_add(&on_others, 1);
    }
    return 0;
}

/* A P that computes leaves its ring to others: what they take is counted. */
static int steals(void *arg) {
    (void)arg;
    CHECK_EQ(read_stats().steals, 0);
    int before = atomic_load(&on_others);
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_go(count_if_elsewhere, (void *)(intptr_t)weft_proc_self()), 0);
    }
    while (atomic_load(&on_others) < before + 100) { /* no call that could switch */
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
    weft_stats s = read_stats();
    CHECK_GE(s.steals, 100);
    CHECK_LE(s.steals, s.gs_created * 8);
    CHECK_GE(s.wake_work, 1);
    CHECK_GE(s.threads_created, 2);
    return 0;
}

TEST(stats, steals) {
    for (int procs = 2; procs <= 4; procs++) {
        weft_config c = config_of(procs);
        c.flags |= WEFT_EXCLUSIVE; /* else its P goes to another thread, with all that lies there */
        CHECK_EQ(weft_run(steals, NULL, &c, NULL), 0);
    }
}

PLAYED_GREEN(stats, polls) {
    weft_stats before = read_stats();
    for (int i = 0; i < 10; i++) {
        weft_sleep(WEFT_MILLISECOND);
    }
    weft_stats s = read_stats();
    /* Nothing else to do: it waits there for the time. On a busy machine sysmon may have somebody else
       run a timer that is late by then. */
    CHECK_GE(s.polls, before.polls + 5);
    CHECK_LE(s.polls, before.polls + 10000);
}

/* ---- blocked ones ---- */

static atomic_bool come_back;

static int blocks(void *arg) {
    (void)arg;
    while (!atomic_load(&come_back)) {
        nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
    }
    return 0;
}

static int with_blocked(void *arg) {
    enum { BLOCKED = 6 };
    (void)arg;
    for (int i = 0; i < BLOCKED; i++) {
        CHECK_EQ(weft_go(blocks, NULL), 0);
    }
    weft_stats s;
    do { /* all at once without a P, and nobody on his way in or out */
        CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
        s = read_stats();
    } while (s.gs_blocked != BLOCKED || s.gs_running != 1);
    CHECK_EQ(s.gs_created - s.gs_ended, BLOCKED + 1);
    CHECK_EQ(s.gs_waiting + s.gs_runnable, 0);
    CHECK_GE(s.handoff_blocked + s.handoff_computing, BLOCKED); /* the first call may be slow */
    CHECK_GE(s.handoff_blocked + s.handoff_computing, s.wake_sysmon);
    CHECK_GE(s.threads, BLOCKED + 1 + 2);
    atomic_store(&come_back, true);
    UNTIL(read_stats().gs_ended == BLOCKED);
    CHECK_EQ(read_stats().gs_blocked, 0);
    return 0;
}

TEST(stats, blocked_ones) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = config_of(procs);
        atomic_store(&come_back, false);
        CHECK_EQ(weft_run(with_blocked, NULL, &c, NULL), 0);
    }
}

/* ---- waits in queues ---- */

enum { QUEUED = 20, WORK = 200 * WEFT_MICROSECOND };

static int works(void *arg) {
    atomic_int *left = arg;
    while (atomic_fetch_sub(left, 1) > 0) {
        int64_t end = clock_ns() + WORK;
        while (clock_ns() < end) {
        }
        weft_yield();
    }
    return 0;
}

/* Each waits for the nineteen others. */
static int queues_up(void *arg) {
    static atomic_int left;
    (void)arg;
    atomic_store(&left, 400);
    for (int i = 0; i < QUEUED; i++) {
        CHECK_EQ(weft_go(works, &left), 0);
    }
    UNTIL(read_stats().gs_ended == QUEUED);
    weft_stats s = read_stats();
    CHECK_GE(s.queue_wait.count, 3);
    CHECK_LE(s.queue_wait.count, atomic_load(&weft_current()->ps[0]->tick) / 32 + 1);
    check_hist(&s.queue_wait);
    CHECK_GE(s.queue_wait.max, (QUEUED - 2) * WORK);
    return 0;
}

TEST(stats, waits_in_a_queue) {
    weft_config c = config_of(1);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(queues_up, NULL, &c, NULL), 0);
}

/* No wait is longer than what those who wait see of it: from before the call that has them wait, to
   behind it. What they do then, and how long the P lies idle, is no wait of theirs. */
static _Atomic int64_t longest_seen;

static void note_wait(int64_t since) {
    int64_t waited = clock_ns() - since, seen = atomic_load(&longest_seen);
    while (waited > seen && !atomic_compare_exchange_weak(&longest_seen, &seen, waited)) {
    }
}

static void thread_sleep(int64_t ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

enum { TAKE_TURNS = 3, TURNS = 120 };
static weft_waitgroup turns = WEFT_WAITGROUP_INIT;
static _Atomic int64_t started, last_end;

static int takes_turns(void *arg) {
    int64_t block = *(int64_t *)arg;
    note_wait(atomic_load(&started));
    for (int i = 0; i < TURNS; i++) {
        thread_sleep(block);
        int64_t since = clock_ns();
        weft_yield();
        note_wait(since);
    }
    thread_sleep(50 * WEFT_MILLISECOND); /* whoever was seen in the queue last may be this one */
    atomic_store(&last_end, clock_ns());
    weft_waitgroup_done(&turns);
    return 0;
}

static int compares_waits(void *arg) {
    atomic_store(&longest_seen, 0);
    weft_waitgroup_add(&turns, TAKE_TURNS);
    atomic_store(&started, clock_ns());
    for (int i = 0; i < TAKE_TURNS; i++) {
        CHECK_EQ(weft_go(takes_turns, arg), 0);
    }
    weft_waitgroup_wait(&turns);
    note_wait(atomic_load(&last_end));
    int64_t since = clock_ns();
    weft_yield(); /* by way of a look, if one is due */
    note_wait(since);
    weft_stats s = read_stats();
    check_hist(&s.queue_wait);
    CHECK_GE(s.queue_wait.count, 1);
    CHECK_LE((int64_t)s.queue_wait.max, atomic_load(&longest_seen));
    return 0;
}

TEST(stats, no_wait_is_longer_than_it_was) {
    int64_t block = WEFT_MILLISECOND;
    weft_config c = config_of(1);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(compares_waits, &block, &c, NULL), 0);
    c = config_of(2);
    CHECK_EQ(weft_run(compares_waits, &block, &c, NULL), 0);
}

/* A wait is told of once: who has run since is not sampled any more, until he is again. */
static atomic_bool others_go_on;

static int yields(void *arg) {
    (void)arg;
    while (atomic_load(&others_go_on)) {
        weft_yield();
    }
    return 0;
}

static int sleeps_alone(void *arg) {
    (void)arg;
    atomic_store(&others_go_on, true);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(yields, NULL), 0);
    }
    for (int i = 0; i < 2000; i++) {
        weft_yield();
    }
    atomic_store(&others_go_on, false);
    UNTIL(read_stats().gs_ended == 3);
    CHECK_GE(read_stats().queue_wait.count, 10);
    _Atomic uint32_t *picks = &weft_current()->ps[0]->tick;
    uint32_t before = atomic_load(picks);
    uint64_t told = read_stats().queue_wait.count;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_sleep(50 * WEFT_MICROSECOND), 0);
    }
    CHECK_LE(read_stats().queue_wait.count, told + 2 + (atomic_load(picks) - before) / 32);
    return 0;
}

TEST(stats, a_wait_is_told_of_once) {
    weft_config c = config_of(1);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(sleeps_alone, NULL, &c, NULL), 0);
}

/* ---- handoffs by cause ---- */

static atomic_bool woke;

static int wakes_late(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(2 * WEFT_MILLISECOND), 0);
    atomic_store(&woke, true);
    return 0;
}

/* The only P computes for less than its slice while a timer comes due: until one was taken for that. */
static int is_late(void *arg) {
    (void)arg;
    do {
        atomic_store(&woke, false);
        CHECK_EQ(weft_go(wakes_late, NULL), 0);
        weft_yield();
        for (int64_t end = clock_ns() + 8 * WEFT_MILLISECOND; clock_ns() < end;) {
        }
        UNTIL(atomic_load(&woke));
    } while (read_stats().handoff_late == 0);
    weft_stats s = read_stats();
    CHECK_LE(s.handoff_late + s.handoff_gave_up, s.handoff_computing);
    return 0;
}

TEST(stats, taken_for_a_late_timer) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(is_late, NULL, &c, NULL), 0);
}

/* A loop of calls that never park is asked for its P inside, and gives it up there. */
static int gives_up(void *arg) {
    (void)arg;
    while (read_stats().handoff_gave_up == 0) {
        CHECK_EQ(weft_go(nothing, NULL), 0);
        while (weft_proc_self() >= 0) {
        }
        weft_yield();
    }
    weft_stats s = read_stats();
    CHECK_LE(s.handoff_gave_up + s.handoff_late, s.handoff_computing);
    return 0;
}

TEST(stats, given_up_by_a_call) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(gives_up, NULL, &c, NULL), 0);
}

/* ---- sums ---- */

enum { OF_A_KIND = 100 };
static atomic_bool all_end;

static int stays(void *arg) {
    (void)arg;
    while (!atomic_load(&all_end)) {
        thread_sleep(2 * WEFT_MILLISECOND);
    }
    return 0;
}

static weft_stats stats_of(weft_runtime *rt) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    return s;
}

static void check_sums(weft_runtime *rt) {
    weft_stats s = stats_of(rt);
    CHECK_EQ(s.gs_created, s.gs_ended + s.gs_running + s.gs_runnable + s.gs_waiting + s.gs_blocked);
    CHECK_LE(s.threads_idle + s.gs_running + s.gs_blocked + 2, s.threads);
    CHECK_LE(s.threads, s.threads_created);
    CHECK_GE(s.threads, s.gs_running + s.gs_blocked + 2);
    CHECK_GE(s.handoff_blocked + s.handoff_computing + s.handoff_hint, s.gs_blocked);
    CHECK_LE(s.handoff_late + s.handoff_gave_up, s.handoff_computing);
    check_hist(&s.timer_late);
    check_hist(&s.queue_wait);
    CHECK_EQ(s.timer_late.count, s.timers_fired);
}

/* A hundred wait; `stay` more stay in plain code and have all the threads there may be; of a hundred
   that come then none runs. So all stands still. */
static void stand_still(const weft_config *c, uint64_t stay, uint64_t running) {
    weft_runtime *rt;
    weft_event e = WEFT_EVENT_INIT;
    atomic_store(&all_end, false);
    CHECK_EQ(weft_start(&rt, c), 0);
    for (int i = 0; i < OF_A_KIND; i++) {
        CHECK_EQ(weft_submit(rt, wait_for, &e), 0);
    }
    UNTIL(stats_of(rt).gs_waiting == OF_A_KIND);
    for (uint64_t i = 0; i < stay; i++) {
        CHECK_EQ(weft_submit(rt, stays, NULL), 0);
    }
    UNTIL(stats_of(rt).gs_running == running && stats_of(rt).gs_blocked == stay - running);
    for (int i = 0; i < OF_A_KIND; i++) {
        CHECK_EQ(weft_submit(rt, nothing, NULL), 0);
    }
    weft_stats s = stats_of(rt);
    CHECK_EQ(s.gs_waiting, OF_A_KIND);
    CHECK_EQ(s.gs_runnable, OF_A_KIND);
    CHECK_EQ(s.gs_running, running);
    CHECK_EQ(s.gs_blocked, stay - running);
    check_sums(rt);
    atomic_store(&all_end, true);
    weft_event_set(&e);
    UNTIL(stats_of(rt).gs_ended == 2 * OF_A_KIND + stay);
    UNTIL(stats_of(rt).threads_idle + 2 >= stats_of(rt).threads);
    check_sums(rt);
    s = stats_of(rt);
    CHECK_EQ(s.gs_created, s.gs_ended);
    /* Started and woken from here; and who comes back without a P, if none is idle then. */
    CHECK_GE(s.injections, s.gs_created + OF_A_KIND);
    CHECK_LE(s.injections, s.gs_created + OF_A_KIND + (stay - running));
    CHECK_EQ(weft_stop(rt, -1), 0);
}

TEST(stats, sums_with_blocked_ones) {
    weft_config c = config_of(2);
    c.max_threads = OF_A_KIND;
    stand_still(&c, OF_A_KIND, 0);
}

TEST(stats, sums_with_running_ones) {
    weft_config c = config_of(2);
    c.flags |= WEFT_EXCLUSIVE;
    stand_still(&c, 2, 2);
}
