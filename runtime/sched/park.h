/*
 * Park and ready: how a G waits. Included by sched.h; the argument is in park.c.
 *
 * A source (channel, mutex, descriptor side, ...) has a lock and a waitq. To wait, a caller puts a
 * waiter on its own stack into the waitq under the lock, and parks in one of two forms:
 *
 *   held  one source, no deadline: the lock is kept over the switch and dropped behind it.
 *   free  everything else: begin (arming), enqueue, unlock, then weft__park_free.
 *
 * To wake, under the lock: weft__waiter_claim(w). Won: change the source's state, copy the value,
 * unlink it; drop the lock; weft__wake (which marks it done and readies it): the source may be gone
 * from then on. Lost: the next waiter; the event stays in the source.
 */
#ifndef WEFT__PARK_H
#define WEFT__PARK_H

typedef struct weft__waiter {
    struct weft__waiter *next, *prev;
    weft__g *g;
    uint64_t gen;          /* of the free park it belongs to; 0: a held park */
    void *slot;            /* where a value comes from or goes to */
    int32_t result;        /* written by the winner */
    _Atomic uint32_t done; /* the winner has finished with this node: nobody touches it any more */
    bool linked;           /* in a waitq; under the source's lock */
} weft__waiter;

WEFT__ALWAYS_INLINE void weft__waitq_push(weft__waitq *q, weft__waiter *w) {
    w->next = NULL;
    w->prev = q->tail;
    if (q->tail != NULL) {
        q->tail->next = w;
    } else {
        q->head = w;
    }
    q->tail = w;
    w->linked = true;
}
WEFT__ALWAYS_INLINE void weft__waitq_push_front(weft__waitq *q, weft__waiter *w) {
    w->prev = NULL;
    w->next = q->head;
    if (q->head != NULL) {
        q->head->prev = w;
    } else {
        q->tail = w;
    }
    q->head = w;
    w->linked = true;
}
WEFT__ALWAYS_INLINE void weft__waitq_unlink(weft__waitq *q, weft__waiter *w) {
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        q->head = w->next;
    }
    if (w->next != NULL) {
        w->next->prev = w->prev;
    } else {
        q->tail = w->prev;
    }
    w->linked = false;
}

WEFT__ALWAYS_INLINE void weft__waiter_init(weft__waiter *w, weft__g *g, uint64_t gen, void *slot) {
    w->g = g;
    w->gen = gen;
    w->slot = slot;
    w->result = 0;
    w->linked = false;
    atomic_store_explicit(&w->done, 0, memory_order_relaxed);
}

/* ---- claims ------------------------------------------------------------------------------------ */
typedef enum weft__won { WEFT__LOST, WEFT__WON, WEFT__WON_READY } weft__won; /* READY: ready it */

/* The claim of a wait by its generation. One of any number of claimers wins. */
WEFT__ALWAYS_INLINE weft__won weft__claim(weft__g *g, uint64_t gen, weft__cause cause) {
    uint64_t w = atomic_load_explicit(&g->word, memory_order_acquire);
    for (;;) {
        uint64_t state = w & WEFT__STATE;
#ifndef WEFT_CANARY_CLAIM_WITHOUT_GENERATION
        if (w >> WEFT__GEN_SHIFT != gen) {
            return WEFT__LOST;
        }
#endif
        if (state != WEFT__ARMING && state != WEFT__ARMED) {
            return WEFT__LOST;
        }
        uint64_t to = (w | WEFT__CLAIMED) | (uint64_t)cause << WEFT__CAUSE_SHIFT;
        if (atomic_compare_exchange_weak_explicit(&g->word, &w, to, memory_order_acq_rel,
                                                  memory_order_acquire)) {
#ifdef WEFT_CANARY_READY_ON_ARMING
            return WEFT__WON_READY;
#else
            return state == WEFT__ARMED ? WEFT__WON_READY : WEFT__WON;
#endif
        }
    }
}
bool weft__claim_held_contended(weft__g *g);

/* A source claims a waiter of its queue, under its lock.
   Held: nobody else can dequeue it, so a plain mark is enough, unless a stop is about: `taken` before
   `cancel` here, `cancel` (heavy fence) before `taken` there; then the word decides. */
WEFT__ALWAYS_INLINE weft__won weft__waiter_claim(weft__waiter *w) {
    weft__g *g = w->g;
    if (w->gen != 0) {
        return weft__claim(g, w->gen, WEFT__BY_SOURCE);
    }
    atomic_store_explicit(&g->taken, 1, memory_order_relaxed);
    weft__fence_light();
    if (weft__unlikely(atomic_load_explicit(&g->cancel, memory_order_relaxed) != 0) &&
        !weft__claim_held_contended(g)) {
        return WEFT__LOST;
    }
    return WEFT__WON_READY;
}
/* The common case of a wake: the first waiter of q that can be claimed, unlinked; NULL if none. */
WEFT__ALWAYS_INLINE weft__waiter *weft__waitq_claim(weft__waitq *q, weft__won *won) {
    for (weft__waiter *w = q->head; w != NULL; w = w->next) {
        *won = weft__waiter_claim(w);
        if (weft__likely(*won != WEFT__LOST)) {
            weft__waitq_unlink(q, w);
            return w;
        }
    }
    return NULL;
}

