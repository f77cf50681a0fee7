/* conform/sync.c: mutex and waitgroup. A test is named by the line of the list that it comes from
   (README.md). */
#include "field/field.h"

#include <errno.h>
#include <pthread.h>

/* ---- 128: a mutex hammered, with tries between ----------------------------------------------- */

enum { HAMMERS = 10, BLOWS = 1000, ROUNDS = 20 };

static struct {
    weft_mutex m;
    long plain; /* only touched by who holds m */
    atomic_int inside;
    atomic_long tries_won;
    weft_waitgroup all;
} anvil;

static void strike(void) {
    CHECK_EQ(atomic_fetch_add(&anvil.inside, 1), 0);
    anvil.plain++;
    atomic_fetch_sub(&anvil.inside, 1);
}

static int hammer(void *arg) {
    (void)arg;
    for (int i = 0; i < BLOWS; i++) {
        if (i % 3 == 0) {
            if (!weft_mutex_try_lock(&anvil.m)) {
                continue;
            }
            atomic_fetch_add(&anvil.tries_won, 1);
        } else {
            weft_mutex_lock(&anvil.m);
            atomic_fetch_add(&anvil.tries_won, 1);
        }
        strike();
        weft_mutex_unlock(&anvil.m);
        if (i % 64 == 0) {
            weft_yield();
        }
    }
    return 0;
}

static int hammer_hard(void *arg) {
    (void)arg;
    CHECK(weft_mutex_try_lock(&anvil.m));
    CHECK(!weft_mutex_try_lock(&anvil.m));
    weft_mutex_unlock(&anvil.m);
    CHECK(weft_mutex_try_lock(&anvil.m));
    weft_mutex_unlock(&anvil.m);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < HAMMERS; i++) {
            WEFT_MUST(weft_waitgroup_go(&anvil.all, hammer, NULL));
        }
        weft_waitgroup_wait(&anvil.all);
    }
    CHECK_EQ(anvil.plain, atomic_load(&anvil.tries_won));
    CHECK_GE(anvil.plain, ROUNDS * HAMMERS * (BLOWS - BLOWS / 3 - 1));
    return 0;
}

TEST_IN(conform, conform_128, 60) {
    run_at(1, hammer_hard, NULL);
    anvil.plain = 0;
    atomic_store(&anvil.tries_won, 0);
    run_at(4, hammer_hard, NULL);
}

/* ---- 130: who holds the lock long cannot starve who wants it seldom -------------------------- */

static struct {
    weft_mutex m;
    atomic_bool stop;
    atomic_long held;
} greedy;

static int hold_long(void *arg) {
    (void)arg;
    while (!atomic_load(&greedy.stop)) {
        weft_mutex_lock(&greedy.m);
        busy(100 * US);
        atomic_fetch_add(&greedy.held, 1);
        weft_mutex_unlock(&greedy.m);
    }
    return 0;
}

static int want_seldom(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    WEFT_MUST(weft_waitgroup_go(&wg, hold_long, NULL));
    int64_t start = now();
    long most_between = 0;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_sleep(100 * US), 0);
        long before = atomic_load(&greedy.held);
        weft_mutex_lock(&greedy.m);
        most_between = most(most_between, atomic_load(&greedy.held) - before);
        weft_mutex_unlock(&greedy.m);
    }
    int64_t took = now() - start;
    atomic_store(&greedy.stop, true);
    weft_waitgroup_wait(&wg);
    printf("130: the holder got it at most %ld times in between\n", most_between);
    CHECK_LT(most_between, 10000); /* a second's worth; handed over after a millisecond */
    test_clock(within(took, 10 * SEC), "ten locks took %.2f ms, bound 10 s", (double)took / MS);
    return 0;
}

TEST_IN(conform, conform_130, 60) { run_at(2, want_seldom, NULL); }

/* ---- 133: waitgroups ------------------------------------------------------------------------- */

enum { GROUP = 16 };

static struct {
    weft_waitgroup go, done;
    atomic_int exited;
} meeting;

static int attend(void *arg) {
    (void)arg;
    weft_waitgroup_done(&meeting.go);
    weft_waitgroup_wait(&meeting.done);
    atomic_fetch_add(&meeting.exited, 1);
    return 0;
}

static int many_rounds(void *arg) {
    (void)arg;
    for (int round = 0; round < 200; round++) {
        weft_waitgroup ended = WEFT_WAITGROUP_INIT;
        atomic_store(&meeting.exited, 0);
        weft_waitgroup_add(&meeting.go, GROUP);
        weft_waitgroup_add(&meeting.done, GROUP);
        for (int i = 0; i < GROUP; i++) {
            WEFT_MUST(weft_waitgroup_go(&ended, attend, NULL));
        }
        weft_waitgroup_wait(&meeting.go);
        for (int i = 0; i < GROUP; i++) {
            CHECK_EQ(atomic_load(&meeting.exited), 0);
            weft_waitgroup_done(&meeting.done);
        }
        weft_waitgroup_wait(&ended);
        CHECK_EQ(atomic_load(&meeting.exited), GROUP);
    }
    return 0;
}

/* A waitgroup on the waiter's stack, gone the moment wait returns: a `done` that touched it
   afterwards would write into the next one. */
static int count_up(void *counter) {
    atomic_fetch_add((atomic_int *)counter, 1);
    return 0;
}

static int wait_and_leave(void) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    atomic_int n = 0;
    WEFT_MUST(weft_waitgroup_go(&wg, count_up, &n));
    WEFT_MUST(weft_waitgroup_go(&wg, count_up, &n));
    weft_waitgroup_wait(&wg);
    CHECK_EQ(atomic_load(&n), 2);
    return 0;
}

static int race_of_done_and_wait(void *arg) {
    (void)arg;
    for (int i = 0; i < (UNDER_TSAN ? 1000 : 20000); i++) {
        wait_and_leave();
    }
    return 0;
}

static int wait_with_a_time(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_wait_until(&wg, weft_in(-1)), 0);
    weft_waitgroup_add(&wg, 1);
    int64_t start = now();
    CHECK_EQ(weft_waitgroup_wait_until(&wg, weft_in(5 * MS)), -ETIMEDOUT);
    CHECK_GE(now() - start, 5 * MS);
    CHECK_EQ(weft_waitgroup_wait_until(&wg, weft_in(-1)), -ETIMEDOUT);
    weft_waitgroup_done(&wg);
    CHECK_EQ(weft_waitgroup_wait_until(&wg, WEFT_NEVER), 0);
    weft_waitgroup_wait(&wg);
    return 0;
}

static void at_one_two_four(weft_fn fn) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        run_at(procs, fn, NULL);
    }
}

/* That a count below zero ends the process is in fatal/misuse.c. */
TEST_IN(conform, conform_133, 60) {
    at_one_two_four(many_rounds);
    at_one_two_four(race_of_done_and_wait);
    at_one_two_four(wait_with_a_time);
}
