/* stress/timers.c: timers armed, stopped, reset, waited on and freed from many green threads and plain
 * ones at once. The books balance exactly: each arming ends once, either by firing or by a stop or reset
 * that said true. And nothing is ever early.
 */
#include "stress.h"

enum { TIMERS = 48, GREEN = 6, PLAIN = 2 };

struct watched {
    weft_timer *timer;
    _Atomic int64_t arms, trues, fired;
};

static struct watched timers[TIMERS];
static weft_duration slack;

static weft_duration random_delay(uint64_t *seed) {
    switch (chance(seed) % 8) {
    case 0:
        return 0;
    case 1:
        return -5;
    case 2:
        return WEFT_HOUR;
    case 3:
        return WEFT_SECOND + (weft_duration)(chance(seed) % 1000) * WEFT_MILLISECOND;
    case 4:
        return (weft_duration)(chance(seed) % 3000);
    default:
        return (weft_duration)(chance(seed) % 500) * WEFT_MICROSECOND;
    }
}

static weft_timer_options options(void) {
    weft_timer_options o = weft_timer_options_default();
    o.slack = slack;
    return o;
}

static void toss(struct watched *w, uint64_t *seed) {
    progress();
    switch (chance(seed) % 4) {
    case 0:
        atomic_fetch_add(&w->trues, weft_timer_stop(w->timer));
        return;
    case 1: /* unarmed from here: this arms nothing */
        atomic_fetch_add(&w->trues, weft_timer_reset(w->timer, WEFT_FOREVER));
        return;
    case 2: {
        weft_time at = weft_in(random_delay(seed));
        atomic_fetch_add(&w->arms, 1);
        atomic_fetch_add(&w->trues, weft_timer_reset_at(w->timer, at));
        return;
    }
    default:
        atomic_fetch_add(&w->arms, 1);
        atomic_fetch_add(&w->trues, weft_timer_reset(w->timer, random_delay(seed)));
    }
}

static int toss_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        toss(&timers[chance(&seed) % TIMERS], &seed);
        switch (chance(&seed) % 32) {
        case 0:
            weft_sleep((weft_duration)(chance(&seed) % 300) * WEFT_MICROSECOND);
            break;
        case 1:
            weft_yield();
            break;
        default:
            break;
        }
    }
    return 0;
}

static void *toss_thread(void *arg) {
    toss_on(arg);
    return NULL;
}

static int count_firing(void *arg) {
    struct watched *w = arg;
    atomic_fetch_add(&w->fired, 1);
    return 0;
}

static void toss_together(void) {
    pthread_t t[PLAIN];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < GREEN; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, toss_on, (void *)i), 0);
    }
    for (intptr_t i = 0; i < PLAIN; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, toss_thread, (void *)(i + 77)), 0);
    }
    weft_waitgroup_wait(&w);
    for (int i = 0; i < PLAIN; i++) {
        pthread_join(t[i], NULL);
    }
}

static void balance(struct watched *w) {
    atomic_fetch_add(&w->trues, weft_timer_stop(w->timer));
    CHECK(!weft_timer_stop(w->timer));
    while (atomic_load(&w->fired) + atomic_load(&w->trues) < atomic_load(&w->arms)) {
        weft_sleep(100 * WEFT_MICROSECOND); /* those that fired have yet to run */
    }
    CHECK_EQ(atomic_load(&w->fired) + atomic_load(&w->trues), atomic_load(&w->arms));
}

static int function_timers(void *arg) {
    (void)arg;
    weft_timer_options o = options();
    for (int i = 0; i < TIMERS; i++) {
        timers[i] = (struct watched){.arms = 1};
        CHECK_EQ(weft_after_func(&timers[i].timer, (i % 7) * 100 * WEFT_MICROSECOND, count_firing,
                                 &timers[i], &o),
                 0);
    }
    toss_together();
    for (int i = 0; i < TIMERS; i++) {
        balance(&timers[i]);
    }
    weft_sleep(2 * WEFT_MILLISECOND); /* a firing too many would come now */
    for (int i = 0; i < TIMERS; i++) {
        CHECK_EQ(atomic_load(&timers[i].fired) + atomic_load(&timers[i].trues),
                 atomic_load(&timers[i].arms));
        weft_timer_free(timers[i].timer);
    }
    return 0;
}

static void functions(int procs, weft_duration sl) {
    slack = sl;
    stress_begin(2);
    stress_run(procs, function_timers, NULL);
    stress_over();
}

TEST_IN(timers, functions_1, 30) { functions(1, 0); }
TEST_IN(timers, functions_2, 30) { functions(2, -1); }
TEST_IN(timers, functions_4, 30) { functions(4, 0); }