/* The winner's last act, with no lock held: its last touch of the node, and of the source, which a
   woken party may free. */
WEFT__ALWAYS_INLINE void weft__wake(weft__m *m, weft__waiter *w, weft__won won, int result) {
    weft__g *g = w->g;
    w->result = result;
    atomic_store_explicit(&w->done, 1, memory_order_release);
    if (won == WEFT__WON_READY) {
        weft__ready(m, g);
    }
}
/* Wakes a chain of nodes (by next) whose claims were won and kept in `result`. */
void weft__wake_chain(weft__m *m, weft__waiter *chain, int result);
/* Claims every waiter of q that can be claimed; unlinks them into a chain for weft__wake_chain. */
weft__waiter *weft__waitq_claim_all(weft__waitq *q);
/* The waiter's side, claimed by its source: returns once the winner has let go of the node. */
void weft__waiter_await(weft__waiter *w);

/* ---- switching --------------------------------------------------------------------------------- */
void weft__commit_slow(weft__m *m, uint8_t c);
WEFT__ALWAYS_INLINE void weft__commit(weft__m *m) {
    uint8_t c = m->commit;
    if (c == WEFT__COMMIT_NONE) {
        return;
    }
    m->commit = WEFT__COMMIT_NONE;
    if (weft__likely(c == WEFT__COMMIT_HELD)) {
        atomic_store_explicit(&m->commit_g->word, m->commit_word, memory_order_release);
#ifndef WEFT_CANARY_LOCK_DROPPED_BEFORE_SWITCH
        weft__lock_drop(m->commit_lock);
#endif
        return;
    }
    weft__commit_slow(m, c);
}

#ifdef WEFT__ASAN
void __sanitizer_start_switch_fiber(void **fake_stack_save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack_save, const void **bottom_old,
                                     size_t *size_old);
#endif
#ifdef WEFT__TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

/* One switch, with the sanitizers told. `ends`: `from` will never come back. */
WEFT__ALWAYS_INLINE weft__m *weft__fiber_switch_bare(weft__fiber *from, weft__fiber *to, weft__m *m,
                                                     bool ends) {
    (void)ends;
#ifdef WEFT__ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &from->asan_fake, to->asan_low, to->asan_bytes);
#endif
#ifdef WEFT__TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    m = weft__ctx_switch(&from->ctx, &to->ctx, m);
#ifdef WEFT__ASAN
    __sanitizer_finish_switch_fiber(from->asan_fake, NULL, NULL);
#endif
    return m;
}

weft__m *weft__fiber_switch_eh(weft__fiber *from, weft__fiber *to, weft__m *m, bool ends);
/* The same, and the exceptions that are being handled go with their G. */
WEFT__ALWAYS_INLINE weft__m *weft__fiber_switch(weft__fiber *from, weft__fiber *to, weft__m *m,
                                                bool ends) {
    if (weft__unlikely(weft__eh_busy(m->eh))) {
        return weft__fiber_switch_eh(from, to, m, ends);
    }
    return weft__fiber_switch_bare(from, to, m, ends);
}

/* The next G if it may be run straight from the parker's stack: from runnext or the ring, no request
   up, nothing owed that must be paid, and the last look not too long ago. Else NULL: go to g0. */
