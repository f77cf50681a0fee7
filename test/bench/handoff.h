/* handoff.h: what the two files of the area handoff share. */
#ifndef WEFT_BENCH_HANDOFF_H
#define WEFT_BENCH_HANDOFF_H
#include "bench.h"

#include <stdatomic.h>
#include <weft.h>

/* Green threads that compute and call weft now and then, as many as there are Ps. */
struct hogs {
    int64_t slice; /* ns that each computes between two yields; 0: it never calls */
    atomic_bool stop;
    weft_waitgroup all;
};
void hogs_begin(struct hogs *h, int count, int64_t slice);
void hogs_end(struct hogs *h);

/* A green thread that notes when it runs. */
struct probe {
    _Atomic int64_t ran; /* 0: not yet */
};
void probe_start(struct probe *p); /* next in line behind the caller */

/* Sorts. us of nanoseconds. */
void emit_percentiles(const char *p50, const char *p99, int64_t *ns, size_t count);

weft_stats stats_now(void);

/* block.c: a kind of blocking call. Each measures one and emits NAMEP50, NAMEP99. */
enum block_kind { NANOSLEEP, PIPE_READ, FSYNC, FLOCK, GETADDRINFO, MUTEX, BLOCK_KINDS };
void block_measure(enum block_kind kind, const char *p50, const char *p99);
void block_handed(void);

#endif
