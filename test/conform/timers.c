/* conform/timers.c: sleep and one-shot timers. A test is named by the line of the list that it
   comes from (README.md); what a line says of time passed is a clock part, "never early" and
   results are not. */
#include "field/field.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

static const weft_time PAST = {1};

static int set_event(void *event) {
    weft_event_set(event);
    return 0;
}

static int set_flag(void *flag) {
    atomic_store((atomic_bool *)flag, true);
    return 0;
}

/* ---- 1: a signal does not shorten a sleep ---------------------------------------------------- */

static atomic_int signals;

static void on_signal(int sig) {
    (void)sig;
    atomic_fetch_add(&signals, 1);
}

/* To every thread, so that it meets the one that waits for the timer. */
static void signal_all_threads(void) {
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] != '.') {
            syscall(SYS_tgkill, getpid(), atoi(e->d_name), SIGUSR1);
        }
    }
    closedir(d);
}

static void *signal_in_the_middle(void *arg) {
    (void)arg;
    thread_sleep(50 * MS);
    signal_all_threads();
    return NULL;
}

static int sleep_over_signals(void *arg) {
    (void)arg;
    pthread_t thread;
    int before = atomic_load(&signals);
    CHECK_EQ(pthread_create(&thread, NULL, signal_in_the_middle, NULL), 0);
    int64_t start = now();
    CHECK_EQ(weft_sleep(100 * MS), 0);
    CHECK_GE(now() - start, 100 * MS);
    pthread_join(thread, NULL);
    CHECK_GT(atomic_load(&signals), before);
    return 0;
}

TEST(conform, conform_001) {
    struct sigaction a = {.sa_handler = on_signal}; /* without SA_RESTART */
    CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
    run_at(1, sleep_over_signals, NULL);
    run_at(2, sleep_over_signals, NULL);
}

/* ---- 2: sleeps of nothing, but for the stopped world ----------------------------------------- */

static int sleep_of_nothing(void *arg) {
    (void)arg;
    atomic_bool other_ran = false;
    weft_chan *c;
    int v = 0;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 1), 0);
    WEFT_MUST(weft_go(set_flag, &other_ran));
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_sleep(0), 0);
        CHECK_EQ(weft_chan_send(c, &v), 0);
        CHECK_EQ(weft_sleep(-1), 0);
        CHECK_EQ(weft_sleep(INT64_MIN), 0);
        CHECK_EQ(weft_chan_recv(c, &v), 0);
    }
    if (weft_procs(NULL) == 1) {
        CHECK(!atomic_load(&other_ran)); /* it did not even yield */
    }
    while (!atomic_load(&other_ran)) {
        weft_yield();
    }
    weft_chan_unref(c);
    return 0;
}

TEST(conform, conform_002a) {
    run_at(1, sleep_of_nothing, NULL);
    run_at(4, sleep_of_nothing, NULL);
}

/* ---- 3: every callback has a green thread of its own ----------------------------------------- */

static struct {
    atomic_int begun, finished;
    weft_event tenth;
} chain;

static int chain_link(void *arg) {
    if (atomic_fetch_add(&chain.begun, 1) + 1 == 10) {
        weft_event_set(&chain.tenth);
    } else {
        WEFT_MUST(weft_after_func(NULL, 0, chain_link, arg, NULL));
    }
    weft_sleep(SEC);
    atomic_fetch_add(&chain.finished, 1);
    return 0;
}

static int chain_of_ten(void *arg) {
    int64_t start = now();
    WEFT_MUST(weft_after_func(NULL, 0, chain_link, arg, NULL));
    weft_event_wait(&chain.tenth);
    CHECK_LT(atomic_load(&chain.finished), 9); /* nine have slept if one waits for the other */
    test_clock(within(now() - start, SEC), "ten links took %.2f ms, bound 1 s",
               (double)(now() - start) / MS);
    return 0;
}

TEST(conform, conform_003) { run_at(1, chain_of_ten, NULL); }

/* ---- 6: two that talk without end do not starve a timer -------------------------------------- */

static struct {
    weft_chan *c;
    atomic_bool fired;
} starve;

