/*
 * What waitgroup and event share: a word that opens once, and waiters that all go when it does.
 *
 *   word   bit 0: WAITERS; the rest is the owner's (a count, a flag), which says whether it is open
 *   lock   guards the queue and the WAITERS bit
 *
 * Lifetime: the object may be freed as soon as a waiter has returned. Whoever opens the gate with
 * one atomic operation and sees no WAITERS has touched it for the last time. If he saw WAITERS he
 * owns the wake: until he has cleared the bit and dropped the lock nobody returns by himself, since a
 * passer needs the word open without WAITERS and the lock free. (He takes the lock before he clears
 * the bit, so who sees the bit cleared sees the lock taken, or dropped.)
 */
#ifndef WEFT__GATE_H
#define WEFT__GATE_H

#include "sched/sched.h"

enum { WEFT__GATE_WAITERS = 1 };

typedef struct weft__gate {
    _Atomic uint32_t word;
    weft__lock lock;
    weft__waitq q;
} weft__gate;

/* When it is open, of the word without WAITERS: a count at zero, a flag that is up. */
typedef enum weft__gate_kind { WEFT__GATE_COUNT, WEFT__GATE_FLAG } weft__gate_kind;
WEFT__ALWAYS_INLINE bool weft__gate_is_open(uint32_t word, weft__gate_kind kind) {
    bool zero = (word & ~(uint32_t)WEFT__GATE_WAITERS) == 0;
    return kind == WEFT__GATE_COUNT ? zero : !zero;
}

/* The wake of him who opened the gate and saw WAITERS. */
void weft__gate_wake(weft__m *m, weft__gate *gate);
/* Is it open? Then whoever opened it has let go of it, as behind a wait: he is waited out. */
bool weft__gate_settled(const weft__gate *gate, weft__gate_kind kind);
/* Waits until it is open: for ever, or until a time; the latter ends with the stop. */
void weft__gate_wait(weft__gate *gate, weft__gate_kind kind, weft__reason why, const void *site);
int weft__gate_wait_until(weft__gate *gate, weft__gate_kind kind, weft_time until, weft__reason why,
                          const void *site);

WEFT__ALWAYS_INLINE bool weft__gate_passed(const weft__gate *gate, weft__gate_kind kind) {
    uint32_t w = atomic_load_explicit(&gate->word, memory_order_acquire);
    return weft__gate_is_open(w, kind) && (w & WEFT__GATE_WAITERS) == 0 &&
           atomic_load_explicit(&gate->lock.held, memory_order_acquire) == 0;
}

#endif
