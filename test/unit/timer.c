/* unit/timer.c: timers made by green threads, handled by green threads, plain threads and those of
 * another runtime.
 */
#include "world.h"

#include <stdlib.h>

/* Green callers at 1, 2 and 4 Ps; the parties are green, plain, or of another runtime. */
#define TIMED(name)                                                                                \
    static void timer_##name##_scene(void);                                                        \
    TEST(timer, name##_1) { play(timer_##name##_scene, 1, PARTIES_GREEN); }                        \
    TEST(timer, name##_4) { play(timer_##name##_scene, 4, PARTIES_GREEN); }                        \
    TEST(timer, name##_plain) { play(timer_##name##_scene, 2, PARTIES_PLAIN); }                    \
    TEST(timer, name##_two_runtimes) { play(timer_##name##_scene, 2, PARTIES_FOREIGN); }           \
    static void timer_##name##_scene(void)

static weft_timer_options exact(void) {
    weft_timer_options o = weft_timer_options_default();
    o.slack = -1;
    return o;
}

static weft_time past(void) { return weft_time_at(1); }

/* ---- made badly ---- */

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static weft_timer *const untouched = (weft_timer *)&world;

TEST(timer, needs_a_runtime) {
    weft_timer *t = untouched;
    CHECK_EQ(weft_timer_new(&t, 0, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_after_func(&t, 0, nothing, NULL, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_after_func(NULL, 0, nothing, NULL, NULL), WEFT_ENORUNTIME);
    CHECK(t == untouched);
    weft_timer_free(NULL);
}

PLAYED_GREEN(timer, made_badly) {
    weft_timer *t = untouched;
    weft_timer_options o = weft_timer_options_default();
    CHECK_EQ(weft_timer_new(NULL, 0, NULL), -EINVAL);
    CHECK_EQ(weft_after_func(&t, 0, NULL, NULL, NULL), -EINVAL);
    o.size = 0;
    CHECK_EQ(weft_timer_new(&t, 0, &o), -EINVAL);
    CHECK_EQ(weft_after_func(&t, 0, nothing, NULL, &o), -EINVAL);
    o = weft_timer_options_default();
    o.reserved0 = 1;
    CHECK_EQ(weft_timer_new(&t, 0, &o), -EINVAL);
    o = weft_timer_options_default();
    o.reserved1 = 1;
    CHECK_EQ(weft_timer_new(&t, 0, &o), -EINVAL);
    o = weft_timer_options_default();
    o.reserved[4] = &o;
    CHECK_EQ(weft_timer_new(&t, 0, &o), -EINVAL);
    struct {
        weft_timer_options o;
        char more[16];
    } newer = {exact(), {0}};
    newer.o.size = sizeof newer;
    newer.more[15] = 1;
    CHECK_EQ(weft_timer_new(&t, 0, &newer.o), -EINVAL);
    CHECK(t == untouched);
    newer.more[15] = 0;
    CHECK_EQ(weft_timer_new(&t, 0, &newer.o), 0);
    weft_timer_free(t);
    t = untouched;
    CHECK_EQ(weft_after_func(&t, WEFT_HOUR, nothing, NULL, NULL), 0);
    weft_time nominal = weft_time_at(4);
    CHECK_EQ(weft_timer_wait(t, &nominal), -EINVAL); /* its firings go to a function */
    CHECK_EQ(weft_timer_wait_until(t, &nominal, past()), -EINVAL);
    CHECK_EQ(nominal.ns, 4);
    weft_timer_free(t);
}

/* ---- to wait on ---- */

PLAYED_GREEN(timer, a_firing_is_taken_once) {
    weft_timer *t;
    weft_timer_options o = exact();
    for (int i = 0; i < 4; i++) {
        weft_duration after = i * 700 * WEFT_MICROSECOND;
        int64_t start = clock_ns();
        weft_time nominal = weft_time_at(0);
        CHECK_EQ(weft_timer_new(&t, after, i % 2 ? &o : NULL), 0);
        if (i == 3) {
            weft_sleep(2 * after); /* due before anybody looks */
        }
        CHECK_EQ(weft_timer_wait(t, &nominal), 0);
        CHECK_GE(clock_ns(), nominal.ns);
        CHECK_GE(nominal.ns, start + after);
        CHECK_LE(nominal.ns, clock_ns());
        CHECK_EQ(weft_timer_wait_until(t, &nominal, past()), -ETIMEDOUT);
        CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
        CHECK(!weft_timer_stop(t)); /* its effect has happened */
        CHECK(!weft_timer_reset(t, 0));
        CHECK_EQ(weft_timer_wait(t, NULL), 0);
        weft_timer_free(t);
    }
}

PLAYED_GREEN(timer, past_and_never) {
    weft_timer *t;
    weft_time nominal;
    CHECK_EQ(weft_timer_new(&t, INT64_MIN, NULL), 0);
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK(!weft_timer_reset(t, -1));
    CHECK_EQ(weft_timer_wait_until(t, &nominal, past()), 0); /* due: a try gets it */
    CHECK(!weft_timer_reset_at(t, weft_time_at(INT64_MIN)));
    CHECK_EQ(weft_timer_wait_until(t, &nominal, WEFT_NEVER), 0);
    CHECK(!weft_timer_reset_at(t, weft_time_at(0)));
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_EQ(nominal.ns, 0);
    CHECK(!weft_timer_reset(t, WEFT_FOREVER)); /* unarmed */
    CHECK(!weft_timer_stop(t));
    CHECK(!weft_timer_reset_at(t, WEFT_NEVER));
    CHECK(!weft_timer_stop(t));
    CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    weft_timer_free(t);
    CHECK_EQ(weft_timer_new(&t, WEFT_FOREVER, NULL), 0);
    CHECK(!weft_timer_stop(t));
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(weft_timer_reset(t, INT64_MAX - 1)); /* so far away that it is never */
    CHECK(!weft_timer_stop(t));
    weft_timer_free(t);
}

PLAYED_GREEN(timer, stop_and_reset_of_a_waited_timer_are_exact) {
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    CHECK(weft_timer_stop(t));
    CHECK(!weft_timer_stop(t));
    CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(weft_timer_reset(t, 100 * WEFT_MICROSECOND)); /* earlier */
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    CHECK(!weft_timer_reset(t, 100 * WEFT_MICROSECOND));
    weft_sleep(WEFT_MILLISECOND);
    CHECK(weft_timer_reset(t, WEFT_HOUR)); /* due and not taken: pending, and no old tick after */
    CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    CHECK(weft_timer_reset(t, 0));
    CHECK(weft_timer_stop(t)); /* the same for a stop */
    CHECK_EQ(weft_timer_wait_until(t, NULL, weft_in(WEFT_MILLISECOND)), -ETIMEDOUT);
    weft_timer_free(t);
}

/* Reset to later keeps its place; the time waited for is the new one. */
PLAYED_GREEN(timer, later_is_later) {
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, 500 * WEFT_MICROSECOND, NULL), 0);
    weft_time when = weft_in(5 * WEFT_MILLISECOND), nominal;
    CHECK(weft_timer_reset_at(t, when));
    CHECK_EQ(weft_timer_wait(t, &nominal), 0);
    CHECK_GE(clock_ns(), when.ns);
    CHECK_EQ(nominal.ns, when.ns);
    weft_timer_free(t);
}

/* ---- with parties ---- */

struct waiting {
    weft_timer *timer;
    weft_time nominal, until;
};

static int wait_once(void *arg) {
    struct waiting *w = arg;
    return w->until.ns == 0 ? weft_timer_wait(w->timer, &w->nominal)
                            : weft_timer_wait_until(w->timer, &w->nominal, w->until);
}

TIMED(one_firing_for_one_waiter) {
    for (int i = 0; i < 2; i++) {
        party p[3];
        struct waiting w[3];
        weft_timer *t;
        CHECK_EQ(weft_timer_new(&t, WEFT_FOREVER, NULL), 0);
        for (int k = 0; k < 3; k++) {
            w[k] = (struct waiting){t, weft_time_at(-1), i ? weft_in(WEFT_HOUR) : weft_time_at(0)};
            party_start(&p[k], wait_once, &w[k]);
            party_parked(&p[k]);
        }
        for (int k = 0; k < 3; k++) { /* first come, first served */
            weft_time when = weft_in((1 - k) * 300 * WEFT_MICROSECOND);
            CHECK(!weft_timer_reset_at(t, when));
            CHECK_EQ(party_end(&p[k]), 0);
            CHECK_EQ(w[k].nominal.ns, when.ns);
            for (int rest = k + 1; rest < 3; rest++) {
                CHECK_EQ(atomic_load(&p[rest].ended), 0);
            }
        }
        weft_timer_free(t);
    }
}

TIMED(stop_leaves_waiters_waiting) {
    party p;
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    struct waiting w = {t, weft_time_at(-1), weft_time_at(0)};
    party_start(&p, wait_once, &w);
    party_parked(&p);
    CHECK(weft_timer_stop(t));
    CHECK(!weft_timer_reset(t, WEFT_HOUR));
    CHECK(weft_timer_reset(t, 2 * WEFT_HOUR));
    weft_sleep(WEFT_MILLISECOND);
    CHECK(party_is_parked(&p));
    CHECK(weft_timer_reset(t, 0));
    CHECK_EQ(party_end(&p), 0);
    CHECK(!weft_timer_stop(t));
    weft_timer_free(t);
}

TIMED(free_ends_waits) {
    party p[4];
    struct waiting w[4];
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    for (int k = 0; k < 4; k++) {
        w[k] = (struct waiting){t, weft_time_at(-1), k % 2 ? weft_in(WEFT_HOUR) : weft_time_at(0)};
        party_start(&p[k], wait_once, &w[k]);
        party_parked(&p[k]);
    }
    weft_timer_free(t);
    for (int k = 0; k < 4; k++) {
        CHECK_EQ(party_end(&p[k]), -EBADF);
        CHECK_EQ(w[k].nominal.ns, -1);
    }
}

TIMED(a_waiters_own_deadline) {
    party p;
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    struct waiting w = {t, weft_time_at(-1), weft_in(2 * WEFT_MILLISECOND)};
    party_start(&p, wait_once, &w);
    CHECK_EQ(party_end(&p), -ETIMEDOUT);
    CHECK_GE(clock_ns(), w.until.ns);
    CHECK_EQ(w.nominal.ns, -1);
    CHECK(weft_timer_stop(t)); /* it had nothing to do with it */
    weft_timer_free(t);
}

/* ---- functions ---- */

struct counted {
    weft_timer *timer;
    atomic_int fired;
    _Atomic int64_t at;
};

static int count(void *arg) {
    struct counted *c = arg;
    CHECK(weft_self() > 0); /* a green thread of its own: it may wait */
    weft_sleep(10 * WEFT_MICROSECOND);
    atomic_store(&c->at, clock_ns());
    atomic_fetch_add(&c->fired, 1);
    return 0;
}

PLAYED_GREEN(timer, a_function_runs_once_a_firing) {
    struct counted c = {0};
    for (int i = 0; i < 3; i++) {
        weft_duration after = (i - 1) * WEFT_MILLISECOND;
        int64_t start = clock_ns();
        atomic_store(&c.fired, 0);
        CHECK_EQ(weft_after_func(&c.timer, after, count, &c, NULL), 0);
        UNTIL(atomic_load(&c.fired) == 1);
        CHECK_GE(atomic_load(&c.at), start + after);
        CHECK(!weft_timer_stop(c.timer));
        CHECK(!weft_timer_reset(c.timer, after));
        UNTIL(atomic_load(&c.fired) == 2);
        weft_timer_free(c.timer);
        CHECK_EQ(atomic_load(&c.fired), 2);
    }
}

PLAYED_GREEN(timer, nobody_holds_it) {
    struct counted c = {0};
    CHECK_EQ(weft_after_func(NULL, 0, count, &c, NULL), 0);
    CHECK_EQ(weft_after_func(NULL, WEFT_MILLISECOND, count, &c, NULL), 0);
    CHECK_EQ(weft_after_func(NULL, WEFT_FOREVER, count, &c, NULL), 0); /* gone at once */
    UNTIL(atomic_load(&c.fired) == 2);
}

static int stop_it(void *arg) {
    struct counted *c = arg;
    return weft_timer_stop(c->timer);
}

static int reset_it(void *arg) {
    struct counted *c = arg;
    return weft_timer_reset(c->timer, 300 * WEFT_MICROSECOND);
}

static int reset_it_at(void *arg) {
    struct counted *c = arg;
    return weft_timer_reset_at(c->timer, weft_in(300 * WEFT_MICROSECOND));
}

static int free_it(void *arg) {
    struct counted *c = arg;
    weft_timer_free(c->timer);
    return 0;
}

static int by_party(weft_fn fn, struct counted *c) {
    party p;
    party_start(&p, fn, c);
    return party_end(&p);
}

TIMED(handled_by_another) {
    struct counted c = {0};
    CHECK_EQ(weft_after_func(&c.timer, WEFT_HOUR, count, &c, NULL), 0);
    CHECK_EQ(by_party(stop_it, &c), true);
    CHECK_EQ(by_party(stop_it, &c), false);
    CHECK_EQ(by_party(reset_it, &c), false);
    UNTIL(atomic_load(&c.fired) == 1);
    CHECK_EQ(by_party(reset_it_at, &c), false);
    UNTIL(atomic_load(&c.fired) == 2);
    CHECK(!weft_timer_reset(c.timer, WEFT_HOUR));
    CHECK_EQ(by_party(reset_it, &c), true); /* earlier, by somebody without the P it lies with */
    UNTIL(atomic_load(&c.fired) == 3);
    CHECK_EQ(by_party(stop_it, &c), false);
    CHECK(!weft_timer_reset(c.timer, WEFT_HOUR));
    CHECK_EQ(by_party(free_it, &c), 0);
    CHECK_EQ(weft_after_func(&c.timer, WEFT_HOUR, count, &c, NULL), 0);
    CHECK_EQ(by_party(free_it, &c), 0);
    CHECK_EQ(atomic_load(&c.fired), 3);
}

/* A party that makes the runtime's sleep shorter: nobody is awake but it. */
TIMED(made_earlier_while_all_sleep) {
    for (int i = 0; i < 10; i++) {
        struct counted c = {0};
        party p;
        CHECK_EQ(weft_after_func(&c.timer, WEFT_HOUR, count, &c, NULL), 0);
        weft_sleep(500 * WEFT_MICROSECOND);
        party_start(&p, reset_it, &c);
        UNTIL(atomic_load(&c.fired) == 1);
        CHECK_EQ(party_end(&p), true);
        weft_timer_free(c.timer);
    }
}

/* ---- a function handles its own timer ---- */

struct own {
    weft_timer *timer;
    int runs, want;
    atomic_int done;
};

static int reset_myself(void *arg) {
    struct own *o = arg;
    if (++o->runs < o->want) {
        CHECK(!weft_timer_reset(o->timer, 0));
        return 0;
    }
    CHECK(!weft_timer_stop(o->timer));
    weft_timer_free(o->timer);
    atomic_store(&o->done, 1);
    return 0;
}

PLAYED_GREEN(timer, a_function_resets_and_frees_its_own) {
    for (int i = 1; i < 30; i++) {
        struct own o = {.want = i};
        CHECK_EQ(weft_after_func(&o.timer, 0, reset_myself, &o, NULL), 0);
        UNTIL(atomic_load(&o.done));
        CHECK_EQ(o.runs, i);
    }
}

/* ---- slack ---- */

/* The time it fires at lies within [when, when + slack]; the nominal time is what was asked for. */
PLAYED_GREEN(timer, slack) {
    static const weft_duration slacks[] = {-1, 0, WEFT_MILLISECOND, 3 * WEFT_MILLISECOND};
    for (size_t i = 0; i < WEFT_COUNT(slacks); i++) {
        weft_timer *t;
        weft_timer_options o = weft_timer_options_default();
        o.slack = slacks[i];
        CHECK_EQ(weft_timer_new(&t, WEFT_FOREVER, &o), 0);
        weft_time when = weft_in(2 * WEFT_MILLISECOND), nominal;
        CHECK(!weft_timer_reset_at(t, when));
        CHECK_EQ(weft_timer_wait(t, &nominal), 0);
        CHECK_GE(clock_ns(), when.ns);
        CHECK_EQ(nominal.ns, when.ns);
        weft_timer_free(t);
    }
}

/* The rounding by itself: the roundest value of the window, never below, none for short lengths. */
TEST(timer, rounding) {
    uint64_t rand = 7;
    for (int i = 0; i < 20000; i++) {
        int64_t now = weft__rand(&rand);
        int64_t length = (int64_t)(weft__rand(&rand)) << (weft__rand(&rand) % 12);
        int64_t when = now + length, at = weft__round_time(when, now);
        int64_t slack = length / 256 < 100000 ? length / 256 : 100000;
        CHECK_GE(at, when);
        if (length < WEFT_MILLISECOND) {
            CHECK_EQ(at, when);
            continue;
        }
        CHECK_LE(at, when + slack);
        int64_t bit = at & -at; /* nothing rounder lies in the window */
        CHECK((when + slack) / (2 * bit) * (2 * bit) < when);
        CHECK_EQ(weft__round_time(at, now) >= at, 1);
    }
    CHECK_EQ(weft__round_within(INT64_MAX, 1000), INT64_MAX);
    CHECK_EQ(weft__round_within(INT64_MAX - 5, 1000), INT64_MAX - 5);
    CHECK_EQ(weft__round_within(1000, 0), 1000);
    CHECK_EQ(weft__round_within(1000, -1), 1000);
    CHECK_EQ(weft__round_within(1001, 30), 1024);
    CHECK_EQ(weft__round_within(1024, 100), 1024);
}

/* Deadlines a moment apart meet on few values, so that one wake-up serves many of them. Each window of
   100 us holds a multiple of 2^16 ns, and all windows together, 150 us, at most three of them. */
TEST(timer, close_deadlines_meet) {
    int64_t now = 1234567890123, last = 0;
    int different = 0;
    for (int64_t d = 0; d < 50000; d += 1000) {
        int64_t at = weft__round_time(now + WEFT_SECOND + d, now);
        different += at != last;
        last = at;
    }
    CHECK_LE(different, 3);
}

/* ---- many ---- */

/* In any order of arming and stopping, what is left fires, and only that. */
PLAYED_GREEN(timer, many) {
    enum { MANY = 500 };
    static struct counted c[MANY];
    for (int i = 0; i < MANY; i++) {
        atomic_store(&c[i].fired, 0);
        int k = i * 37 % MANY;
        CHECK_EQ(weft_after_func(&c[i].timer, WEFT_MILLISECOND + k * 10 * WEFT_MICROSECOND, count,
                                 &c[i], NULL),
                 0);
    }
    int stopped[MANY];
    for (int i = 0; i < MANY; i++) {
        stopped[i] = i % 3 == 0 ? weft_timer_stop(c[i].timer) : 0;
    }
    for (int i = 0; i < MANY; i++) {
        UNTIL(atomic_load(&c[i].fired) + stopped[i] == 1);
    }
    weft_sleep(8 * WEFT_MILLISECOND); /* what was stopped would have fired by now */
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(atomic_load(&c[i].fired) + stopped[i], 1);
        weft_timer_free(c[i].timer);
    }
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    CHECK_EQ(s.timers_pending, 0);
}

/* ---- beyond its runtime ---- */

static int make_timers(void *arg) {
    weft_timer **t = arg;
    CHECK_EQ(weft_timer_new(&t[0], WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_timer_new(&t[1], WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_after_func(&t[2], WEFT_HOUR, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_after_func(&t[3], WEFT_HOUR, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_after_func(&t[4], WEFT_HOUR, nothing, NULL, NULL), 0);
    CHECK_EQ(weft_after_func(NULL, WEFT_HOUR, nothing, NULL, NULL), 0);
    return 0;
}

static int handle_old_timers(void *arg) {
    weft_timer **t = arg;
    weft_timer_stop(t[1]);
    weft_timer_reset(t[0], 0);
    weft_timer_reset(t[3], 0);
    weft_timer_reset_at(t[4], past());
    return 0;
}

/* It may be stopped, reset and freed when its runtime has ended; it does not fire any more. */
TEST(timer, outlives_its_runtime) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_timer *t[5];
        weft_config c = config_of(procs);
        CHECK_EQ(weft_run(make_timers, t, &c, NULL), 0);
        weft_timer_stop(t[2]);
        weft_timer_reset(t[3], 0);
        weft_timer_reset(t[4], WEFT_HOUR);
        CHECK_EQ(weft_timer_wait_until(t[0], NULL, past()), -EBADF);
        CHECK_EQ(weft_run(handle_old_timers, t, &c, NULL), 0);
        for (int i = 0; i < 5; i++) {
            weft_timer_free(t[i]);
        }
    }
}
