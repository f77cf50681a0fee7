/* Locks, events and waitgroups at their edges: what ends a wait, and who may free the object when. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <weft.h>

/* ---- a time of "never" is still a context's to end --------------------------------------------- */

struct forms {
    weft_mutex mutex;
    weft_event event;
    weft_waitgroup group;
    _Atomic int results[3];
};

static int locks_until_never(void *arg) {
    struct forms *f = arg;
    f->results[0] = weft_mutex_lock_until(&f->mutex, WEFT_NEVER);
    return 0;
}

static int waits_until_never(void *arg) {
    struct forms *f = arg;
    f->results[1] = weft_event_wait_until(&f->event, WEFT_NEVER);
    return 0;
}

static int joins_until_never(void *arg) {
    struct forms *f = arg;
    f->results[2] = weft_waitgroup_wait_until(&f->group, WEFT_NEVER);
    return 0;
}

TEST(review_sync, until_never_ends_with_the_stop) {
    struct forms f = {.mutex = WEFT_MUTEX_INIT};
    weft_runtime *rt;
    weft_mutex_lock(&f.mutex);
    weft_waitgroup_add(&f.group, 1);
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_submit(rt, locks_until_never, &f), 0);
    CHECK_EQ(weft_submit(rt, waits_until_never, &f), 0);
    CHECK_EQ(weft_submit(rt, joins_until_never, &f), 0);
    usleep(10000);
    CHECK_EQ(weft_stop(rt, 5 * WEFT_SECOND), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(f.results[i], -ECANCELED);
    }
    weft_mutex_unlock(&f.mutex);
}

/* ---- who sees that an event is set may free it --------------------------------------------------- */

static double seconds_since(struct timespec from) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - from.tv_sec) + (double)(now.tv_nsec - from.tv_nsec) / 1e9;
}

static void *sets_events(void *arg) {
    _Atomic(weft_event *) *at = arg;
    for (;;) {
        weft_event *e = atomic_exchange(at, NULL);
        if (e == (void *)at) {
            return NULL; /* the end */
        }
        if (e != NULL) {
            weft_event_set(e);
        }
    }
}

/* The waiter's time is up about when the event is set; then it only looks. */
TEST(review_sync, event_seen_set_may_be_freed) {
    _Atomic(weft_event *) at = NULL;
    pthread_t setter;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK_EQ(pthread_create(&setter, NULL, sets_events, &at), 0);
    for (int i = 0; seconds_since(begin) < test_seconds(1); i++) {
        weft_event *e = calloc(1, sizeof *e);
        CHECK(e != NULL);
        atomic_store(&at, e);
        if (weft_event_wait_until(e, weft_in(i % 60 * WEFT_MICROSECOND)) == -ETIMEDOUT) {
            while (!weft_event_is_set(e)) {
            }
        }
        memset(e, 0xff, sizeof *e);
        free(e);
    }
    while (atomic_load(&at) != NULL) {
    }
    atomic_store(&at, (void *)&at);
    pthread_join(setter, NULL);
}

/* ---- a body that ends by weft_exit is done too ---------------------------------------------------- */

static int exits(void *arg) {
    atomic_fetch_add((_Atomic int *)arg, 1);
    weft_exit(0);
}

static int joins_exited(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, exits, arg), 0);
    }
    CHECK_EQ(weft_waitgroup_wait_until(&w, weft_in(10 * WEFT_SECOND)), 0);
    CHECK_EQ(weft_go(exits, arg), 0); /* on the stack of one of them: no group of theirs is told */
    while (*(_Atomic int *)arg < 11) {
        weft_yield();
    }
    return 0;
}

TEST(review_sync, waitgroup_counts_those_that_exit) {
    _Atomic int ends = 0;
    weft_config cfg = weft_config_default();
    cfg.procs = 2;
    CHECK_EQ(weft_run(joins_exited, &ends, &cfg, NULL), 0);
}