static int talk_until_fired(void *arg) {
    int v = 0;
    bool sends = arg != NULL;
    while (!atomic_load(&starve.fired)) {
        if ((sends ? weft_chan_send(starve.c, &v) : weft_chan_recv(starve.c, &v)) != 0) {
            break;
        }
    }
    weft_chan_close(starve.c);
    return 0;
}

static int starve_a_timer(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_chan_new(&starve.c, sizeof(int), 0), 0);
    WEFT_MUST(weft_waitgroup_go(&wg, talk_until_fired, &starve));
    WEFT_MUST(weft_waitgroup_go(&wg, talk_until_fired, NULL));
    WEFT_MUST(weft_after_func(NULL, US, set_flag, &starve.fired, NULL));
    weft_waitgroup_wait(&wg);
    CHECK(atomic_load(&starve.fired));
    return 0;
}

TEST(conform, conform_006) { run_at(1, starve_a_timer, NULL); }

/* ---- 7, 8: a timer to wait on ---------------------------------------------------------------- */

static void wait_for(weft_duration d) {
    weft_timer *t;
    weft_time nominal;
    int64_t start = now();
    CHECK_EQ(weft_timer_new(&t, d, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_GE(now() - start, d);
    CHECK_GE(nominal.ns, start + d);
    CHECK_LE(nominal.ns, now());
    weft_timer_free(t);
}

static int wait_for_100_ms(void *arg) {
    (void)arg;
    wait_for(100 * MS);
    return 0;
}

static int wait_ten_times(void *arg) {
    (void)arg;
    int64_t start = now();
    for (int i = 0; i < 10; i++) {
        wait_for(100 * MS);
    }
    int64_t took = now() - start;
    test_clock(within(took, 3 * SEC), "ten times 100 ms took %.0f ms, bound 3000",
               (double)took / MS);
    return 0;
}

TEST(conform, conform_007) { run_at(2, wait_for_100_ms, NULL); }
TEST(conform, conform_008) { run_at(2, wait_ten_times, NULL); }

/* ---- 9: stop before the time ----------------------------------------------------------------- */

static int stop_before(void *arg) {
    (void)arg;
    atomic_bool ran = false;
    weft_timer *fn, *plain;
    WEFT_MUST(weft_after_func(&fn, 100 * MS, set_flag, &ran, NULL));
    WEFT_MUST(weft_timer_new(&plain, 100 * MS, NULL));
    CHECK(weft_timer_stop(fn));
    CHECK(weft_timer_stop(plain));
    CHECK(!weft_timer_stop(fn));
    CHECK(!weft_timer_stop(plain));
    CHECK_EQ(weft_timer_wait_until(plain, NULL, weft_in(150 * MS)), -ETIMEDOUT);
    CHECK(!atomic_load(&ran));
    weft_timer_free(fn);
    weft_timer_free(plain);
    return 0;
}

TEST(conform, conform_009) { run_at(2, stop_before, NULL); }

/* ---- 10: timers fire in the order of their times --------------------------------------------- */

enum { SLOTS = 13 };
static const int slots[SLOTS] = {5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0};

static struct {
    int order[SLOTS];
    int count;
    weft_waitgroup all;
} queue;

static int note_slot(void *slot) {
    queue.order[queue.count++] = *(const int *)slot;
    weft_waitgroup_done(&queue.all);
    return 0;
}

static int fire_in_order(void *arg) {
    (void)arg;
    static int mine[SLOTS];
    memcpy(mine, slots, sizeof mine);
    for (int attempt = 0; attempt < 5; attempt++) {
        weft_duration delta = (20 + 50 * attempt) * MS / 10;
        queue.count = 0;
        weft_waitgroup_add(&queue.all, SLOTS);
        for (int i = 0; i < SLOTS; i++) {
            WEFT_MUST(weft_after_func(NULL, slots[i] * delta, note_slot, &mine[i], NULL));
        }
        weft_waitgroup_wait(&queue.all);
        for (int i = 1; i < SLOTS; i++) {
            CHECK_LE(queue.order[i - 1], queue.order[i]);
        }
    }
    return 0;
}

/* At one P: there the order of firing is the order of running. */
TEST(conform, conform_010) { run_at(1, fire_in_order, NULL); }

/* ---- 11: a hundred stops --------------------------------------------------------------------- */

static atomic_int late_firings, late_stops;

static int count_firing(void *arg) {
    (void)arg;
    atomic_fetch_add(&late_firings, 1);
    return 0;
}

static int arm_sleep_stop(void *arg) {
    weft_timer *t;
    (void)arg;
    int64_t start = now();
    WEFT_MUST(weft_after_func(&t, 2 * SEC, count_firing, NULL, NULL));
    CHECK_EQ(weft_sleep(SEC), 0);
    bool stopped = weft_timer_stop(t);
    if (!stopped) {
        CHECK_GE(now() - start, 2 * SEC); /* a machine that stood still */
        atomic_fetch_add(&late_stops, 1);
    }
    weft_timer_free(t);
    return 0;
}

static int stop_a_hundred(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 100; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, arm_sleep_stop, NULL));
    }
    weft_waitgroup_wait(&wg);
    CHECK_EQ(weft_sleep(1200 * MS), 0);
    CHECK_EQ(atomic_load(&late_firings), atomic_load(&late_stops));
    return 0;
}

