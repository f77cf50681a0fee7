/* unit/mutex.c: the mutex, from green threads, plain threads and across runtimes. */
#include "world.h"

#include <signal.h>

static weft_time past(void) { return weft_time_at(1); }

struct lock_of {
    weft_mutex mutex;
    int guarded; /* not atomic: that is what the mutex is for */
    char line[16];
    atomic_int entered;
};

static int lock_and_add(void *arg) {
    struct lock_of *l = arg;
    weft_mutex_lock(&l->mutex);
    l->guarded++;
    weft_mutex_unlock(&l->mutex);
    return 0;
}

PLAYED(mutex, free_to_take) {
    weft_mutex m = WEFT_MUTEX_INIT, zero;
    memset(&zero, 0, sizeof zero);
    CHECK_MEM(&m, &zero, sizeof m);
    for (int i = 0; i < 3; i++) {
        weft_mutex_lock(&m);
        CHECK(!weft_mutex_try_lock(&m));
        weft_mutex_unlock(&m);
        CHECK(weft_mutex_try_lock(&m));
        weft_mutex_unlock(&m);
        CHECK_EQ(weft_mutex_lock_until(&m, past()), 0); /* a try */
        weft_mutex_unlock(&m);
        CHECK_EQ(weft_mutex_lock_until(&m, WEFT_NEVER), 0);
        weft_mutex_unlock(&m);
        CHECK_EQ(weft_mutex_lock_until(&m, weft_in(WEFT_HOUR)), 0);
        weft_mutex_unlock(&m);
    }
    CHECK_MEM(&m, &zero, sizeof m); /* nothing of a past use stays */
}

PLAYED(mutex, taken) {
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_lock(&m);
    CHECK(!weft_mutex_try_lock(&m));
    CHECK_EQ(weft_mutex_lock_until(&m, past()), -ETIMEDOUT);
    for (int i = 1; i < 4; i++) {
        weft_time until = weft_in(i * 400 * WEFT_MICROSECOND);
        CHECK_EQ(weft_mutex_lock_until(&m, until), -ETIMEDOUT);
        CHECK_GE(clock_ns(), until.ns);
    }
    weft_mutex_unlock(&m);
    CHECK(weft_mutex_try_lock(&m)); /* those who gave up left nothing behind */
    weft_mutex_unlock(&m);
}

PLAYED(mutex, a_waiter_gets_it) {
    struct lock_of l = {0};
    party p;
    weft_mutex_lock(&l.mutex);
    party_start(&p, lock_and_add, &l);
    party_parked(&p);
    l.guarded = 10;
    weft_mutex_unlock(&l.mutex);
    party_end(&p);
    CHECK_EQ(l.guarded, 11);
}

static int lock_until_and_add(void *arg) {
    struct lock_of *l = arg;
    int err = weft_mutex_lock_until(&l->mutex, weft_in(WEFT_HOUR));
    if (err == 0) {
        l->guarded++;
        weft_mutex_unlock(&l->mutex);
    }
    return err;
}

static int lock_never_and_add(void *arg) {
    struct lock_of *l = arg;
    int err = weft_mutex_lock_until(&l->mutex, WEFT_NEVER);
    if (err == 0) {
        l->guarded++;
        weft_mutex_unlock(&l->mutex);
    }
    return err;
}

/* A crowd in line, in all forms; one of them gives up in the middle. */
static int give_up(void *arg) {
    struct lock_of *l = arg;
    return weft_mutex_lock_until(&l->mutex, weft_in(5 * WEFT_MILLISECOND));
}

PLAYED(mutex, a_crowd_gets_it) {
    static const weft_fn forms[] = {lock_and_add,       lock_until_and_add, give_up,
                                    lock_never_and_add, lock_and_add,       lock_until_and_add,
                                    lock_and_add};
    struct lock_of l = {0};
    party p[WEFT_COUNT(forms)];
    weft_mutex_lock(&l.mutex);
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
        party_start(&p[i], forms[i], &l);
        UNTIL(party_is_parked(&p[i]) || atomic_load(&p[i].ended));
    }
    CHECK_EQ(party_end(&p[2]), -ETIMEDOUT);
    weft_mutex_unlock(&l.mutex);
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
        CHECK_EQ(party_end(&p[i]), i == 2 ? -ETIMEDOUT : 0);
    }
    CHECK_EQ(l.guarded, WEFT_COUNT(forms) - 1);
    CHECK(weft_mutex_try_lock(&l.mutex));
    weft_mutex_unlock(&l.mutex);
}

