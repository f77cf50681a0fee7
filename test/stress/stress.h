/* stress/stress.h: what the stress programs share: for how long, by chance, and a watchdog.
 *
 * A stress test keeps the runtime busy in one way for test_seconds() and counts exactly: everything
 * that was begun has ended once, with one result. A lost wake-up shows as a standstill, which the
 * watchdog reports with a dump of the runtime; with WEFT_STRESS_HOLD set it stops the process there,
 * for a debugger.
 */
#ifndef WEFT_TEST_STRESS_H
#define WEFT_TEST_STRESS_H

#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

#if defined(__SANITIZE_THREAD__)
#define STRESS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRESS_TSAN 1
#endif
#endif
#ifndef STRESS_TSAN
#define STRESS_TSAN 0
#endif

/* ---- time ---- */

static int64_t stress_end;

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline bool stress_more(void) { return clock_ns() < stress_end; }

/* ---- chance ---- */

/* Each caller keeps a state of its own. */
static inline uint32_t chance(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (uint32_t)((x * UINT64_C(2685821657736338717)) >> 32);
}

static inline uint64_t chance_seed(uint64_t number) {
    return ((number + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)clock_ns() << 20) | 1;
}

/* ---- watchdog ---- */

static struct {
    _Atomic uint64_t progress;
    _Atomic(weft_runtime *) rt[2]; /* dumped at a standstill; must outlive their entry here */
    atomic_int over;
    pthread_t thread;
} watchdog __attribute__((unused));

static inline void progress(void) {
    atomic_fetch_add_explicit(&watchdog.progress, 1, memory_order_relaxed);
}

static inline void *watch_body(void *arg) {
    (void)arg;
    uint64_t seen = 0;
    int64_t since = clock_ns();
    while (!atomic_load(&watchdog.over)) {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
        uint64_t now = atomic_load(&watchdog.progress);
        if (now != seen) {
            seen = now;
            since = clock_ns();
        } else if (clock_ns() - since > (int64_t)(10e9 * test_slack())) {
            if (getenv("WEFT_STRESS_HOLD") != NULL) {
                fprintf(stderr, "standstill: process %d waits for a debugger\n", (int)getpid());
                raise(SIGSTOP);
            }
            for (int i = 0; i < 2; i++) {
                weft_runtime *rt = atomic_load(&watchdog.rt[i]);
                if (rt != NULL) {
                    weft_dump(rt, STDERR_FILENO);
                }
            }
            test_fail(__FILE__, __LINE__, "standstill after %llu steps", (unsigned long long)seen);
        }
    }
    return NULL;
}

/* Every stress test begins and ends with these. */
static inline void stress_begin(double seconds) {
    stress_end = clock_ns() + (int64_t)(test_seconds(seconds) * 1e9);
    atomic_store(&watchdog.over, 0);
    CHECK_EQ(pthread_create(&watchdog.thread, NULL, watch_body, NULL), 0);
}

static inline void stress_over(void) {
    atomic_store(&watchdog.over, 1);
    pthread_join(watchdog.thread, NULL);
    CHECK_GT(atomic_load(&watchdog.progress), 0);
}

/* ---- runtimes ---- */

static inline weft_config stress_config(int procs) {
    weft_config c = weft_config_default();
    c.procs = procs;
    c.flags = WEFT_IGNORE_ENV | WEFT_STUCK_IGNORE;
    return c;
}

/* weft_run with the watchdog looking. */
struct stress_main {
    weft_fn fn;
    void *arg;
};

static inline int stress_main_body(void *arg) {
    struct stress_main *s = arg;
    atomic_store(&watchdog.rt[0], weft_current());
    int result = s->fn(s->arg);
    atomic_store(&watchdog.rt[0], NULL);
    return result;
}

static inline void stress_run(int procs, weft_fn fn, void *arg) {
    weft_config c = stress_config(procs);
    struct stress_main s = {fn, arg};
    int status = -1;
    CHECK_EQ(weft_run(stress_main_body, &s, &c, &status), 0);
    CHECK_EQ(status, 0);
}

#endif
