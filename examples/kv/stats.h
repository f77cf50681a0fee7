/*
 * stats.h: what INFO counts. What every request touches is kept per P, a cache line apart, so that
 * counting shares nothing between cores; the rest is rare and plain atomic. All relaxed: figures,
 * no decisions.
 */
#ifndef KV_STATS_H
#define KV_STATS_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/inspect.h>

struct stats_proc {
    _Alignas(128) _Atomic uint64_t requests;
    _Atomic uint64_t bytes_in, bytes_out;
};

struct stats {
    int procs;
    struct stats_proc *proc; /* procs, and one more for who runs on none */
    _Atomic uint64_t accepted, connected, refused;
    _Atomic uint64_t protocol_errors, idle_closed;
};

int stats_init(struct stats *s, int procs); /* 0 or -ENOMEM */
void stats_free(struct stats *s);

static inline void stats_add(_Atomic uint64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
static inline uint64_t stats_read(_Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The counters of the P that the caller is on. */
static inline struct stats_proc *stats_here(struct stats *s) {
    int p = weft_proc_self();
    return &s->proc[p >= 0 && p < s->procs ? p : s->procs];
}

struct stats_sum {
    uint64_t requests, bytes_in, bytes_out;
};
struct stats_sum stats_total(struct stats *s);

/* The value that the part `share` (0..1) of all lies at or below, in ns: exact to its bucket, and
   within it as if the bucket were evenly filled. 0 if there is none. */
uint64_t stats_percentile(const weft_hist *h, double share);
#endif