static int unlock_for_another(void *arg) {
    weft_mutex_unlock(arg);
    return 0;
}

PLAYED(mutex, anybody_may_unlock) {
    weft_mutex m = WEFT_MUTEX_INIT;
    party p;
    weft_mutex_lock(&m);
    party_start(&p, unlock_for_another, &m);
    weft_mutex_lock(&m);
    party_end(&p);
    CHECK(!weft_mutex_try_lock(&m));
    weft_mutex_unlock(&m);
}

PLAYED(mutex, guard) {
    weft_mutex m = WEFT_MUTEX_INIT;
    for (int i = 0; i < 3; i++) {
        WEFT_LOCK_GUARD(&m);
        CHECK(!weft_mutex_try_lock(&m));
        if (i == 1) {
            continue; /* however the block is left */
        }
        weft_mutex other = WEFT_MUTEX_INIT;
        WEFT_LOCK_GUARD(&other); /* several in one block */
        CHECK(!weft_mutex_try_lock(&other));
    }
    CHECK(weft_mutex_try_lock(&m));
    weft_mutex_unlock(&m);
}

/* ---- fairness: who has waited for long is handed it, though others grab it all the time ---- */

static atomic_bool grabbing;

static int grab_on(void *arg) {
    struct lock_of *l = arg;
    while (atomic_load(&grabbing)) {
        weft_mutex_lock(&l->mutex);
        for (int64_t end = clock_ns() + 100000; clock_ns() < end;) {
        }
        weft_mutex_unlock(&l->mutex);
        weft_yield();
    }
    return 0;
}

PLAYED_GREEN(mutex, a_waiter_is_not_starved) {
    struct lock_of l = {0};
    party p[3];
    atomic_store(&grabbing, true);
    for (int i = 0; i < 3; i++) {
        party_start(&p[i], grab_on, &l);
    }
    for (int i = 0; i < 20; i++) { /* comes back each time, or the time limit says so */
        weft_mutex_lock(&l.mutex);
        weft_mutex_unlock(&l.mutex);
        weft_yield();
    }
    atomic_store(&grabbing, false);
    for (int i = 0; i < 3; i++) {
        party_end(&p[i]);
    }
}

/* ---- exclusion ---- */

static int add_often(void *arg) {
    struct lock_of *l = arg;
    for (int i = 0; i < 2000; i++) {
        weft_mutex_lock(&l->mutex);
        CHECK_EQ(atomic_fetch_add(&l->entered, 1), 0);
        l->guarded++;
        if (i % 100 == 0) {
            weft_yield(); /* held over a switch */
        }
        CHECK_EQ(atomic_fetch_sub(&l->entered, 1), 1);
        weft_mutex_unlock(&l->mutex);
    }
    return 0;
}

PLAYED(mutex, excludes) {
    struct lock_of l = {0};
    party p[4];
    for (int i = 0; i < 4; i++) {
        party_start(&p[i], add_often, &l);
    }
    add_often(&l);
    for (int i = 0; i < 4; i++) {
        party_end(&p[i]);
    }
    CHECK_EQ(l.guarded, 5 * 2000);
}

/* ---- misuse ---- */

static int unlock_unlocked(void *arg) {
    (void)arg;
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_lock(&m);
    weft_mutex_unlock(&m);
    weft_mutex_unlock(&m);
    return 0;
}

static void unlock_unlocked_green(void *arg) {
    weft_config c = config_of(1);
    int err = weft_run(unlock_unlocked, arg, &c, NULL);
    (void)err;
}

static void unlock_unlocked_plain(void *arg) { unlock_unlocked(arg); }

TEST(mutex, unlock_of_unlocked_is_fatal) {
    CHECK_FAILS(SIGABRT, "weft: fatal: unlock of mutex", unlock_unlocked_green, NULL);
    CHECK_FAILS(SIGABRT, "weft: fatal: unlock of mutex", unlock_unlocked_plain, NULL);
}
