/*
 * bench.h: what the benchmarks, the child process that runs one of them and the orchestrator share.
 *
 * A benchmark is an entry of an area's table (sched.c, chan.c, ...). Each (benchmark, procs, round,
 * side) is a process of its own: `weft-bench --child NAME PROCS` for weft, the program in go/
 * for Go. A child writes one line a figure,
 *
 *     figure ROW VALUE
 *
 * or `fail WHY` and ends with status 1: every benchmark looks at its own result, so that a runtime
 * that loses work cannot look fast. What a figure means (unit, budget) stands in the table here and
 * only here; the Go side knows names and values.
 */
#ifndef WEFT_BENCH_H
#define WEFT_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_MAX_ROWS = 6, BENCH_MAX_ROUNDS = 99 };

/* What a budget bounds. */
enum bench_bound {
    BOUND_NONE,
    BOUND_RATIO, /* weft's figure divided by Go's */
    BOUND_VALUE, /* weft's figure itself, in the row's unit */
};

struct bench_row {
    const char *name;
    const char *unit;
    enum bench_bound bound;
    double budget;
    int min_procs;    /* there is no such figure below; 0: any */
    int budget_procs; /* the budget is stated for this many Ps only; 0: for any */
};

/* One of loop, inside, outside and connections is set. */
struct bench {
    const char *name;
    struct bench_row rows[BENCH_MAX_ROWS]; /* up to the first one without a name */

    /* Does n operations, looks at the result, returns the nanoseconds that they took. Called
       several times with growing n; the last call gives the figure, nanoseconds an operation. */
    int64_t (*loop)(int64_t n);
    int64_t step;           /* n is a multiple of this; 0: 1 */
    void (*setup)(void);    /* before the first loop, in the same green thread, untimed */
    void (*teardown)(void); /* after the last */

    void (*inside)(void);  /* in the first green thread: measures and emits by itself */
    void (*outside)(void); /* on the plain main thread, no runtime started */
    int connections;       /* TCP echo with so many: driven by drive_echo.c */

    int min_procs;  /* not run below */
    int only_procs; /* not 0: run at this number, once, whatever --procs says */
    bool once;      /* the number of Ps changes nothing: run for the first of --procs only */
    bool weft_only; /* there is nothing to compare with */
    bool cgo;       /* the Go side calls C: it is a program of its own */
};

struct bench_area {
    const char *name;
    const struct bench *benches;
    size_t count;
};

extern const struct bench_area bench_sched, bench_chan, bench_sync, bench_timer, bench_net,
    bench_memory, bench_handoff;

#define BENCH_AREA(area, table)                                                                    \
    const struct bench_area bench_##area = {#area, table, sizeof(table) / sizeof((table)[0])}

/* ---- For the benchmarks: child.c ------------------------------------------------------------- */

int bench_procs(void);    /* Ps of this child */
int64_t bench_now(void);  /* monotonic, ns */
int64_t bench_cpu(void);  /* user and system time of this process, ns */
int64_t bench_vcsw(void); /* voluntary context switches of all its threads */
void bench_emit(const char *row, double value);

/* Ends the process with `fail ...` unless ok. */
#define bench_check(ok, ...) ((ok) ? (void)0 : bench_fail(__VA_ARGS__))
void bench_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Runs body(arg, i) for i in 0..workers-1, each in a green thread of its own, waits for all,
   returns the time from the first start to the last end. */
int64_t bench_parallel(int workers, void (*body)(void *arg, int i), void *arg);

/* `count` green threads, each waiting for a channel; returns a second after the last has come. */
struct bench_parked;
struct bench_parked *bench_park(int count);
void bench_unpark(struct bench_parked *p); /* lets them go, checks that none went before */

/* Starts a runtime of `procs` Ps and runs fn(arg) in its first green thread. */
void bench_in_runtime(int procs, int (*fn)(void *arg), void *arg);

void bench_sort(int64_t *values, size_t count);
/* The smallest of the sorted values that at least `percent` of them do not exceed. */
int64_t bench_percentile(const int64_t *sorted, size_t count, double percent);
uint64_t bench_random(uint64_t *state); /* xorshift64; the Go side has the same */

/* ---- What a child process can be ------------------------------------------------------------- */

int child_bench(const struct bench *b, int procs);
int echo_serve_weft(int procs);                                         /* net.c */
int echo_serve_epoll(void);                                             /* echo_epoll.c */
int echo_client(int port, int connections, int warm_ms, int window_ms); /* echo_client.c */

/* For the servers, echo_control.c: tells the port, then answers the orchestrator from a plain
   thread, which calls stop(arg) at the end. 0 or an errno value. */
int echo_listening(int port, void (*stop)(void *arg), void *arg);

#endif
