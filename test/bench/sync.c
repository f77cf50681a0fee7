/*
 * sync.c: mutex, waitgroup, event. Counterpart: go/sync.go.
 */
#include "bench.h"

#include <weft.h>

/* ---- Mutex; an operation is a lock and an unlock --------------------------------------------- */

static int64_t mutex_uncontended(int64_t n) {
    weft_mutex m = WEFT_MUTEX_INIT;
    int64_t start = bench_now();
    for (int64_t i = 0; i < n; i++) {
        weft_mutex_lock(&m);
        weft_mutex_unlock(&m);
    }
    int64_t took = bench_now() - start;
    weft_mutex_lock(&m);
    bench_check(!weft_mutex_try_lock(&m), "a locked mutex was locked again");
    weft_mutex_unlock(&m);
    return took;
}

enum { LOCKERS = 8 };

struct locked {
    weft_mutex mutex;
    int64_t count; /* under mutex */
    int64_t each;
};

static void locker(void *arg, int i) {
    (void)i;
    struct locked *l = arg;
    for (int64_t k = 0; k < l->each; k++) {
        weft_mutex_lock(&l->mutex);
        l->count++;
        weft_mutex_unlock(&l->mutex);
    }
}

static int64_t mutex_contended(int64_t n) {
    struct locked l = {.mutex = WEFT_MUTEX_INIT, .each = n / LOCKERS};
    int64_t took = bench_parallel(LOCKERS, locker, &l);
    bench_check(l.count == n, "%lld of %lld additions under the lock are left", (long long)l.count,
                (long long)n);
    return took;
}

/* ---- Waitgroup; an operation is add, done and wait by one green thread ----------------------- */

struct held {
    weft_waitgroup all;
    int64_t passed;
};

static int pass_and_done(void *arg) {
    struct held *h = arg;
    weft_yield();
    h->passed = 1;
    weft_waitgroup_done(&h->all);
    return 0;
}

static int64_t waitgroup(int64_t n) {
    struct held h = {.all = WEFT_WAITGROUP_INIT};
    weft_waitgroup_add(&h.all, 1);
    WEFT_MUST(weft_go(pass_and_done, &h));
    weft_waitgroup_wait(&h.all);
    bench_check(h.passed == 1, "a wait did not wait");
    int64_t start = bench_now();
    for (int64_t i = 0; i < n; i++) {
        weft_waitgroup_add(&h.all, 1);
        weft_waitgroup_done(&h.all);
        weft_waitgroup_wait(&h.all);
    }
    return bench_now() - start;
}

/* ---- Event; an operation is a round trip by two of them -------------------------------------- */

struct rally {
    weft_event there, back;
    int64_t count; /* whose turn it is may touch it */
    int64_t n;
};

static int return_ball(void *arg) {
    struct rally *r = arg;
    int64_t n = r->n; /* after the last set the other side may be gone, and *r with it */
    for (int64_t i = 0; i < n; i++) {
        weft_event_wait(&r->there);
        weft_event_reset(&r->there);
        r->count++;
        weft_event_set(&r->back);
    }
    return 0;
}

static int64_t event_ping_pong(int64_t n) {
    struct rally r = {.there = WEFT_EVENT_INIT, .back = WEFT_EVENT_INIT, .n = n};
    WEFT_MUST(weft_go(return_ball, &r));
    int64_t start = bench_now();
    for (int64_t i = 0; i < n; i++) {
        weft_event_set(&r.there);
        weft_event_wait(&r.back);
        weft_event_reset(&r.back);
    }
    int64_t took = bench_now() - start;
    bench_check(r.count == n, "%lld of %lld turns were taken", (long long)r.count, (long long)n);
    return took;
}

static const struct bench benches[] = {
    {.name = "MutexUncontended1",
     .rows = {{"MutexUncontended1", "ns", BOUND_RATIO, 1.0, 0, 0}},
     .loop = mutex_uncontended},
    {.name = "MutexContended",
     .rows = {{"MutexContended", "ns", BOUND_RATIO, 0.7, 0, 0}},
     .loop = mutex_contended,
     .step = LOCKERS},
    {.name = "WaitGroupAddDoneWait",
     .rows = {{"WaitGroupAddDoneWait", "ns", BOUND_RATIO, 0.60, 0, 0}},
     .loop = waitgroup},
    {.name = "EventPingPong",
     .rows = {{"EventPingPong", "ns", BOUND_NONE, 0, 0, 0}},
     .loop = event_ping_pong},
};

BENCH_AREA(sync, benches);