/* ---- timers that are waited on ---- */

static atomic_int ended;
static atomic_bool ending;

static int wait_for_firings(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg + 9);
    while (!atomic_load(&ending)) {
        struct watched *w = &timers[chance(&seed) % TIMERS];
        weft_time nominal = weft_time_at(-7), before = weft_now();
        int err;
        if (chance(&seed) % 8 == 0) {
            err = weft_timer_wait_until(w->timer, &nominal, weft_time_at(0));
        } else {
            err = weft_timer_wait_until(w->timer, &nominal,
                                        weft_in((weft_duration)(chance(&seed) % 400) * 1000));
        }
        if (err == 0) {
            CHECK_NE(nominal.ns, -7);
            CHECK_LE(nominal.ns, weft_now().ns); /* never early */
            atomic_fetch_add(&w->fired, 1);
            progress();
        } else {
            CHECK_EQ(err, -ETIMEDOUT);
            CHECK_EQ(nominal.ns, -7);
            CHECK_LE(before.ns, weft_now().ns);
        }
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void *wait_thread(void *arg) {
    wait_for_firings(arg);
    return NULL;
}

static int stay_to_the_end(void *arg) {
    weft_time nominal;
    int err;
    while ((err = weft_timer_wait(arg, &nominal)) == 0) {
    }
    CHECK_EQ(err, -EBADF);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int waited_timers(void *arg) {
    (void)arg;
    weft_timer_options o = options();
    pthread_t t;
    atomic_store(&ended, 0);
    atomic_store(&ending, false);
    for (int i = 0; i < TIMERS; i++) {
        timers[i] = (struct watched){.arms = 1};
        CHECK_EQ(weft_timer_new(&timers[i].timer, (i % 7) * 100 * WEFT_MICROSECOND, &o), 0);
    }
    for (intptr_t i = 0; i < 8; i++) {
        CHECK_EQ(weft_go(wait_for_firings, (void *)i), 0);
    }
    CHECK_EQ(pthread_create(&t, NULL, wait_thread, (void *)(intptr_t)99), 0);
    toss_together();
    atomic_store(&ending, true);
    while (atomic_load(&ended) < 9) {
        weft_sleep(100 * WEFT_MICROSECOND);
    }
    pthread_join(t, NULL);
    for (int i = 0; i < TIMERS; i++) {
        balance(&timers[i]);
    }
    /* Freed under waiters, who may be losing to something else that moment. */
    for (int i = 0; i < TIMERS; i++) {
        CHECK_EQ(weft_go(stay_to_the_end, timers[i].timer), 0);
        CHECK_EQ(weft_go(stay_to_the_end, timers[i].timer), 0);
    }
    for (int i = 0; i < TIMERS; i++) {
        weft_timer_reset(timers[i].timer, (i % 3) * 100 * WEFT_MICROSECOND);
    }
    weft_stats s;
    do { /* until all of them wait: only then may the timers go */
        weft_sleep(WEFT_MILLISECOND);
        CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    } while (s.gs_waiting < 2 * TIMERS);
    for (int i = 0; i < TIMERS; i++) {
        weft_timer_free(timers[i].timer);
    }
    while (atomic_load(&ended) < 9 + 2 * TIMERS) {
        weft_sleep(100 * WEFT_MICROSECOND);
    }
    return 0;
}

static void waited(int procs, weft_duration sl) {
    slack = sl;
    stress_begin(2);
    stress_run(procs, waited_timers, NULL);
    stress_over();
}

TEST_IN(timers, waited_1, 30) { waited(1, -1); }
TEST_IN(timers, waited_2, 30) { waited(2, 0); }
TEST_IN(timers, waited_4, 30) { waited(4, 0); }

/* ---- a waiter's deadline, the firing, stop and free at one moment ---- */

struct duel {
    weft_timer *timer;
    atomic_int left;
    atomic_int taken;
};

static int duel_wait(void *arg) {
    struct duel *d = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    int err =
        weft_timer_wait_until(d->timer, NULL, weft_in((weft_duration)(chance(&seed) % 60000)));
    if (err == 0) {
        atomic_fetch_add(&d->taken, 1);
    }
    CHECK(err == 0 || err == -ETIMEDOUT || err == -EBADF);
    atomic_fetch_sub(&d->left, 1);
    return 0;
}

static int duels(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        struct duel d = {0};
        weft_timer_options o = options();
        CHECK_EQ(weft_timer_new(&d.timer, (weft_duration)(chance(&seed) % 40000), &o), 0);
        int waiters = 1 + (int)(chance(&seed) % 3);
        atomic_store(&d.left, waiters);
        for (int i = 0; i < waiters; i++) {
            CHECK_EQ(weft_go(duel_wait, &d), 0);
        }
        bool stopped = false;
        if (chance(&seed) % 3 == 0) {
            stopped = weft_timer_stop(d.timer);
        }
        while (atomic_load(&d.left) > 0) {
            weft_yield();
        }
        int taken = atomic_load(&d.taken);
        bool pending = weft_timer_stop(d.timer);
        CHECK_EQ(taken + stopped + pending, 1); /* one arming, one end */
        weft_timer_free(d.timer);
        progress();
    }
    return 0;
}

static int all_duels(void *arg) {
    (void)arg;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < 8; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, duels, (void *)i), 0);
    }
    weft_waitgroup_wait(&w);
    return 0;
}

