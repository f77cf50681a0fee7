/*
 * Park and ready: the argument, and the parts that are not inlined.
 *
 * The wait word of a G is running, arming, armed or claimed, with a generation that never comes
 * again for this memory. Any number of claimers may race for one wait; the compare-and-swap in
 * weft__claim lets one win. So:
 *
 *   - A claimer that finds `armed` readies the G. One that finds `arming` does not: the G is still
 *     on its stack, and either sees the claim before it switches, or its far side does (the commit
 *     fails to move arming to armed) and readies it there.
 *   - Order for a source: claim, change the source's state, copy the value, unlink the node, drop the
 *     lock, mark the node done, ready. A lost claim changes nothing and leaves the node linked.
 *   - The G, awake, may leave its frame only if it was claimed by the source and the node is done
 *     (the winner's last touch, and it has dropped the lock before: the source may be freed), or
 *     after it has unlinked the node under the source's lock.
 *   - The cancel flag: the G stores arming (or, held, is seen armed), light fence, tests the flag;
 *     the stop sets all flags, heavy fence, then claims. One of the two sees the other.
 *
 * Held park. The source's lock is kept over the switch, so the node can be dequeued only once the G
 * is off its stack, and only under that lock: a waker needs no claim. A stop may claim it all the
 * same: the waker marks `taken`, light fence, tests `cancel`; the stop sets `cancel`, heavy fence,
 * tests `taken`. If the flag is up the word decides between the two. The word says `running` from the
 * moment the G resumes until its next commit, so a stop cannot claim a wait that is not there.
 */
#include "sched/sched.h"

const char *const weft__reason_text[WEFT__REASONS] = {
    [WEFT__WAIT_NONE] = "nothing",
    [WEFT__WAIT_SLEEP] = "sleep",
    [WEFT__WAIT_TIMER] = "timer",
    [WEFT__WAIT_SEND] = "channel send",
    [WEFT__WAIT_RECV] = "channel receive",
    [WEFT__WAIT_NULL_CHAN] = "channel (NULL)",
    [WEFT__WAIT_MUTEX] = "mutex",
    [WEFT__WAIT_WAITGROUP] = "waitgroup",
    [WEFT__WAIT_EVENT] = "event",
    [WEFT__WAIT_READ] = "read",
    [WEFT__WAIT_WRITE] = "write",
    [WEFT__WAIT_ACCEPT] = "accept",
    [WEFT__WAIT_CONNECT] = "connect",
    [WEFT__WAIT_WRITE_TURN] = "turn to write",
    [WEFT__WAIT_CALL] = "call",
    [WEFT__WAIT_TRIGGER] = "trigger's function",
    [WEFT__WAIT_PROCS] = "number of Ps",
    [WEFT__WAIT_OFFLOAD] = "turn to offload",
};

/* A stop is about: waker and stop settle it by the word. */
WEFT__COLD bool weft__claim_held_contended(weft__g *g) {
    uint64_t w = atomic_load_explicit(&g->word, memory_order_acquire);
    for (;;) {
        if ((w & WEFT__STATE) != WEFT__ARMED) {
            return false;
        }
        if (atomic_compare_exchange_weak(&g->word, &w, w | WEFT__CLAIMED)) {
            return true;
        }
    }
}

/* A stop's claim of whatever cancellable wait g is in; true: ready it. The caller has set g->cancel
   and crossed a heavy fence. */
bool weft__cancel_claim(weft__g *g) {
    bool taken = atomic_load_explicit(&g->taken, memory_order_acquire) != 0;
    uint64_t w = atomic_load_explicit(&g->word, memory_order_acquire);
    if ((w & WEFT__CANCELLABLE) == 0) {
        return false;
    }
    if ((w & WEFT__HELD) == 0) {
        return weft__claim(g, w >> WEFT__GEN_SHIFT, WEFT__BY_CANCEL) == WEFT__WON_READY;
    }
    if (taken || (w & WEFT__STATE) != WEFT__ARMED) {
        return false;
    }
#ifdef WEFT_CANARY_STOP_FORGETS_HELD
    return false;
#endif
    uint64_t to = w | WEFT__CLAIMED | (uint64_t)WEFT__BY_CANCEL << WEFT__CAUSE_SHIFT;
    return atomic_compare_exchange_strong(&g->word, &w, to);
}

void weft__waiter_await(weft__waiter *w) {
    for (int i = 0; atomic_load_explicit(&w->done, memory_order_acquire) == 0; i++) {
        if (i < 200) {
            weft__pause();
        } else {
            weft__thread_nap(20 * WEFT_MICROSECOND); /* the winner's thread has been put aside */
        }
    }
}

weft__waiter *weft__waitq_claim_all(weft__waitq *q) {
    if (q->head == NULL) {
        return NULL;
    }
    weft__waiter *chain = NULL, **end = &chain;
    for (weft__waiter *w = q->head, *next; w != NULL; w = next) {
        next = w->next;
        weft__won won = weft__waiter_claim(w);
        if (won != WEFT__LOST) {
            weft__waitq_unlink(q, w);
            w->result = (int32_t)won;
            *end = w;
            end = &w->next;
#ifdef WEFT_CANARY_WAKE_ALL_WAKES_ONE
            break;
#endif
        }
    }
    *end = NULL;
    return chain;
}

