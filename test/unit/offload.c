/* unit/offload.c: a bounded class of calls that block. */
#include "test.h"
#include "unit/world.h"

#include <stdio.h>

static weft_stats read_stats(void) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    return s;
}

static atomic_int inside, most_inside, ended, next_turn;
static atomic_bool open_gate;

static void thread_nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL); }

static int waits(void *arg) {
    int n = atomic_fetch_add(&inside, 1) + 1;
    int most = atomic_load(&most_inside);
    while (n > most && !atomic_compare_exchange_weak(&most_inside, &most, n)) {
    }
    while (!atomic_load(&open_gate)) {
        thread_nap();
    }
    atomic_fetch_sub(&inside, 1);
    return *(int *)arg;
}

static weft_config bounded(int procs, int slots) {
    weft_config c = config_of(procs);
    c.max_threads = 2 * slots > procs ? 2 * slots : procs + 1;
    atomic_store(&inside, 0);
    atomic_store(&most_inside, 0);
    atomic_store(&ended, 0);
    atomic_store(&next_turn, 0);
    atomic_store(&open_gate, false);
    return c;
}

/* ---- results, errors ---------------------------------------------------------------------------- */

static int twice(void *arg) { return 2 * *(int *)arg; }

static void results(void) {
    int result = 0;
    CHECK_EQ(weft_offload(NULL, NULL, &result), -EINVAL);
    CHECK_EQ(weft_offload(twice, &(int){21}, &result), 0);
    CHECK_EQ(result, 42);
    CHECK_EQ(weft_offload(twice, &(int){21}, NULL), 0);
}

PLAYED(offload, results) { results(); }

/* ---- the bound ---------------------------------------------------------------------------------- */

static int offloads(void *arg) {
    int result = 0;
    CHECK_EQ(weft_offload(waits, arg, &result), 0);
    CHECK_EQ(result, *(int *)arg);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int bound(void *arg) {
    enum { MANY = 20, SLOTS = 4 };
    static int number[MANY];
    (void)arg;
    for (int i = 0; i < MANY; i++) {
        number[i] = i + 1;
        CHECK_EQ(weft_go(offloads, &number[i]), 0);
    }
    UNTIL(atomic_load(&inside) == SLOTS);
    UNTIL(read_stats().offload_queued == MANY - SLOTS);
    CHECK_EQ(read_stats().offload_running, SLOTS);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_sleep(100 * WEFT_MICROSECOND), 0); /* others run */
    }
    CHECK_EQ(atomic_load(&inside), SLOTS);
    atomic_store(&open_gate, true);
    UNTIL(atomic_load(&ended) == MANY);
    CHECK_EQ(atomic_load(&most_inside), SLOTS);
    CHECK_EQ(read_stats().offload_queued + read_stats().offload_running, 0);
    return 0;
}

TEST(offload, so_many_at_once) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = bounded(procs, 4);
        CHECK_EQ(weft_run(bound, NULL, &c, NULL), 0);
    }
}

/* ---- in line ------------------------------------------------------------------------------------ */

static int in_turn(void *arg) {
    CHECK_EQ(atomic_fetch_add(&next_turn, 1), *(int *)arg);
    return 0;
}

static int goes_in_turn(void *arg) {
    CHECK_EQ(weft_offload(in_turn, arg, NULL), 0);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int one = 1;

static int line(void *arg) {
    enum { MANY = 30 };
    static int number[MANY];
    (void)arg;
    CHECK_EQ(weft_go(offloads, &one), 0);
    UNTIL(atomic_load(&inside) == 1);
    for (int i = 0; i < MANY; i++) {
        number[i] = i;
        CHECK_EQ(weft_go(goes_in_turn, &number[i]), 0);
        UNTIL(read_stats().offload_queued == (uint64_t)i + 1);
    }
    atomic_store(&open_gate, true);
    UNTIL(atomic_load(&ended) == MANY + 1);
    return 0;
}

TEST(offload, first_come_first_served) {
    weft_config c = bounded(2, 1);
    CHECK_EQ(weft_run(line, NULL, &c, NULL), 0);
}

/* ---- ends --------------------------------------------------------------------------------------- */

static int is_cut_off(void *arg) {
    CHECK_EQ(weft_offload(twice, arg, NULL), -ECANCELED);
    CHECK_EQ(weft_offload(twice, arg, NULL), -ECANCELED);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int stopped(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(offloads, &one), 0);
    UNTIL(atomic_load(&inside) == 1);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_go(is_cut_off, NULL), 0);
    }
    UNTIL(read_stats().offload_queued == 5);
    CHECK_EQ(weft_request_stop(NULL), 0);
    while (atomic_load(&ended) < 5) {
        weft_yield();
    }
    CHECK_EQ(atomic_load(&inside), 1); /* it is waited for */
    CHECK_EQ(read_stats().offload_queued, 0);
    atomic_store(&open_gate, true);
    return 0;
}

TEST(offload, a_stop_ends_the_wait_alone) {
    weft_config c = bounded(2, 1);
    CHECK_EQ(weft_run(stopped, NULL, &c, NULL), 0);
    CHECK_EQ(atomic_load(&ended), 6);
}

static int exits(void *arg) {
    (void)arg;
    weft_exit(3);
}

static int offloads_an_exit(void *arg) {
    (void)arg;
    CHECK(weft_offload(exits, NULL, NULL) == 12345); /* does not come back */
    return 0;
}

static int exit_inside(void *arg) {
    (void)arg;
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_go(offloads_an_exit, NULL), 0);
    }
    UNTIL(read_stats().gs_ended == 5);
    CHECK_EQ(read_stats().offload_running, 0);
    results();
    return 0;
}

TEST(offload, who_exits_inside_gives_its_slot_back) {
    weft_config c = bounded(2, 1);
    CHECK_EQ(weft_run(exit_inside, NULL, &c, NULL), 0);
}

/* ---- without handoff ---------------------------------------------------------------------------- */

static int opens(void *arg) {
    (void)arg;
    atomic_store(&open_gate, true);
    return 0;
}

static int exclusive(void *arg) {
    int result = 0;
    CHECK_EQ(weft_go(opens, NULL), 0); /* on the only P, while waits runs without */
    CHECK_EQ(weft_offload(waits, arg, &result), 0);
    CHECK_EQ(result, 8);
    return 0;
}

TEST(offload, others_run_under_exclusive) {
    weft_config c = bounded(1, 2);
    c.flags |= WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(exclusive, &(int){8}, &c, NULL), 0);
}
