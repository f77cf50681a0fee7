/* unit/gate.c: what opens once and lets everybody through: waitgroups and events. */
#include "world.h"

#include <limits.h>
#include <signal.h>

static weft_time past(void) { return weft_time_at(1); }
static weft_time later(void) { return weft_in(WEFT_HOUR); }

/* ---- waitgroup ---- */

static int wait_group(void *arg) {
    weft_waitgroup_wait(arg);
    return 0;
}

static int wait_group_until(void *arg) { return weft_waitgroup_wait_until(arg, later()); }

static int wait_group_never(void *arg) { return weft_waitgroup_wait_until(arg, WEFT_NEVER); }

static int finish_one(void *arg) {
    weft_waitgroup_done(arg);
    return 0;
}

PLAYED(waitgroup, open_at_zero) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT, zero;
    memset(&zero, 0, sizeof zero);
    CHECK_MEM(&w, &zero, sizeof w);
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_waitgroup_wait_until(&w, past()), 0);
    CHECK_EQ(weft_waitgroup_wait_until(&w, later()), 0);
    CHECK_EQ(weft_waitgroup_wait_until(&w, WEFT_NEVER), 0);
    weft_waitgroup_add(&w, 5);
    weft_waitgroup_add(&w, 0);
    weft_waitgroup_add(&w, -3);
    CHECK_EQ(weft_waitgroup_wait_until(&w, past()), -ETIMEDOUT);
    weft_waitgroup_done(&w);
    CHECK_EQ(weft_waitgroup_wait_until(&w, past()), -ETIMEDOUT);
    weft_waitgroup_done(&w);
    weft_waitgroup_wait(&w);
    CHECK_MEM(&w, &zero, sizeof w);
}

PLAYED(waitgroup, a_deadline_ends_a_wait) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&w, 1);
    for (int i = 1; i < 4; i++) {
        weft_time until = weft_in(i * 400 * WEFT_MICROSECOND);
        CHECK_EQ(weft_waitgroup_wait_until(&w, until), -ETIMEDOUT);
        CHECK_GE(clock_ns(), until.ns);
    }
    weft_waitgroup_done(&w);
    weft_waitgroup_wait(&w);
}

PLAYED(waitgroup, all_waiters_go) {
    static const weft_fn forms[] = {wait_group, wait_group_until, wait_group_never};
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int round = 0; round < 3; round++) { /* it may be used again */
        party p[6];
        weft_waitgroup_add(&w, 2);
        for (int i = 0; i < 6; i++) {
            party_start(&p[i], forms[i % 3], &w);
        }
        for (int i = 0; i < 6; i++) {
            party_parked(&p[i]);
        }
        weft_waitgroup_done(&w);
        for (int i = 0; i < 6; i++) {
            CHECK_EQ(atomic_load(&p[i].ended), 0);
        }
        weft_waitgroup_done(&w);
        for (int i = 0; i < 6; i++) {
            CHECK_EQ(party_end(&p[i]), 0);
        }
    }
}

PLAYED(waitgroup, waits_for_the_last) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    party p[8];
    weft_waitgroup_add(&w, 8);
    for (int i = 0; i < 8; i++) {
        party_start(&p[i], finish_one, &w);
    }
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_waitgroup_wait_until(&w, past()), 0);
    for (int i = 0; i < 8; i++) {
        party_end(&p[i]);
    }
}

static int add_up(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 5;
}

static int exit_early(void *arg) {
    (void)arg;
    weft_exit(1);
}

PLAYED_GREEN(waitgroup, go) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    atomic_int count = 0;
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, add_up, &count), 0);
    }
    weft_waitgroup_wait(&w);
    CHECK_EQ(atomic_load(&count), 100);
}

/* However its body ends. */
PLAYED_GREEN(waitgroup, go_and_exit) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, exit_early, NULL), 0);
    }
    weft_waitgroup_wait(&w);
}

static void add_too_many(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    (void)arg;
    weft_waitgroup_add(&w, INT_MAX);
    weft_waitgroup_add(&w, 1);
}

static void done_too_often(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    (void)arg;
    weft_waitgroup_add(&w, 1);
    weft_waitgroup_done(&w);
    weft_waitgroup_done(&w);
}

static void take_away_too_many(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    (void)arg;
    weft_waitgroup_add(&w, 3);
    weft_waitgroup_add(&w, -4);
}

