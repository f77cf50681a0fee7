/* field/handoff.c: green threads that block or compute where weft cannot see it. Case C21, by plain
   calls (a) and by weft_offload, and the second half of C06, every P computing. */
#include "field/field.h"

#include <pthread.h>

/* ---- C21: blocking calls cannot breed threads without limit --------------------------------- */

enum {
    C21_THREADS = 32,
    C21_BLOCKED = UNDER_TSAN ? 200 : 1000,
    C21_SLEEPERS = 50,
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;       /* lock */
    int inside;      /* lock */
    int most_inside; /* lock */
    atomic_int ended, sleepers_ended;
    atomic_bool stop, over;
    atomic_int most_threads;
    bool offloaded;
    _Atomic int64_t latest; /* of the sleepers */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

/* Plain C that waits: nothing marks it. */
static int wait_at_gate(void *arg) {
    (void)arg;
    pthread_mutex_lock(&gate.lock);
    gate.inside++;
    gate.most_inside = gate.inside > gate.most_inside ? gate.inside : gate.most_inside;
    while (!gate.open) {
        pthread_cond_wait(&gate.opened, &gate.lock);
    }
    gate.inside--;
    pthread_mutex_unlock(&gate.lock);
    atomic_fetch_add(&gate.ended, 1);
    return 0;
}

static int sleep_on(void *arg) {
    (void)arg;
    while (!atomic_load(&gate.stop)) {
        int64_t start = now();
        CHECK_EQ(weft_sleep(10 * MS), 0);
        int64_t late = now() - start - 10 * MS;
        CHECK_GE(late, 0);
        if (late > atomic_load(&gate.latest)) {
            atomic_store(&gate.latest, late);
        }
    }
    atomic_fetch_add(&gate.sleepers_ended, 1);
    return 0;
}

static int offload_to_gate(void *arg) {
    int result = -1;
    CHECK_EQ(weft_offload(wait_at_gate, arg, &result), 0);
    CHECK_EQ(result, 0);
    return 0;
}

static int fill_gate(void *arg) {
    (void)arg;
    for (int i = 0; i < C21_SLEEPERS; i++) {
        WEFT_MUST(weft_go(sleep_on, NULL));
    }
    for (int i = 0; i < C21_BLOCKED; i++) {
        WEFT_MUST(weft_go(gate.offloaded ? offload_to_gate : wait_at_gate, NULL));
    }
    return 0;
}

static void *count_threads(void *arg) {
    (void)arg;
    while (!atomic_load(&gate.over)) {
        int n = nthr();
        if (n > atomic_load(&gate.most_threads)) {
            atomic_store(&gate.most_threads, n);
        }
        thread_sleep(2 * MS);
    }
    return NULL;
}

/* Until as many wait as there can: the bound has been met, and nobody comes past it. */
static void until_gate_is_full(void) {
    for (bool full = false; !full;) {
        thread_sleep(5 * MS);
        pthread_mutex_lock(&gate.lock);
        full = gate.inside >= C21_THREADS - 8;
        pthread_mutex_unlock(&gate.lock);
    }
    thread_sleep(500 * MS);
}

static void open_gate(void) {
    pthread_mutex_lock(&gate.lock);
    gate.open = true;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
}

/* Threads kept for the next blocked call are ended after a while. */
static void until_threads_are_back(int most) {
    int64_t start = now();
    while (nthr() > most) {
        thread_sleep(10 * MS);
    }
    test_clock(within(now() - start, 5 * SEC), "threads were back after %.0f ms, bound 5 s",
               (double)(now() - start) / MS);
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static void at_the_gate(int max_threads, int beside) {
    weft_config cfg = config_of(2);
    weft_runtime *rt;
    pthread_t counter;
    cfg.max_threads = max_threads;
    run_at(1, nothing, NULL); /* a sanitizer makes its own thread with the first */
    int own =
        nthr() - 1 + 1; /* what the case has not: the harness's beside main, and the counter */
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(pthread_create(&counter, NULL, count_threads, NULL), 0);
    thread_sleep(20 * MS);
    int before = nthr();
    CHECK_EQ(weft_submit(rt, fill_gate, NULL), 0);
    until_gate_is_full();
    open_gate();
    while (atomic_load(&gate.ended) != C21_BLOCKED) {
        thread_sleep(MS);
    }
    atomic_store(&gate.stop, true);
    while (atomic_load(&gate.sleepers_ended) != C21_SLEEPERS) {
        thread_sleep(MS);
    }
    printf("C21: at most %d threads, %d of them in the call; sleeps up to %.2f ms late\n",
           atomic_load(&gate.most_threads), gate.most_inside,
           (double)atomic_load(&gate.latest) / MS);
    CHECK_LE(gate.most_inside, C21_THREADS);
    CHECK_LE(atomic_load(&gate.most_threads) - own, C21_THREADS + 2 + beside);
    until_threads_are_back(before + 4);
    atomic_store(&gate.over, true);
    pthread_join(counter, NULL);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
}

/* At the bound of threads the others wait, too. */
TEST_IN(field, C21a, 60) { at_the_gate(C21_THREADS, 4); }

/* Offloaded, there are threads left for them. The case allows for four threads beside those in the call
   and a P's; here it is main, the maker, sysmon, a spare, one in the poller, and one on its way to park. */
TEST_IN(field, C21, 60) {
    gate.offloaded = true;
    at_the_gate(2 * C21_THREADS, 6);
    int64_t latest = atomic_load(&gate.latest);
    test_clock(within(latest, 20 * MS), "a sleep of 10 ms was %.2f ms late, bound 20",
               (double)latest / MS);
}

/* ---- C06, the other half: timers while every P computes -------------------------------------- */

enum { C06_ROUNDS = 5 };

static _Atomic int64_t fired_at;

static int note_firing(void *arg) {
    (void)arg;
    atomic_store(&fired_at, now());
    return 0;
}

static int compute_till_fired(void *arg) {
    weft_waitgroup_done(arg);
    while (atomic_load(&fired_at) == 0) {
    }
    return 0;
}

/* The timer's P computes, and so do the others, until it has fired: without handoff it never does. */
static int hold_up_timers(void *arg) {
    (void)arg;
    int procs = weft_procs(NULL);
    int64_t best = INT64_MAX;
    for (int i = 0; i < C06_ROUNDS; i++) {
        weft_waitgroup begun = WEFT_WAITGROUP_INIT, all = WEFT_WAITGROUP_INIT;
        atomic_store(&fired_at, 0);
        weft_waitgroup_add(&begun, procs - 1);
        for (int k = 1; k < procs; k++) {
            WEFT_MUST(weft_waitgroup_go(&all, compute_till_fired, &begun));
        }
        weft_waitgroup_wait(&begun);
        int64_t armed = now();
        WEFT_MUST(weft_after_func(NULL, 10 * MS, note_firing, NULL, NULL));
        while (atomic_load(&fired_at) == 0) {
        }
        int64_t took = atomic_load(&fired_at) - armed;
        CHECK_GE(took, 10 * MS);
        best = least(best, took);
        weft_waitgroup_wait(&all);
    }
    test_clock(within(best, 12 * MS), "P=%d: a timer of 10 ms fired at %.2f ms, bound 12", procs,
               (double)best / MS);
    return 0;
}

TEST_IN(field, C06_every_P_computes, 60) {
    run_at(1, hold_up_timers, NULL);
    run_at(2, hold_up_timers, NULL);
}