TEST(conform, conform_011) { run_at(4, stop_a_hundred, NULL); }

/* ---- 12: reset moves an active timer and arms an expired one --------------------------------- */

static struct {
    _Atomic int64_t at;
    weft_event fired;
} moved;

static int note_moved(void *arg) {
    (void)arg;
    atomic_store(&moved.at, now());
    weft_event_set(&moved.fired);
    return 0;
}

static int reset_moves(void *arg) {
    (void)arg;
    const weft_duration d = 20 * MS;
    weft_timer *fn, *plain;
    WEFT_MUST(weft_after_func(&fn, 20 * d, note_moved, NULL, NULL));
    WEFT_MUST(weft_timer_new(&plain, 20 * d, NULL));
    CHECK_EQ(weft_sleep(d), 0);
    int64_t reset = now();
    CHECK(weft_timer_reset(fn, 30 * d));
    CHECK(weft_timer_reset(plain, 30 * d));
    CHECK_EQ(weft_timer_wait(plain, NULL), 0);
    CHECK_GE(now() - reset, 30 * d);
    weft_event_wait(&moved.fired);
    CHECK_GE(atomic_load(&moved.at) - reset, 30 * d);

    weft_event_reset(&moved.fired);
    reset = now();
    CHECK(!weft_timer_reset(fn, 2 * d));
    CHECK(!weft_timer_reset(plain, 2 * d));
    CHECK_EQ(weft_timer_wait(plain, NULL), 0);
    CHECK_GE(now() - reset, 2 * d);
    weft_event_wait(&moved.fired);
    CHECK_GE(atomic_load(&moved.at) - reset, 2 * d);
    weft_timer_free(fn);
    weft_timer_free(plain);
    return 0;
}

TEST(conform, conform_012) { run_at(2, reset_moves, NULL); }

/* ---- 13: the longest and the shortest -------------------------------------------------------- */

static atomic_int endless_sleeps;

static int sleep_for_ever(void *length) {
    CHECK_EQ(weft_sleep(*(weft_duration *)length), -ECANCELED); /* the runtime's stop */
    atomic_fetch_add(&endless_sleeps, 1);
    return 0;
}

static int extreme_lengths(void *arg) {
    (void)arg;
    static weft_duration lengths[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};
    static atomic_bool fired;
    weft_timer *endless, *past;
    weft_event at_once = WEFT_EVENT_INIT;
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        WEFT_MUST(weft_go(sleep_for_ever, &lengths[i]));
        WEFT_MUST(weft_after_func(NULL, lengths[i], set_flag, &fired, NULL));
    }
    WEFT_MUST(weft_timer_new(&endless, INT64_MAX, NULL));
    WEFT_MUST(weft_timer_new(&past, INT64_MIN, NULL));
    int64_t start = now();
    CHECK_EQ(weft_sleep(INT64_MIN), 0);
    CHECK_EQ(weft_timer_wait(past, NULL), 0);
    WEFT_MUST(weft_after_func(NULL, INT64_MIN, set_event, &at_once, NULL));
    weft_event_wait(&at_once);
    test_clock(within(now() - start, SEC), "the most negative times took %.2f ms, bound 1 s",
               (double)(now() - start) / MS);
    CHECK_EQ(weft_timer_wait_until(endless, NULL, weft_in(100 * MS)), -ETIMEDOUT);
    CHECK(!atomic_load(&fired));
    CHECK_EQ(atomic_load(&endless_sleeps), 0);
    weft_timer_free(endless);
    weft_timer_free(past);
    return 0;
}

