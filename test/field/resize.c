/* field/resize.c: the number of Ps changes. Case C03 (tickers come with their room: here each green
   thread sleeps to its own next time, hence C03a); 1000 changes, and 500 lives of a runtime, with a hog on
   each P and flat books. */
#include "field/field.h"

#include <limits.h>
#include <pthread.h>

/* ---- C03a: fewer Ps keep every timer ------------------------------------------------------------- */

enum { C03_GS = 64 };

static atomic_long ticks[C03_GS];
static atomic_bool c03_stop;
static atomic_int c03_ended;

static int tick(void *arg) {
    atomic_long *count = arg;
    weft_time next = weft_now();
    while (!atomic_load(&c03_stop)) {
        next = weft_time_add(next, 20 * MS);
        CHECK_EQ(weft_sleep_until(next), 0);
        atomic_fetch_add(count, 1);
    }
    atomic_fetch_add(&c03_ended, 1);
    return 0;
}

static atomic_long fired;

static int fire(void *arg) {
    (void)arg;
    atomic_fetch_add(&fired, 1);
    return 0;
}

/* Timers that nobody arms again: they stay in the heap of the P that goes. */
static int arm_and_leave(void *arg) {
    (void)arg;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_after_func(NULL, 200 * MS + i * MS, fire, NULL, NULL), 0);
    }
    return 0;
}

static int keep_timers(void *arg) {
    (void)arg;
    CHECK_EQ(weft_set_procs(NULL, 4), 0);
    for (int i = 0; i < C03_GS; i++) {
        CHECK_EQ(weft_go(tick, &ticks[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_go(arm_and_leave, NULL), 0);
    }
    for (int k = 0; k < 100; k++) {
        CHECK_EQ(weft_set_procs(NULL, 1 + k % 4), 0);
        CHECK_EQ(weft_sleep(5 * MS), 0);
    }
    CHECK_EQ(atomic_load(&fired), 1000);
    long before[C03_GS];
    for (int i = 0; i < C03_GS; i++) {
        before[i] = atomic_load(&ticks[i]);
    }
    int64_t start = now();
    CHECK_EQ(weft_sleep(SEC), 0);
    long most_ticks = 0, least_ticks = LONG_MAX;
    for (int i = 0; i < C03_GS; i++) {
        long grown = atomic_load(&ticks[i]) - before[i];
        most_ticks = grown > most_ticks ? grown : most_ticks;
        least_ticks = grown < least_ticks ? grown : least_ticks;
    }
    double took = (double)(now() - start) / SEC;
    printf("C03a: %ld to %ld ticks in %.3f s\n", least_ticks, most_ticks, took);
    CHECK_GE(least_ticks, 40);
    CHECK_LE(most_ticks, (long)(51 * took) + 1);
    atomic_store(&c03_stop, true);
    while (atomic_load(&c03_ended) < C03_GS) {
        CHECK_EQ(weft_sleep(MS), 0);
    }
    return 0;
}

TEST_IN(field, C03a, 60) { run_at(2, keep_timers, NULL); }

/* ---- 1000 changes, a hog on each P ----------------------------------------------------------------- */

enum { CHANGES = 1000 };

static int most_ps;

static atomic_bool hogs_stop;
static atomic_int hogs_ended;

/* Computes without a call for longer than a change may take, then parks once. */
static int hog(void *arg) {
    (void)arg;
    while (!atomic_load(&hogs_stop)) {
        busy(30 * MS);
        weft_yield();
    }
    atomic_fetch_add(&hogs_ended, 1);
    return 0;
}

static int passes(void *arg) {
    weft_chan **c = arg;
    int v;
    while (weft_chan_recv(c[0], &v) == 0) {
        v++;
        CHECK_EQ(weft_chan_send(c[1], &v), 0);
    }
    weft_chan_close(c[1]);
    return 0;
}

static int sources(void *arg) {
    weft_chan **c = arg;
    int v = 0;
    for (int i = 0; !atomic_load(&hogs_stop); i++) {
        CHECK_EQ(weft_chan_send(c[0], &i), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v), 0);
        CHECK_EQ(v, i + 1);
        CHECK_EQ(weft_sleep(100 * US), 0);
    }
    weft_chan_close(c[0]);
    atomic_fetch_add(&hogs_ended, 1);
    return 0;
}

static void *changes(void *arg) {
    weft_runtime *rt = arg;
    static int64_t took[CHANGES];
    for (int i = 0; i < CHANGES; i++) {
        int64_t start = now();
        CHECK_EQ(weft_set_procs(rt, 1 + (i * 3 + i / 7) % most_ps), 0);
        took[i] = now() - start;
        thread_sleep(200 * US);
    }
    qsort(took, CHANGES, sizeof took[0], compare_ns);
    printf("resize: p50 %.0f us, p99 %.0f us, at most %.0f us\n", (double)took[CHANGES / 2] / US,
           (double)took[CHANGES * 99 / 100] / US, (double)took[CHANGES - 1] / US);
    if (most_ps > sysconf(_SC_NPROCESSORS_ONLN)) {
        return NULL; /* there the system decides how long a hog keeps its CPU */
    }
    test_clock(within(took[CHANGES * 99 / 100], 2 * MS), "p99 of a change %.0f us, bound 2000",
               (double)took[CHANGES * 99 / 100] / US);
    return NULL;
}

static int beside_hogs(void *arg) {
    static weft_chan *c[2];
    (void)arg;
    WEFT_MUST(weft_chan_new(&c[0], sizeof(int), 0));
    WEFT_MUST(weft_chan_new(&c[1], sizeof(int), 0));
    for (int i = 0; i < most_ps; i++) {
        CHECK_EQ(weft_go(hog, NULL), 0);
    }
    CHECK_EQ(weft_go(passes, c), 0);
    CHECK_EQ(weft_go(sources, c), 0);
    CHECK_EQ(weft_sleep(100 * MS), 0);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, changes, weft_current()), 0);
    pthread_join(t, NULL);
    atomic_store(&hogs_stop, true);
    while (atomic_load(&hogs_ended) < most_ps + 1) {
        CHECK_EQ(weft_sleep(MS), 0);
    }
    CHECK_EQ(weft_set_procs(NULL, most_ps), 0);
    int most_threads = *(int *)arg + most_ps + 1 + 2; /* Ps, a spare, maker and sysmon */
    while (nthr() > most_threads) {                   /* surplus ones end after a while */
        CHECK_EQ(weft_sleep(300 * MS), 0);
    }
    printf("resize: %d threads at the end\n", nthr());
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
    return 0;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static void change_beside_hogs(int procs) {
    run_at(1, nothing, NULL); /* a sanitizer makes its own thread with the first */
    int threads = nthr();
    int files = nfd();
    most_ps = procs;
    run_at(procs, beside_hogs, &threads);
    CHECK_EQ(nfd(), files);
}

