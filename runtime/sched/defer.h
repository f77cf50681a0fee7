/*
 * The links of the list of deferred calls, and what may be asked of it without a call. See defer.c.
 */
#ifndef WEFT__DEFER_H
#define WEFT__DEFER_H

#include "sched/sched.h"

/* A link is kept mixed with the rest of its node, so that one in a frame that has gone and was written
   over gives no address but nonsense. The factors are odd: no word's change goes unseen. */
WEFT__ALWAYS_INLINE uintptr_t weft__deferred_mix(const weft_deferred *d) {
    return (uintptr_t)((uintptr_t)d + (uintptr_t)d->fn * UINT64_C(0x9e3779b97f4a7c15) +
                       (uintptr_t)d->arg * UINT64_C(0xc2b2ae3d27d4eb4f));
}
WEFT__ALWAYS_INLINE void weft__deferred_link(weft_deferred *d, const weft_deferred *next) {
    d->next = (weft_deferred *)((uintptr_t)next ^ weft__deferred_mix(d));
}
/* *sane: what d holds can be an address. */
WEFT__ALWAYS_INLINE weft_deferred *weft__deferred_next(const weft_deferred *d, bool *sane) {
    uintptr_t next = (uintptr_t)d->next ^ weft__deferred_mix(d);
    *sane = d->fn != NULL && next % _Alignof(weft_deferred) == 0 &&
            (sizeof next < 8 || next >> (sizeof next * 7) == 0);
    return (weft_deferred *)next;
}

WEFT__ALWAYS_INLINE bool weft__on_stack_of(const weft__g *g, const void *at) {
    return (uintptr_t)at - (uintptr_t)g->stack.low < g->stack.bytes;
}

/* The lowest node of g on its stack below `frame`, or `frame`. Makes no call: what lies there may be
   in a frame that has gone. */
WEFT__ALWAYS_INLINE const char *weft__deferred_lowest(const weft__g *g, const char *frame) {
    const char *lowest = frame;
    bool sane = true;
    for (const weft_deferred *d = g->deferred; d != NULL && sane;
         d = weft__deferred_next(d, &sane)) {
        if (weft__on_stack_of(g, d) && (const char *)d < lowest) {
            lowest = (const char *)d;
        }
    }
    return lowest;
}

#endif