TEST(conform, conform_013) {
    run_at(2, extreme_lengths, NULL);
    CHECK_EQ(atomic_load(&endless_sleeps), 3);
}

/* ---- 17: a million of no length -------------------------------------------------------------- */

enum { MILLION = UNDER_TSAN ? 20000 : 1000000 };
static weft_chan *ticks;

static int tick(void *arg) {
    (void)arg;
    CHECK_EQ(weft_chan_send(ticks, NULL), 0);
    return 0;
}

static void new_each_time(void) {
    weft_timer *t;
    for (int i = 0; i < MILLION; i++) {
        WEFT_MUST(weft_timer_new(&t, 0, NULL));
        CHECK_EQ(weft_timer_wait(t, NULL), 0);
        weft_timer_free(t);
    }
}

static void function_each_time(void) {
    CHECK_EQ(weft_chan_new(&ticks, 0, 1), 0);
    for (int i = 0; i < MILLION; i++) {
        WEFT_MUST(weft_after_func(NULL, 0, tick, NULL, NULL));
        CHECK_EQ(weft_chan_recv(ticks, NULL), 0);
    }
    weft_chan_unref(ticks);
}

static void one_again_and_again(void) {
    weft_timer *t;
    WEFT_MUST(weft_timer_new(&t, WEFT_FOREVER, NULL));
    for (int i = 0; i < MILLION; i++) {
        CHECK(!weft_timer_reset(t, 0));
        CHECK_EQ(weft_timer_wait(t, NULL), 0);
    }
    weft_timer_free(t);
}

static int million_timers(void *arg) {
    (void)arg;
    static const struct {
        void (*form)(void);
        const char *name;
    } forms[] = {{new_each_time, "new ones"},
                 {function_each_time, "functions"},
                 {one_again_and_again, "one, reset"}};
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
        int64_t start = now();
        forms[i].form();
        test_clock(within(now() - start, 2 * SEC), "%d, %s: %.0f ms, bound 2000", MILLION,
                   forms[i].name, (double)(now() - start) / MS);
    }
    return 0;
}

TEST_IN(conform, conform_017, 60) { run_at(2, million_timers, NULL); }

/* ---- 18: stopped and moved into the past ----------------------------------------------------- */

enum { PAST_ROUNDS = 1000 };
static weft_event past_fired[PAST_ROUNDS]; /* static: a round may fire more than once, and late */

static int64_t fire_in_the_past(int round) {
    weft_timer *fn, *plain;
    WEFT_MUST(weft_after_func(&fn, WEFT_HOUR, set_event, &past_fired[round], NULL));
    WEFT_MUST(weft_timer_new(&plain, WEFT_HOUR, NULL));
    for (int i = 0; i < 10; i++) {
        weft_timer_stop(fn);
        weft_timer_reset_at(fn, PAST);
        CHECK(weft_timer_stop(plain));
        CHECK(!weft_timer_reset_at(plain, PAST));
    }
    int64_t start = now();
    weft_event_wait(&past_fired[round]);
    CHECK_EQ(weft_timer_wait(plain, NULL), 0);
    int64_t took = now() - start;
    weft_timer_free(fn);
    weft_timer_free(plain);
    return took;
}

static int move_into_the_past(void *arg) {
    (void)arg;
    int64_t longest = 0;
    for (int round = 0; round < PAST_ROUNDS; round++) {
        longest = most(longest, fire_in_the_past(round));
    }
    test_clock(within(longest, 8 * SEC), "at most %.2f ms, bound 8 s", (double)longest / MS);
    return 0;
}

TEST_IN(conform, conform_018, 60) { run_at(2, move_into_the_past, NULL); }

