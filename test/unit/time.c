/* unit/time.c: points and lengths of time, the clocks, sleep. */
#include "world.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

/* ---- arithmetic ---- */

TEST(time, arithmetic_saturates) {
    int64_t most = INT64_MAX, least = INT64_MIN;
    CHECK_EQ(weft_time_add(weft_time_at(5), 7).ns, 12);
    CHECK_EQ(weft_time_add(weft_time_at(5), -7).ns, -2);
    CHECK_EQ(weft_time_add(weft_time_at(most - 1), 1).ns, most);
    CHECK_EQ(weft_time_add(weft_time_at(most - 1), 2).ns, most);
    CHECK_EQ(weft_time_add(weft_time_at(1), most).ns, most);
    CHECK_EQ(weft_time_add(weft_time_at(0), WEFT_FOREVER).ns, most);
    CHECK_EQ(weft_time_add(weft_time_at(-1), most).ns, most - 1);
    CHECK_EQ(weft_time_add(WEFT_NEVER, -1).ns, most); /* never stays never */
    CHECK_EQ(weft_time_add(WEFT_NEVER, least).ns, most);
    CHECK_EQ(weft_time_add(weft_time_at(least), -1).ns, least);
    CHECK_EQ(weft_time_add(weft_time_at(-1), least).ns, least);
    CHECK_EQ(weft_time_add(weft_time_at(0), least).ns, least);
    CHECK_EQ(weft_time_add(weft_time_at(least), most).ns, -1);

    CHECK_EQ(weft_time_sub(weft_time_at(7), weft_time_at(5)), 2);
    CHECK_EQ(weft_time_sub(weft_time_at(5), weft_time_at(7)), -2);
    CHECK_EQ(weft_time_sub(weft_time_at(most), weft_time_at(-1)), most);
    CHECK_EQ(weft_time_sub(weft_time_at(most), weft_time_at(least)), most);
    CHECK_EQ(weft_time_sub(weft_time_at(least), weft_time_at(1)), least);
    CHECK_EQ(weft_time_sub(weft_time_at(least), weft_time_at(most)), least);
    CHECK_EQ(weft_time_sub(weft_time_at(0), weft_time_at(least)), most);
    CHECK_EQ(weft_time_sub(weft_time_at(-1), weft_time_at(least)), most);
    CHECK_EQ(weft_time_sub(weft_time_at(least), weft_time_at(least)), 0);
    CHECK_EQ(weft_time_sub(weft_time_at(most), weft_time_at(most)), 0);

    CHECK_EQ(weft_time_cmp(weft_time_at(1), weft_time_at(2)), -1);
    CHECK_EQ(weft_time_cmp(weft_time_at(2), weft_time_at(1)), 1);
    CHECK_EQ(weft_time_cmp(weft_time_at(least), weft_time_at(most)), -1);
    CHECK_EQ(weft_time_cmp(WEFT_NEVER, WEFT_NEVER), 0);
}

TEST(time, units) {
    CHECK_EQ(WEFT_MICROSECOND, 1000);
    CHECK_EQ(WEFT_MILLISECOND, 1000000);
    CHECK_EQ(WEFT_SECOND, 1000000000);
    CHECK_EQ(WEFT_MINUTE, 60 * WEFT_SECOND);
    CHECK_EQ(WEFT_HOUR, 60 * WEFT_MINUTE);
}

/* ---- clocks ---- */

PLAYED(time, now_is_the_monotonic_clock) {
    for (int i = 0; i < 100; i++) {
        int64_t before = clock_ns();
        weft_time t = weft_now();
        CHECK_GE(t.ns, before);
        CHECK_LE(t.ns, clock_ns());
    }
    int64_t before = clock_ns();
    weft_time in = weft_in(WEFT_HOUR);
    CHECK_GE(in.ns, before + WEFT_HOUR);
    CHECK_LE(in.ns, clock_ns() + WEFT_HOUR);
    CHECK_EQ(weft_in(WEFT_FOREVER).ns, INT64_MAX);
}

TEST(time, wall) {
    struct timespec a, b;
    clock_gettime(CLOCK_REALTIME, &a);
    weft_time now = weft_now();
    int64_t wall = weft_wall(now);
    clock_gettime(CLOCK_REALTIME, &b);
    int64_t slack = 50 * WEFT_MILLISECOND; /* the two clocks are read one after the other */
    CHECK_GE(wall, a.tv_sec * WEFT_SECOND + a.tv_nsec - slack);
    CHECK_LE(wall, b.tv_sec * WEFT_SECOND + b.tv_nsec + slack);
    int64_t hour = weft_wall(weft_time_add(now, WEFT_HOUR)) - weft_wall(now);
    CHECK_GT(hour, WEFT_HOUR - slack);
    CHECK_LT(hour, WEFT_HOUR + slack);
    CHECK_EQ(weft_wall(WEFT_NEVER), INT64_MAX);
}

/* ---- sleep ---- */

PLAYED(time, sleep_is_never_early) {
    static const weft_duration lengths[] = {1,       100,     1000,    50000,   999999,
                                            1000000, 1000001, 2500000, 7777777, 25000000};
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
        for (int k = 0; k < 3; k++) {
            int64_t start = clock_ns();
            CHECK_EQ(weft_sleep(lengths[i]), 0);
            CHECK_GE(clock_ns(), start + lengths[i]);
            weft_time end = weft_in(lengths[i]);
            CHECK_EQ(weft_sleep_until(end), 0);
            CHECK_GE(clock_ns(), end.ns);
        }
    }
}