TEST_IN(field, resize_beside_hogs_2, 120) { change_beside_hogs(2); }
TEST_IN(field, resize_beside_hogs_4, 120) { change_beside_hogs(4); }

/* ---- 500 lives, a hog on each P ------------------------------------------------------------------ */

enum { LIVES = 500, WARM = 40, LIFE_PS = 2 };

static atomic_int hogs_begun;

static int hog_till_told(void *arg) {
    (void)arg;
    atomic_fetch_add(&hogs_begun, 1);
    while (!atomic_load(&hogs_stop)) {
    }
    return 0;
}

static int answer(void *arg) { return *(int *)arg + 1; }

/* How long the start took, the first answer beside the hogs, and the stop once they end. */
static void one_life(int64_t *took) {
    weft_config c = config_of(LIFE_PS);
    weft_runtime *rt;
    int n = 41;
    atomic_store(&hogs_stop, false);
    atomic_store(&hogs_begun, 0);
    took[0] = now();
    CHECK_EQ(weft_start(&rt, &c), 0);
    took[0] = now() - took[0];
    for (int i = 0; i < LIFE_PS; i++) {
        CHECK_EQ(weft_submit(rt, hog_till_told, NULL), 0);
    }
    while (atomic_load(&hogs_begun) < LIFE_PS) {
        thread_sleep(20 * US);
    }
    CHECK_EQ(weft_call(rt, answer, &n, WEFT_NEVER, &n), 0);
    CHECK_EQ(n, 42);
    atomic_store(&hogs_stop, true);
    took[1] = now();
    CHECK_EQ(weft_stop(rt, -1), 0);
    took[1] = now() - took[1];
}

TEST_IN(field, lives_beside_hogs, 120) {
    static int64_t started[LIVES], stopped[LIVES];
    int64_t took[2];
    int lives = UNDER_TSAN || UNDER_ASAN ? LIVES / 5 : LIVES;
    for (int i = 0; i < WARM; i++) { /* pools that stay for the next runtime are filled */
        one_life(took);
    }
    thread_sleep(20 * MS); /* threads that were joined are listed for a moment */
    int threads = nthr(), files = nfd();
    long long resident = proc_value("/proc/self/status", "VmRSS:");
    for (int i = 0; i < lives; i++) {
        one_life(took);
        started[i] = took[0];
        stopped[i] = took[1];
    }
    thread_sleep(20 * MS);
    long long grown = proc_value("/proc/self/status", "VmRSS:") - resident;
    qsort(started, (size_t)lives, sizeof started[0], compare_ns);
    qsort(stopped, (size_t)lives, sizeof stopped[0], compare_ns);
    printf("lives: start p50 %.0f us, p99 %.0f us; stop p50 %.0f us, p99 %.0f us; %lld KiB grown\n",
           (double)started[lives / 2] / US, (double)started[lives * 99 / 100] / US,
           (double)stopped[lives / 2] / US, (double)stopped[lives * 99 / 100] / US, grown);
    while (nthr() > threads) { /* hangs, if one has been left */
        thread_sleep(MS);
    }
    CHECK_EQ(nfd(), files);
    if (!UNDER_TSAN && !UNDER_ASAN) {
        CHECK_LE(grown, 512); /* not a KiB a life */
    }
}