/* ---- 19: a hundred timers walk about --------------------------------------------------------- */

enum { WALKERS = 100, WALK_STEPS = 6 };

static struct walker {
    weft_timer *t;
    int step;
    _Atomic int64_t released, fired;
    weft_event done;
} walkers[WALKERS];

static int walker_fires(void *arg) {
    struct walker *w = arg;
    CHECK_EQ(w->step, WALK_STEPS);
    atomic_store(&w->fired, now());
    weft_event_set(&w->done);
    return 0;
}

static void walk(struct walker *w) {
    switch (w->step++) {
    case 0:
        CHECK(!weft_timer_reset(w->t, WEFT_MINUTE));
        break;
    case 1:
    case 3:
        CHECK(weft_timer_stop(w->t));
        break;
    case 2:
        CHECK(!weft_timer_reset(w->t, 3 * WEFT_MINUTE));
        break;
    case 4:
        CHECK(!weft_timer_reset(w->t, 2 * WEFT_MINUTE));
        break;
    default:
        atomic_store(&w->released, now());
        CHECK(weft_timer_reset(w->t, 0));
    }
}

static int walk_about(void *arg) {
    (void)arg;
    unsigned seed = 19;
    int order[WALKERS], left = WALKERS;
    int64_t longest = 0;
    for (int i = 0; i < WALKERS; i++) {
        order[i] = i;
        WEFT_MUST(weft_after_func(&walkers[i].t, WEFT_FOREVER, walker_fires, &walkers[i], NULL));
    }
    while (left > 0) {
        int at = rand_r(&seed) % left;
        struct walker *w = &walkers[order[at]];
        walk(w);
        if (w->step == WALK_STEPS) {
            order[at] = order[--left];
        }
    }
    for (int i = 0; i < WALKERS; i++) {
        weft_event_wait(&walkers[i].done);
        longest = most(longest, atomic_load(&walkers[i].fired) - atomic_load(&walkers[i].released));
        weft_timer_free(walkers[i].t);
    }
    test_clock(within(longest, 750 * MS), "the last fired after %.2f ms, bound 750",
               (double)longest / MS);
    return 0;
}

TEST(conform, conform_019) { run_at(2, walk_about, NULL); }

/* ---- 23: one timer, tried and reset by many -------------------------------------------------- */

static weft_timer *shared;

static int try_and_reset(void *arg) {
    (void)arg;
    for (int i = 0; i < 10000; i++) {
        int err = weft_timer_wait_until(shared, NULL, PAST);
        CHECK(err == 0 || err == -ETIMEDOUT);
        weft_timer_reset(shared, 1);
    }
    return 0;
}

static int try_and_reset_at_once(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    WEFT_MUST(weft_timer_new(&shared, 1, NULL));
    for (int i = 0; i < weft_procs(NULL); i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, try_and_reset, NULL));
    }
    weft_waitgroup_wait(&wg);
    weft_timer_free(shared);
    return 0;
}

TEST(conform, conform_023) { run_at(4, try_and_reset_at_once, NULL); }

/* ---- 28: many sleepers, then many timed receives --------------------------------------------- */

enum { SLEEPERS = 5000, HANDOVERS = 50000 * 20 };

static int sleep_ten_us(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(10 * US), 0);
    return 0;
}

static int hand_over(void *chan) {
    for (int i = 0; i < HANDOVERS; i++) {
        CHECK_EQ(weft_chan_send(chan, &i), 0);
    }
    return 0;
}

static int adjust_for_long(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_chan *c;
    int64_t start = now();
    for (int i = 0; i < SLEEPERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, sleep_ten_us, NULL));
    }
    for (int i = 0; i < SLEEPERS; i++) {
        CHECK_EQ(weft_sleep(US), 0);
    }
    weft_waitgroup_wait(&wg);
    CHECK_EQ(weft_chan_new(&c, sizeof(int), 0), 0);
    WEFT_MUST(weft_waitgroup_go(&wg, hand_over, c));
    for (int i = 0, v = -1; i < HANDOVERS; i++) {
        CHECK_EQ(weft_chan_recv_until(c, &v, weft_in(5 * SEC)), 0);
        CHECK_EQ(v, i);
    }
    weft_waitgroup_wait(&wg);
    weft_chan_unref(c);
    test_clock(within(now() - start, 60 * SEC), "%.1f s in all, bound 60",
               (double)(now() - start) / SEC);
    return 0;
}