TEST(waitgroup, a_count_out_of_range_is_fatal) {
    CHECK_FAILS(SIGABRT, "weft: fatal: waitgroup", done_too_often, NULL);
    CHECK_FAILS(SIGABRT, "weft: fatal: waitgroup", take_away_too_many, NULL);
    CHECK_FAILS(SIGABRT, "weft: fatal: waitgroup", add_too_many, NULL);
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&w, INT_MAX);
    weft_waitgroup_add(&w, -INT_MAX);
    weft_waitgroup_wait(&w);
}

/* ---- event ---- */

static int wait_event(void *arg) {
    weft_event_wait(arg);
    return 0;
}

static int wait_event_until(void *arg) { return weft_event_wait_until(arg, later()); }

static int wait_event_never(void *arg) { return weft_event_wait_until(arg, WEFT_NEVER); }

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

PLAYED(event, set_and_reset) {
    weft_event e = WEFT_EVENT_INIT, zero;
    memset(&zero, 0, sizeof zero);
    CHECK_MEM(&e, &zero, sizeof e);
    CHECK(!weft_event_is_set(&e));
    CHECK_EQ(weft_event_wait_until(&e, past()), -ETIMEDOUT);
    weft_event_set(&e);
    weft_event_set(&e);
    CHECK(weft_event_is_set(&e));
    weft_event_wait(&e); /* it stays set */
    weft_event_wait(&e);
    CHECK_EQ(weft_event_wait_until(&e, past()), 0);
    CHECK_EQ(weft_event_wait_until(&e, later()), 0);
    CHECK_EQ(weft_event_wait_until(&e, WEFT_NEVER), 0);
    weft_event_reset(&e);
    weft_event_reset(&e);
    CHECK(!weft_event_is_set(&e));
    CHECK_EQ(weft_event_wait_until(&e, past()), -ETIMEDOUT);
    CHECK_MEM(&e, &zero, sizeof e);
}

PLAYED(event, a_deadline_ends_a_wait) {
    weft_event e = WEFT_EVENT_INIT;
    for (int i = 1; i < 4; i++) {
        weft_time until = weft_in(i * 400 * WEFT_MICROSECOND);
        CHECK_EQ(weft_event_wait_until(&e, until), -ETIMEDOUT);
        CHECK_GE(clock_ns(), until.ns);
    }
    weft_event_set(&e);
    weft_event_wait(&e);
}

PLAYED(event, all_waiters_go) {
    static const weft_fn forms[] = {wait_event, wait_event_until, wait_event_never};
    weft_event e = WEFT_EVENT_INIT;
    for (int round = 0; round < 3; round++) {
        party p[6];
        for (int i = 0; i < 6; i++) {
            party_start(&p[i], forms[i % 3], &e);
        }
        for (int i = 0; i < 6; i++) {
            party_parked(&p[i]);
        }
        weft_event_set(&e);
        for (int i = 0; i < 6; i++) {
            CHECK_EQ(party_end(&p[i]), 0);
        }
        CHECK(weft_event_is_set(&e));
        weft_event_reset(&e);
    }
}

PLAYED(event, set_by_another) {
    for (int i = 0; i < 50; i++) {
        weft_event e = WEFT_EVENT_INIT;
        party p;
        party_start(&p, set_event, &e);
        weft_event_wait(&e);
        party_end(&p);
    }
}

/* A waiter that has given up is not in the way of the next. */
PLAYED(event, given_up_then_set) {
    weft_event e = WEFT_EVENT_INIT;
    party p, q;
    party_start(&p, wait_event, &e);
    party_parked(&p);
    CHECK_EQ(weft_event_wait_until(&e, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    party_start(&q, wait_event_until, &e);
    party_parked(&q);
    weft_event_set(&e);
    CHECK_EQ(party_end(&p), 0);
    CHECK_EQ(party_end(&q), 0);
}

/* Set under a waiter, and reset before it has run: it was woken all the same. */
PLAYED(event, set_and_reset_at_once_wakes) {
    weft_event e = WEFT_EVENT_INIT;
    party p;
    party_start(&p, wait_event, &e);
    party_parked(&p);
    weft_event_set(&e);
    weft_event_reset(&e);
    CHECK_EQ(party_end(&p), 0);
    CHECK(!weft_event_is_set(&e));
}