WEFT__ALWAYS_INLINE weft__g *weft__pick_direct(weft__m *m) {
#if defined(WEFT__TSAN)
    (void)m;
    return NULL; /* a commit runs in the M's own fiber there */
#else
    weft__p *p = m->p;
    if (weft__unlikely(p->picks >= WEFT__PICKS || (m->owed & ~WEFT__OWED_NEXT) != 0 ||
                       atomic_load_explicit(&m->ticket, memory_order_relaxed) != 1)) {
        return NULL;
    }
    bool next_first = p->turns == 0;
    weft__g *g = weft__pick_local(p);
    if (g == NULL) {
        return NULL;
    }
    if (weft__unlikely(g->locked != 0)) {
        m->aside = g;
        return NULL;
    }
    if (weft__likely(next_first)) {
        m->owed = 0; /* what was put next in line runs now */
    }
    p->picks++;
    return g;
#endif
}
/* Bookkeeping of "g runs on m from here". */
WEFT__ALWAYS_INLINE void weft__execute(weft__m *m, weft__g *g) {
    weft__p *p = m->p;
    atomic_store_explicit(&p->tick, atomic_load_explicit(&p->tick, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (weft__unlikely(g->thread != m->thread)) {
        weft__g_comes(m, g);
    }
    atomic_store_explicit(&g->status, WEFT__G_RUNNING, memory_order_relaxed);
    m->g = g;
}
/* Leaves g's stack with a commit prepared in m; returns when g runs again, on the M returned. */
WEFT__ALWAYS_INLINE weft__m *weft__switch_away(weft__m *m, weft__g *g) {
    weft__g *next = weft__pick_direct(m);
    weft__fiber *to = &m->g0;
    if (weft__likely(next != NULL)) {
        weft__execute(m, next);
        to = &next->fiber;
    }
    m = weft__fiber_switch(&g->fiber, to, m, false);
    weft__commit(m);
    return m;
}

WEFT__ALWAYS_INLINE void weft__park_note(weft__m *m, weft__g *g, weft__reason why,
                                         const void *object, const void *site) {
    g->reason = (uint8_t)why;
    g->object = object;
    g->site = site;
    g->since = m->p != NULL ? m->p->now : 0;
    atomic_store_explicit(&g->status, WEFT__G_WAITING, memory_order_relaxed);
}

weft__m *weft__park_standin(weft__m *m, int64_t deadline);
weft__m *weft__park_standin_held(weft__m *m, weft__lock *l);

/* The held park. The caller holds l, has linked a waiter made with gen 0 under it. Cancellable: a
   stop may end it; then *cancelled is true, the waiter is still linked and l is not held. */
WEFT__ALWAYS_INLINE weft__m *weft__park_held(weft__m *m, weft__lock *l, bool cancellable,
                                             weft__reason why, const void *object, const void *site,
                                             bool *cancelled) {
    weft__g *g = m->g;
    weft__park_note(m, g, why, object, site);
    if (weft__unlikely(g->standin)) {
        *cancelled = false;
        return weft__park_standin_held(m, l);
    }
    uint64_t gen = (atomic_load_explicit(&g->word, memory_order_relaxed) >> WEFT__GEN_SHIFT) + 1;
    /* The word says `running` since the last wait: a stop that reads 0 here reads that, or later. */
    atomic_store_explicit(&g->taken, 0, memory_order_release);
    m->commit = WEFT__COMMIT_HELD;
    m->commit_g = g;
    m->commit_lock = l;
    m->commit_word =
        gen << WEFT__GEN_SHIFT | WEFT__HELD | WEFT__ARMED | (cancellable ? WEFT__CANCELLABLE : 0);
#ifdef WEFT_CANARY_LOCK_DROPPED_BEFORE_SWITCH
    weft__lock_drop(l);
#endif
    m = weft__switch_away(m, g);
    uint64_t w = atomic_load_explicit(&g->word, memory_order_relaxed);
    atomic_store_explicit(&g->word, gen << WEFT__GEN_SHIFT | WEFT__RUNNING, memory_order_release);
    *cancelled = weft__unlikely((w & WEFT__STATE) == WEFT__CLAIMED) &&
                 (w >> WEFT__CAUSE_SHIFT & 3) == WEFT__BY_CANCEL;
    return m;
}

/* Begins a free park: from here any claimer with this generation may take the G. */
WEFT__ALWAYS_INLINE uint64_t weft__park_begin(weft__g *g, bool cancellable) {
    uint64_t gen = (atomic_load_explicit(&g->word, memory_order_relaxed) >> WEFT__GEN_SHIFT) + 1;
    atomic_store_explicit(
        &g->word, gen << WEFT__GEN_SHIFT | WEFT__ARMING | (cancellable ? WEFT__CANCELLABLE : 0),
        memory_order_release);
    return gen;
}
/* The free park, with no lock held: arms the deadline (INT64_MAX: none), tests the cancel flag,
   waits. On return the deadline is disarmed and *cause says who claimed. BY_SOURCE: weft__waiter_await,
   and the source is not touched again. Else the node is still linked: unlink it under the lock. */
weft__m *weft__park_free(weft__m *m, int64_t deadline, weft__reason why, const void *object,
                         const void *site, weft__cause *cause);
WEFT__ALWAYS_INLINE int weft__error_of(weft__cause cause) {
    return cause == WEFT__BY_DEADLINE ? -ETIMEDOUT
           : cause == WEFT__BY_CANCEL ? -ECANCELED
           : cause == WEFT__BY_NOMEM  ? -ENOMEM
                                      : 0;
}
/* Why g's waits are ended at once. */
WEFT__ALWAYS_INLINE int weft__cancel_error(const weft__g *g) {
    return atomic_load_explicit(&g->cancel, memory_order_relaxed) == WEFT__CANCEL_FORKED
               ? -EPERM
               : -ECANCELED;
}
/* The flag that every cancellable call looks at first. */
WEFT__ALWAYS_INLINE bool weft__cancelled(const weft__g *g) {
    return weft__unlikely(atomic_load_explicit(&g->cancel, memory_order_relaxed) != 0);
}

#endif