TEST_IN(conform, conform_028, 120) { run_at(2, adjust_for_long, NULL); }

/* ---- 29: armed, then freed: nothing is left -------------------------------------------------- */

static uint64_t pending(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s.timers_pending;
}

static int free_armed_timers(void *arg) {
    (void)arg;
    enum { TIMERS = 10000 };
    static weft_timer *t[TIMERS];
    uint64_t before = pending();
    for (int i = 0; i < TIMERS; i++) {
        WEFT_MUST(i % 2 == 0 ? weft_timer_new(&t[i], WEFT_HOUR, NULL)
                             : weft_after_func(&t[i], WEFT_HOUR + i, set_flag, NULL, NULL));
    }
    CHECK_EQ(pending(), before + TIMERS / 2); /* only functions are in a heap: nobody waits */
    for (int i = 0; i < TIMERS; i++) {
        weft_timer_free(t[i]);
    }
    CHECK_EQ(pending(), before);
    return 0;
}

/* That the memory is back too is the leak checker's to say. */
TEST(conform, conform_029) { run_at(2, free_armed_timers, NULL); }

/* ---- 30 to 35, 38, 39: a timer to wait on, tried after each move ----------------------------- */

static weft_timer *unarmed(void) {
    weft_timer *t;
    WEFT_MUST(weft_timer_new(&t, WEFT_FOREVER, NULL));
    return t;
}

static bool has_fired(weft_timer *t) {
    int err = weft_timer_wait_until(t, NULL, PAST);
    CHECK(err == 0 || err == -ETIMEDOUT);
    return err == 0;
}

/* Due for certain, and nobody has taken it. */
static weft_timer *expired(void) {
    weft_timer *t = unarmed();
    CHECK(!weft_timer_reset(t, 1));
    CHECK_EQ(weft_sleep(MS), 0);
    return t;
}

static int stop_unarmed(void *arg) {
    (void)arg;
    weft_timer *t = unarmed();
    CHECK(!weft_timer_stop(t));
    CHECK(!has_fired(t));
    weft_timer_free(t);
    return 0;
}

static int reset_unarmed_to_far(void *arg) {
    (void)arg;
    weft_timer *t = unarmed();
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(!has_fired(t));
    CHECK(weft_timer_stop(t));
    weft_timer_free(t);
    return 0;
}

static int one_tick(void *arg) {
    (void)arg;
    weft_timer *t = expired();
    CHECK(has_fired(t));
    CHECK(!has_fired(t)); /* 35: a one-shot has one */
    weft_timer_free(t);
    return 0;
}

static int no_old_value(void *arg) {
    (void)arg;
    weft_timer *t = expired();
    CHECK(weft_timer_reset(t, WEFT_HOUR));
    CHECK(!has_fired(t));
    weft_timer_free(t);
    return 0;
}

struct wait {
    weft_timer *t;
    weft_time until, nominal;
    atomic_int result; /* 1: not yet */
    weft_event returned;
};

static int wait_body(void *arg) {
    struct wait *w = arg;
    atomic_store(&w->result, weft_timer_wait_until(w->t, &w->nominal, w->until));
    weft_event_set(&w->returned);
    return 0;
}

static uint64_t returned(const struct wait *w, int count) {
    uint64_t n = 0;
    for (int i = 0; i < count; i++) {
        n += weft_event_is_set(&w[i].returned);
    }
    return n;
}

/* Started, and seen to be parked, or through already where there is a deadline. */
static void start_waits(struct wait *w, int count) {
    weft_stats s;
    for (int i = 0; i < count; i++) {
        atomic_store(&w[i].result, 1);
        WEFT_MUST(weft_go(wait_body, &w[i]));
    }
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting + returned(w, count) < (uint64_t)count);
}

