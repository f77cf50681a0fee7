/*
 * child.c: the inside of a child process: calibrates and runs one benchmark of weft, prints its
 * figures.
 *
 * The calibration is the same as in go/main.go: grow n until a run takes a tenth of the target,
 * which is the warm-up too, then one run of about the target, whose time is the figure.
 */
#include "bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

static const int64_t target_ns = 250 * 1000 * 1000;

static int procs_now = 1;

int bench_procs(void) { return procs_now; }

int64_t bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t timeval_ns(struct timeval t) {
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

int64_t bench_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return timeval_ns(u.ru_utime) + timeval_ns(u.ru_stime);
}

int64_t bench_vcsw(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

void bench_emit(const char *row, double value) {
    printf("figure %s %.9g\n", row, value);
    fflush(stdout);
}

void bench_fail(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs("fail ", stdout);
    vprintf(fmt, args);
    putchar('\n');
    va_end(args);
    fflush(stdout);
    _exit(1); /* other green threads are still running: no atexit */
}

static int compare_int64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void bench_sort(int64_t *values, size_t count) {
    qsort(values, count, sizeof *values, compare_int64);
}

int64_t bench_percentile(const int64_t *sorted, size_t count, double percent) {
    size_t rank = (size_t)ceil((double)count * percent / 100);
    return sorted[rank == 0 ? 0 : rank - 1];
}

uint64_t bench_random(uint64_t *state) {
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

struct parallel {
    void (*body)(void *arg, int i);
    void *arg;
    weft_waitgroup all;
};

struct parallel_worker {
    struct parallel *job;
    int i;
};

static int parallel_worker_main(void *arg) {
    struct parallel_worker *w = arg;
    w->job->body(w->job->arg, w->i);
    weft_waitgroup_done(&w->job->all);
    return 0;
}

int64_t bench_parallel(int workers, void (*body)(void *arg, int i), void *arg) {
    struct parallel job = {.body = body, .arg = arg, .all = WEFT_WAITGROUP_INIT};
    int64_t start = bench_now();
    weft_waitgroup_add(&job.all, workers);
    for (int i = 0; i < workers; i++) {
        struct parallel_worker w = {&job, i};
        WEFT_MUST(WEFT_GO_COPY(parallel_worker_main, &w));
    }
    weft_waitgroup_wait(&job.all);
    return bench_now() - start;
}

struct bench_parked {
    int count;
    weft_chan *gate;
    weft_waitgroup all;
    _Atomic int arrived, left;
};

static int park_at_gate(void *arg) {
    struct bench_parked *p = arg;
    atomic_fetch_add(&p->arrived, 1);
    bench_check(weft_chan_recv(p->gate, NULL) == -EPIPE, "something came through a closed gate");
    atomic_fetch_add(&p->left, 1);
    weft_waitgroup_done(&p->all);
    return 0;
}

struct bench_parked *bench_park(int count) {
    struct bench_parked *p = calloc(1, sizeof *p);
    bench_check(p != NULL, "no memory");
    p->count = count;
    WEFT_MUST(weft_chan_new(&p->gate, 1, 0));
    weft_waitgroup_add(&p->all, count);
    for (int i = 0; i < count; i++) {
        WEFT_MUST(weft_go(park_at_gate, p));
    }
    while (atomic_load(&p->arrived) < count) {
        WEFT_MUST(weft_sleep(10 * WEFT_MILLISECOND));
    }
    WEFT_MUST(weft_sleep(WEFT_SECOND));
    return p;
}

void bench_unpark(struct bench_parked *p) {
    bench_check(atomic_load(&p->left) == 0, "some did not stay parked");
    WEFT_MUST(weft_chan_close(p->gate));
    weft_waitgroup_wait(&p->all);
    bench_check(atomic_load(&p->left) == p->count, "some were not woken");
    weft_chan_unref(p->gate);
    free(p);
}

void bench_in_runtime(int procs, int (*fn)(void *arg), void *arg) {
    weft_config cfg = weft_config_default();
    cfg.procs = procs;
    int status = 0;
    int err = weft_run(fn, arg, &cfg, &status);
    bench_check(err == 0, "weft_run: %s", weft_strerror(err));
    bench_check(status == 0, "the first green thread returned %d", status);
}

/* At least twice, at most a hundred times n; between them what the last run says `want` ns take. */
static int64_t next_n(int64_t n, int64_t took, int64_t want) {
    double guess = took > 0 ? (double)n * (double)want / (double)took : 100.0 * (double)n;
    guess = fmin(guess, 100.0 * (double)n);
    return guess < 2.0 * (double)n ? 2 * n : (int64_t)guess;
}

static int64_t whole_steps(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

static void run_loop(const struct bench *b) {
    int64_t step = b->step ? b->step : 1;
    int64_t n = step;
    int64_t took = b->loop(n);
    while (took < target_ns / 10) {
        n = whole_steps(next_n(n, took, target_ns / 5), step);
        took = b->loop(n);
    }
    n = whole_steps((int64_t)((double)n * (double)target_ns / (double)took), step);
    took = b->loop(n);
    bench_emit(b->rows[0].name, (double)took / (double)n);
}

static int first_green_thread(void *arg) {
    const struct bench *b = arg;
    if (b->inside) {
        b->inside();
        return 0;
    }
    if (b->setup) {
        b->setup();
    }
    run_loop(b);
    if (b->teardown) {
        b->teardown();
    }
    return 0;
}

int child_bench(const struct bench *b, int procs) {
    procs_now = procs;
    if (b->outside) {
        b->outside();
    } else {
        bench_in_runtime(procs, first_green_thread, (void *)b);
    }
    return 0;
}