/* Not even a yield: whoever stands in line stays there. */
static atomic_int ran;

static int run(void *arg) {
    (void)arg;
    atomic_store(&ran, 1);
    return 0;
}

static int sleep_not_at_all(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(run, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(weft_sleep(0), 0);
        CHECK_EQ(weft_sleep(-1), 0);
        CHECK_EQ(weft_sleep(INT64_MIN), 0);
        CHECK_EQ(weft_sleep_until(weft_time_at(0)), 0);
        CHECK_EQ(weft_sleep_until(weft_time_at(INT64_MIN)), 0);
        CHECK_EQ(weft_sleep_until(weft_time_at(clock_ns())), 0);
    }
    CHECK_EQ(atomic_load(&ran), 0);
    weft_yield();
    CHECK_EQ(atomic_load(&ran), 1);
    return 0;
}

TEST(time, a_sleep_of_nothing_does_not_yield) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(sleep_not_at_all, NULL, &c, NULL), 0);
}

static int sleep_for_ever(void *arg) {
    return arg == NULL ? weft_sleep(WEFT_FOREVER) : weft_sleep_until(WEFT_NEVER);
}

static int two_sleep_for_ever(void *arg) {
    party *p = arg;
    world.parties = PARTIES_GREEN;
    party_start(&p[0], sleep_for_ever, NULL);
    party_start(&p[1], sleep_for_ever, p);
    party_parked(&p[0]);
    party_parked(&p[1]);
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    CHECK_EQ(s.timers_pending, 0); /* for ever needs no timer */
    CHECK_EQ(weft_sleep(5 * WEFT_MILLISECOND), 0);
    CHECK_EQ(atomic_load(&p[0].ended) + atomic_load(&p[1].ended), 0);
    return 0;
}

TEST(time, sleep_for_ever_ends_with_the_runtime) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        static party p[2];
        weft_config c = config_of(procs);
        CHECK_EQ(weft_run(two_sleep_for_ever, p, &c, NULL), 0);
        CHECK_EQ(party_end(&p[0]), -ECANCELED);
        CHECK_EQ(party_end(&p[1]), -ECANCELED);
    }
}

/* Many at once, with every length: none early, all back. */
static int sleep_to_end(void *arg) {
    weft_time end = *(weft_time *)arg;
    CHECK_EQ(weft_sleep_until(end), 0);
    CHECK_GE(clock_ns(), end.ns);
    return 0;
}

PLAYED(time, many_sleepers) {
    enum { SLEEPERS = 100 };
    static party p[SLEEPERS];
    static weft_time ends[SLEEPERS];
    weft_time start = weft_in(5 * WEFT_MILLISECOND);
    for (int i = 0; i < SLEEPERS; i++) {
        int k = i * 77 % SLEEPERS;
        ends[i] = weft_time_add(start, k * 100 * WEFT_MICROSECOND);
        party_start(&p[i], sleep_to_end, &ends[i]);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        CHECK_EQ(party_end(&p[i]), 0);
    }
    CHECK_GE(clock_ns(), ends[SLEEPERS - 1].ns);
}

/* ---- signals in the middle ---- */

static void on_alarm(int sig) { (void)sig; }

static int sleep_through_signals(void *arg) {
    (void)arg;
    int64_t start = clock_ns();
    for (int i = 0; i < 5; i++) {
        int64_t before = clock_ns();
        CHECK_EQ(weft_sleep(15 * WEFT_MILLISECOND), 0);
        CHECK_GE(clock_ns() - before, 15 * WEFT_MILLISECOND);
    }
    CHECK_GE(clock_ns() - start, 75 * WEFT_MILLISECOND);
    return 0;
}

TEST(time, signals_do_not_shorten_a_sleep) {
    struct sigaction sa = {.sa_handler = on_alarm}; /* without SA_RESTART */
    CHECK_EQ(sigaction(SIGALRM, &sa, NULL), 0);
    struct itimerval often = {.it_interval = {0, 300}, .it_value = {0, 300}};
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    sleep_through_signals(NULL);
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = config_of(procs);
        CHECK_EQ(weft_run(sleep_through_signals, NULL, &c, NULL), 0);
    }
    struct itimerval off = {0};
    setitimer(ITIMER_REAL, &off, NULL);
}

/* ---- in an idle process ---- */

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int short_sleeps(void *arg) {
    (void)arg;
    enum { SLEEPS = 300 };
    static int64_t late[SLEEPS];
    for (int i = 0; i < SLEEPS; i++) {
        weft_time end = weft_in(100 * WEFT_MICROSECOND);
        CHECK_EQ(weft_sleep_until(end), 0);
        late[i] = clock_ns() - end.ns;
        CHECK_GE(late[i], 0);
    }
    qsort(late, SLEEPS, sizeof late[0], by_size);
    int64_t median = late[SLEEPS / 2];
    test_clock(median <= (int64_t)(100 * WEFT_MICROSECOND * test_slack()),
               "median lateness of a 100 us sleep: %lld us", (long long)(median / 1000));
    return 0;
}

TEST(time, short_sleeps_are_short) {
    weft_config c = config_of(2);
    CHECK_EQ(weft_run(short_sleeps, NULL, &c, NULL), 0);
}