static void duels_at(int procs) {
    slack = -1;
    stress_begin(1.5);
    stress_run(procs, all_duels, NULL);
    stress_over();
}

TEST_IN(timers, duels_1, 30) { duels_at(1); }
TEST_IN(timers, duels_3, 30) { duels_at(3); }

/* ---- functions that handle their own timer ---- */

struct own {
    weft_timer *timer;
    int64_t resets, runs; /* of the function, one run at a time */
    _Atomic int64_t *finished;
};

static int reset_or_free_myself(void *arg) {
    struct own *o = arg;
    o->runs++;
    if (o->runs < o->resets) {
        CHECK(!weft_timer_reset(o->timer, (o->runs % 3) * 20 * WEFT_MICROSECOND));
        return 0; /* the next run may be under way: o is no longer ours */
    }
    weft_timer_free(o->timer);
    _Atomic int64_t *finished = o->finished;
    free(o);
    atomic_fetch_add(finished, 1);
    progress();
    return 0;
}

static int count_in(void *arg) {
    atomic_fetch_add((_Atomic int64_t *)arg, 1);
    return 0;
}

static int own_timers(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(12);
    _Atomic int64_t finished = 0, unheld = 0;
    int64_t started = 0, started_unheld = 0;
    while (stress_more()) {
        struct own *o = calloc(1, sizeof *o);
        CHECK(o != NULL);
        o->resets = 1 + (int64_t)(chance(&seed) % 10);
        o->finished = &finished;
        CHECK_EQ(weft_after_func(&o->timer, (weft_duration)(chance(&seed) % 100000),
                                 reset_or_free_myself, o, NULL),
                 0);
        started++;
        CHECK_EQ(
            weft_after_func(NULL, (weft_duration)(chance(&seed) % 100000), count_in, &unheld, NULL),
            0);
        started_unheld++;
        while (started - atomic_load(&finished) > 100) {
            weft_yield();
        }
    }
    while (atomic_load(&finished) < started || atomic_load(&unheld) < started_unheld) {
        weft_sleep(WEFT_MILLISECOND);
    }
    CHECK_EQ(atomic_load(&finished), started);
    CHECK_EQ(atomic_load(&unheld), started_unheld);
    return 0;
}

static void owns(int procs) {
    stress_begin(1.5);
    stress_run(procs, own_timers, NULL);
    stress_over();
}

TEST_IN(timers, own_1, 30) { owns(1); }
TEST_IN(timers, own_2, 30) { owns(2); }
TEST_IN(timers, own_4, 30) { owns(4); }

/* ---- sleep ---- */

static int sleep_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        weft_duration d =
            (weft_duration)(chance(&seed) % 3 ? chance(&seed) % 300 : chance(&seed) % 4000) *
            WEFT_MICROSECOND;
        weft_time end = weft_in(d);
        CHECK_EQ(chance(&seed) % 2 ? weft_sleep(d) : weft_sleep_until(end), 0);
        CHECK_GE(weft_now().ns, end.ns);
        progress();
    }
    return 0;
}

static void *sleep_thread(void *arg) {
    sleep_on(arg);
    return NULL;
}

static int sleepers(void *arg) {
    (void)arg;
    enum { SLEEPERS = STRESS_TSAN ? 100 : 1000 };
    pthread_t t;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 0; i < SLEEPERS; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, sleep_on, (void *)i), 0);
    }
    CHECK_EQ(pthread_create(&t, NULL, sleep_thread, (void *)(intptr_t)5000), 0);
    weft_waitgroup_wait(&w);
    pthread_join(t, NULL);
    return 0;
}

static void sleeps(int procs) {
    stress_begin(1.5);
    stress_run(procs, sleepers, NULL);
    stress_over();
}

TEST_IN(timers, sleep_1, 30) { sleeps(1); }
TEST_IN(timers, sleep_2, 30) { sleeps(2); }
TEST_IN(timers, sleep_4, 30) { sleeps(4); }