static int reset_under_a_waiter(void *arg) {
    (void)arg;
    static struct wait w;
    w.t = unarmed();
    w.until = WEFT_NEVER;
    CHECK(!weft_timer_reset(w.t, WEFT_MINUTE));
    start_waits(&w, 1);
    CHECK(weft_timer_reset(w.t, WEFT_HOUR));
    CHECK_EQ(weft_event_wait_until(&w.returned, weft_in(5 * MS)), -ETIMEDOUT);
    CHECK(weft_timer_reset(w.t, 1));
    weft_event_wait(&w.returned);
    CHECK_EQ(atomic_load(&w.result), 0);
    CHECK(!has_fired(w.t)); /* 35 */
    weft_timer_free(w.t);
    return 0;
}

static int two_waiters(void *arg) {
    (void)arg;
    static struct wait w[2];
    w[0].t = w[1].t = unarmed();
    w[0].until = w[1].until = WEFT_NEVER;
    start_waits(w, 2);
    CHECK(!weft_timer_reset(w[0].t, 1));
    while (returned(w, 2) == 0) {
        weft_yield();
    }
    CHECK_EQ(weft_sleep(10 * MS), 0);
    CHECK_EQ(returned(w, 2), 1); /* and the other waits for the next one */
    CHECK(!weft_timer_reset(w[0].t, 1));
    for (int i = 0; i < 2; i++) {
        weft_event_wait(&w[i].returned);
        CHECK_EQ(atomic_load(&w[i].result), 0);
    }
    weft_timer_free(w[0].t);
    return 0;
}

static int waiters_of_a_stopped_one(void *arg) {
    (void)arg;
    static struct wait w[3];
    for (int i = 0; i < 3; i++) {
        w[i].t = i == 0 ? unarmed() : w[0].t;
        w[i].until = weft_in((100 + 20 * i) * MS);
    }
    CHECK(!weft_timer_reset(w[0].t, WEFT_MINUTE));
    start_waits(w, 3);
    CHECK(weft_timer_stop(w[0].t));
    for (int i = 0; i < 3; i++) {
        weft_event_wait(&w[i].returned);
        CHECK_EQ(atomic_load(&w[i].result), -ETIMEDOUT);
    }
    CHECK(!has_fired(w[0].t));
    weft_timer_free(w[0].t);
    return 0;
}

static int stop_expired(void *arg) {
    (void)arg;
    weft_timer *t = expired();
    CHECK(weft_timer_stop(t));
    CHECK(!has_fired(t));
    CHECK(!weft_timer_stop(t));
    weft_timer_free(t);
    return 0;
}

static int results_of_reset(void *arg) {
    (void)arg;
    weft_timer *t = unarmed();
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(weft_timer_reset(t, 1));
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    weft_timer_free(t);
    return 0;
}

static int late_value_has_nominal_time(void *arg) {
    (void)arg;
    weft_timer *t;
    weft_time nominal;
    int64_t before = now();
    WEFT_MUST(weft_timer_new(&t, 10 * MS, NULL));
    int64_t after = now();
    CHECK_EQ(weft_sleep(50 * MS), 0);
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_GE(nominal.ns, before + 10 * MS);
    CHECK_LE(nominal.ns, after + 10 * MS);
    weft_timer_free(t);
    return 0;
}

TEST(conform, conform_030) { run_at(2, stop_unarmed, NULL); }
TEST(conform, conform_031) { run_at(2, reset_unarmed_to_far, NULL); }
TEST(conform, conform_032) { run_at(2, one_tick, NULL); }
TEST(conform, conform_033) { run_at(2, no_old_value, NULL); }
TEST(conform, conform_034) { run_at(2, reset_under_a_waiter, NULL); }
TEST(conform, conform_035a) {
    run_at(1, one_tick, NULL);
    run_at(1, reset_under_a_waiter, NULL);
}
TEST(conform, conform_036a) { run_at(2, two_waiters, NULL); }
TEST(conform, conform_037a) { run_at(2, waiters_of_a_stopped_one, NULL); }
TEST(conform, conform_038) { run_at(2, stop_expired, NULL); }
TEST(conform, conform_039a) { run_at(2, results_of_reset, NULL); }
TEST(conform, conform_040a) { run_at(2, late_value_has_nominal_time, NULL); }
