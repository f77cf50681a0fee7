/* The slow half of waitgroup and event: see gate.h for the argument. */
#include "sync/gate.h"

void weft__gate_wake(weft__m *m, weft__gate *gate) {
    weft__lock_take(&gate->lock);
    weft__waiter *chain = weft__waitq_claim_all(&gate->q);
    atomic_fetch_and_explicit(&gate->word, ~(uint32_t)WEFT__GATE_WAITERS, memory_order_release);
    weft__lock_drop(&gate->lock);
    weft__wake_chain(m, chain, 0);
}

bool weft__gate_settled(const weft__gate *gate, weft__gate_open open) {
    for (int i = 0; open(atomic_load_explicit(&gate->word, memory_order_acquire)); i++) {
        if (weft__gate_passed(gate, open)) {
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
static bool mark(weft__gate *gate, weft__gate_open open) {
    uint32_t w = atomic_load_explicit(&gate->word, memory_order_acquire);
    do {
        if (open(w) && (w & WEFT__GATE_WAITERS) == 0) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&gate->word, &w, w | WEFT__GATE_WAITERS,
                                                    memory_order_acquire, memory_order_acquire));
    return true;
}

/* Leaves the queue without having been woken. The bit goes with the last waiter, but not once the
   gate is open: then it belongs to him who opened it. */
static void leave_gate(weft__gate *gate, weft__gate_open open, weft__waiter *waiter) {
    weft__lock_take(&gate->lock);
    weft__waitq_unlink(&gate->q, waiter);
    if (gate->q.head == NULL) {
        uint32_t w = atomic_load_explicit(&gate->word, memory_order_relaxed);
        while (!open(w) && !atomic_compare_exchange_weak_explicit(
                               &gate->word, &w, w & ~(uint32_t)WEFT__GATE_WAITERS,
                               memory_order_relaxed, memory_order_relaxed)) {
        }
    }
    weft__lock_drop(&gate->lock);
}

/* Queued under the lock, which is dropped here. */
static int park(weft__m **pm, weft__gate *gate, weft__gate_open open, int64_t deadline,
                bool cancellable, weft__reason why, const void *site) {
    weft__m *m = *pm;
    weft__waiter w;
    weft__waiter_init(&w, m->g, cancellable ? weft__park_begin(m->g, true) : 0, NULL);
    weft__waitq_push(&gate->q, &w);
    if (!cancellable) {
        bool cancelled;
        *pm = weft__park_held(m, &gate->lock, false, why, gate, site, &cancelled);
        (void)atomic_load_explicit(&w.done, memory_order_acquire);
        return 0;
    }
    weft__cause cause;
    weft__lock_drop(&gate->lock);
    *pm = weft__park_free(m, deadline, why, gate, site, &cause);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return 0;
    }
    leave_gate(gate, open, &w);
    return weft__error_of(cause);
}

int weft__gate_wait(weft__gate *gate, weft__gate_open open, weft_time until, bool cancellable,
                    weft__reason why, const void *site) {
    weft__m *m = weft__enter();
    int err = 0;
    int64_t now = until.ns == INT64_MAX ? 0 : weft__clock_now();
    if (cancellable && weft__cancelled(m->g)) {
        err = -ECANCELED;
    } else {
        weft__lock_take(&gate->lock);
        uint32_t w = atomic_load_explicit(&gate->word, memory_order_acquire);
        bool open_now = open(w) && (w & WEFT__GATE_WAITERS) == 0;
        if (!open_now && until.ns <= now) {
            weft__lock_drop(&gate->lock);
            err = -ETIMEDOUT;
        } else if (open_now || !mark(gate, open)) {
            weft__lock_drop(&gate->lock);
        } else {
            err = park(&m, gate, open,
                       until.ns == INT64_MAX ? INT64_MAX : weft__round_time(until.ns, now),
                       cancellable, why, site);
        }
    }
    weft__leave(m);
    return err;
}