void weft__wake_chain(weft__m *m, weft__waiter *chain, int result) {
    while (chain != NULL) {
        weft__waiter *next = chain->next; /* before its frame may go */
        weft__wake(m, chain, (weft__won)chain->result, result);
        chain = next;
    }
}

static void commit_free(weft__m *m) {
    weft__g *g = m->commit_g;
    uint64_t arming = m->commit_word;
    uint64_t armed = (arming & ~(uint64_t)WEFT__STATE) | WEFT__ARMED;
    if (!atomic_compare_exchange_strong_explicit(&g->word, &arming, armed, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        weft__ready(m, g); /* claimed while it was on its stack; the claimer left this to us */
    }
}

void weft__commit_slow(weft__m *m, uint8_t c) {
    weft__g *g = m->commit_g;
    if (c == WEFT__COMMIT_EXIT) {
        weft__g_reap(m, g);
    } else if (c == WEFT__COMMIT_YIELD) {
        atomic_store_explicit(&g->status, WEFT__G_RUNNABLE, memory_order_relaxed);
        weft__runqput(m->p, g);
    } else if (c == WEFT__COMMIT_FREE) {
        commit_free(m);
    } else if (c == WEFT__COMMIT_QUEUE) {
        weft__inject(g->r, g);
    }
}

/* A plain thread's park: a futex wait. A deadline is the wait's own time-out. */
WEFT__COLD static void park_forked(weft__g *g) {
    weft__fatal("a forked child waits (%s) for what its parent's threads would have done",
                weft__reason_text[g->reason]);
}

weft__m *weft__park_standin(weft__m *m, int64_t deadline) {
    weft__g *g = m->g;
    if (weft__unlikely(atomic_load(&g->cancel) == WEFT__CANCEL_FORKED)) {
        park_forked(g);
    }
    uint64_t w = atomic_load_explicit(&g->word, memory_order_acquire);
    weft__note_clear(&m->note);
    if ((w & WEFT__STATE) != WEFT__ARMING ||
        !atomic_compare_exchange_strong(&g->word, &w, (w & ~(uint64_t)WEFT__STATE) | WEFT__ARMED)) {
        return m; /* claimed already */
    }
    if (!weft__note_sleep_until(&m->note, deadline) &&
        weft__claim(g, w >> WEFT__GEN_SHIFT, WEFT__BY_DEADLINE) == WEFT__LOST) {
        weft__note_sleep(&m->note); /* a waker has won meanwhile and is about to wake us */
    }
    return m;
}

weft__m *weft__park_standin_held(weft__m *m, weft__lock *l) {
    if (weft__unlikely(atomic_load(&m->g->cancel) == WEFT__CANCEL_FORKED)) {
        park_forked(m->g);
    }
    weft__note_clear(&m->note);
    weft__lock_drop(l);
    weft__note_sleep(&m->note);
    return m;
}

static weft__cause cause_of(weft__g *g) {
    return (weft__cause)(atomic_load_explicit(&g->word, memory_order_acquire) >> WEFT__CAUSE_SHIFT &
                         3);
}

static bool is_claimed(weft__g *g) {
    return (atomic_load_explicit(&g->word, memory_order_acquire) & WEFT__STATE) == WEFT__CLAIMED;
}

/* Arms what ends the wait early: the deadline, the cancel flag. */
static void arm_ends(weft__m *m, weft__g *g, uint64_t word, int64_t deadline) {
    uint64_t gen = word >> WEFT__GEN_SHIFT;
    if (deadline != INT64_MAX) {
        g->timer_armed = true;
        if (weft__timer_arm_g(m, g, gen, deadline) != 0) {
            g->timer_armed = false;
            weft__claim(g, gen, WEFT__BY_NOMEM);
        }
    }
    weft__fence_light(); /* pairs with the stop's heavy fence: arming before the flag */
    if (weft__cancelled(g) && (word & WEFT__CANCELLABLE) != 0) {
        weft__claim(g, gen, WEFT__BY_CANCEL);
    }
}

weft__m *weft__park_free(weft__m *m, int64_t deadline, weft__reason why, const void *object,
                         const void *site, weft__cause *cause) {
    weft__g *g = m->g;
    weft__park_note(m, g, why, object, site);
    if (g->standin) {
        m = weft__park_standin(m, deadline);
        *cause = cause_of(g);
        return m;
    }
    uint64_t word = atomic_load_explicit(&g->word, memory_order_relaxed);
    if ((word & WEFT__STATE) == WEFT__ARMING) {
        arm_ends(m, g, word, deadline);
    }
    if (!is_claimed(g)) {
        m->commit = WEFT__COMMIT_FREE;
        m->commit_g = g;
        m->commit_word = word;
        m = weft__switch_away(m, g);
    } else {
        atomic_store_explicit(&g->status, WEFT__G_RUNNING, memory_order_relaxed);
    }
    *cause = cause_of(g);
    if (g->timer_armed) {
        g->timer_armed = false;
        if (*cause != WEFT__BY_DEADLINE) {
            weft__timer_stop(&g->timer);
        }
    }
    return m;
}
