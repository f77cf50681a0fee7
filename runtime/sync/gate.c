/* The slow half of waitgroup and event: see gate.h for the argument. */
#include "sync/gate.h"

void weft__gate_wake(weft__m *m, weft__gate *gate) {
    weft__lock_take(&gate->lock);
    weft__waiter *chain = weft__waitq_claim_all(&gate->q);
    atomic_fetch_and_explicit(&gate->word, ~(uint32_t)WEFT__GATE_WAITERS, memory_order_release);
    weft__lock_drop(&gate->lock);
    weft__wake_chain(m, chain, 0);
}

bool weft__gate_settled(const weft__gate *gate, weft__gate_kind kind) {
    for (int i = 0;
         weft__gate_is_open(atomic_load_explicit(&gate->word, memory_order_acquire), kind); i++) {
        if (weft__gate_passed(gate, kind)) {
            return true;
        }
        if (i < 200) {
            weft__pause();
        } else {
            weft__thread_nap(20 * WEFT_MICROSECOND); /* the opener's thread has been put aside */
        }
    }
    return false;
}

/* Under the lock: marks that somebody waits, unless the gate is open with nobody to wake. */
static bool mark(weft__gate *gate, weft__gate_kind kind) {
    uint32_t w = atomic_load_explicit(&gate->word, memory_order_acquire);
    do {
        if (weft__gate_is_open(w, kind) && (w & WEFT__GATE_WAITERS) == 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&gate->word, &w, w | WEFT__GATE_WAITERS,
                                                    memory_order_acquire, memory_order_acquire));
    return true;
}

/* Leaves the queue without having been woken. The bit goes with the last waiter, but not once the
   gate is open: then it belongs to him who opened it. */
static void leave_gate(weft__gate *gate, weft__gate_kind kind, weft__waiter *waiter) {
    weft__lock_take(&gate->lock);
    weft__waitq_unlink(&gate->q, waiter);
    if (gate->q.head == NULL) {
        uint32_t w = atomic_load_explicit(&gate->word, memory_order_relaxed);
        while (!weft__gate_is_open(w, kind) &&
               !atomic_compare_exchange_weak_explicit(&gate->word, &w,
                                                      w & ~(uint32_t)WEFT__GATE_WAITERS,
                                                      memory_order_relaxed, memory_order_relaxed)) {
        }
    }
    weft__lock_drop(&gate->lock);
}

void weft__gate_wait(weft__gate *gate, weft__gate_kind kind, weft__reason why, const void *site) {
    weft__m *m = weft__enter();
    weft__lock_take(&gate->lock);
    if (weft__likely(mark(gate, kind))) {
        weft__waiter w;
        bool cancelled;
        weft__waiter_init(&w, m->g, 0, NULL);
        weft__waitq_push(&gate->q, &w);
        m = weft__park_held(m, &gate->lock, false, why, gate, site, &cancelled);
        (void)atomic_load_explicit(&w.done, memory_order_acquire);
    } else {
        weft__lock_drop(&gate->lock);
    }
    weft__leave(m);
}

/* Parks until the deadline, the lock being held; it is dropped here. */
static int park_until(weft__m **pm, weft__gate *gate, weft__gate_kind kind, int64_t deadline,
                      weft__reason why, const void *site) {
    weft__m *m = *pm;
    weft__waiter w;
    weft__cause cause;
    weft__waiter_init(&w, m->g, weft__park_begin(m->g, true), NULL);
    weft__waitq_push(&gate->q, &w);
    weft__lock_drop(&gate->lock);
    *pm = weft__park_free(m, deadline, why, gate, site, &cause);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return 0;
    }
    leave_gate(gate, kind, &w);
    return weft__error_of(cause);
}

int weft__gate_wait_until(weft__gate *gate, weft__gate_kind kind, weft_time until, weft__reason why,
                          const void *site) {
    weft__m *m = weft__enter();
    int err = 0;
    int64_t now = until.ns == INT64_MAX ? 0 : weft__clock_now();
    if (weft__cancelled(m->g)) {
        int err = weft__cancel_error(m->g);
        weft__leave(m);
        return err;
    }
    weft__lock_take(&gate->lock);
    uint32_t w = atomic_load_explicit(&gate->word, memory_order_acquire);
    bool passes = weft__gate_is_open(w, kind) && (w & WEFT__GATE_WAITERS) == 0;
    if (!passes && until.ns <= now) {
        weft__lock_drop(&gate->lock);
        err = -ETIMEDOUT;
    } else if (passes || !mark(gate, kind)) {
        weft__lock_drop(&gate->lock);
    } else {
        int64_t deadline = until.ns == INT64_MAX ? INT64_MAX : weft__round_time(until.ns, now);
        err = park_until(&m, gate, kind, deadline, why, site);
    }
    weft__leave(m);
    return err;
}
