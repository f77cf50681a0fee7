/*
 * The run queues of a P: a ring of 256 and the slot `runnext`; and the runtime's global queue.
 *
 * Ring: the holder alone writes `tail` (release) and the slots; anybody who takes moves `head` by
 * compare-and-swap, so a slot that was read counts only if head had not moved. Indices run free;
 * tail - head <= 256 at all times. A thief that reads head and tail apart may see more than 256/2 to
 * take: then they were of different moments, and it tries again.
 *
 * runnext is the holder's alone. Going back to user code with a G still there, he moves it to
 * `offered` (weft__pay), from where he or a thief exchanges it out; a thief does so only if the holder
 * has picked nothing since the thief's last look. With one P nobody steals: then the ring's head is
 * moved by a plain store.
 */
#include "sched/sched.h"

void weft__globq_put_list(weft__r *r, weft__glist *l) {
    if (l->len == 0) {
        return;
    }
    weft__lock_take(&r->lock);
    if (r->globq.tail != NULL) {
        r->globq.tail->next = l->head;
    } else {
        r->globq.head = l->head;
    }
    r->globq.tail = l->tail;
    r->globq.len += l->len;
    atomic_store_explicit(&r->globq_len, r->globq.len, memory_order_release);
    weft__lock_drop(&r->lock);
    *l = (weft__glist){0};
}

/* The ring is full: half of it and g go to the global queue. False: a thief made room meanwhile. */
static bool put_slow(weft__p *p, weft__g *g, uint32_t h, uint32_t t) {
    weft__g *batch[WEFT__RING / 2];
    uint32_t n = (t - h) / 2;
    for (uint32_t i = 0; i < n; i++) {
        batch[i] = atomic_load_explicit(&p->ring[(h + i) % WEFT__RING], memory_order_relaxed);
    }
    if (!atomic_compare_exchange_strong_explicit(&p->head, &h, h + n, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return false;
    }
    weft__glist l = {0};
    for (uint32_t i = 0; i < n; i++) {
        weft__glist_push(&l, batch[i]);
    }
#ifdef WEFT_CANARY_RING_OVERFLOW_DROPS
    (void)g;
#else
    weft__glist_push(&l, g);
#endif
    weft__globq_put_list(p->r, &l);
    return true;
}

/* Apart, so that the other way saves no register for a call. */
WEFT__COLD static void put_sampled(weft__p *p, weft__g *g) {
    weft__wait_sample(p, g);
    weft__runqput(p, g);
}

void weft__runqput(weft__p *p, weft__g *g) {
    if (weft__unlikely(p->sample)) {
        put_sampled(p, g);
        return;
    }
    for (;;) {
        uint32_t h = atomic_load_explicit(&p->head, memory_order_acquire);
        uint32_t t = atomic_load_explicit(&p->tail, memory_order_relaxed);
        if (weft__likely(t - h < WEFT__RING)) {
            atomic_store_explicit(&p->ring[t % WEFT__RING], g, memory_order_relaxed);
            atomic_store_explicit(&p->tail, t + 1, memory_order_release);
            return;
        }
        if (put_slow(p, g, h, t)) {
            return;
        }
    }
}

void weft__runqput_list(weft__p *p, weft__glist *l) {
    if (p->sample && l->tail != NULL) { /* the first or the last, as it falls */
        weft__wait_sample(p, p->sample_gap % 2 != 0 ? l->head : l->tail);
    }
    uint32_t h = atomic_load_explicit(&p->head, memory_order_acquire);
    uint32_t t = atomic_load_explicit(&p->tail, memory_order_relaxed);
    while (l->len > 0 && t - h < WEFT__RING) {
        atomic_store_explicit(&p->ring[t % WEFT__RING], weft__glist_pop(l), memory_order_relaxed);
        t++;
    }
    atomic_store_explicit(&p->tail, t, memory_order_release);
    weft__globq_put_list(p->r, l);
}

weft__g *weft__runqget_ring(weft__p *p) {
    uint32_t h = atomic_load_explicit(&p->head, memory_order_acquire);
    for (;;) {
        uint32_t t = atomic_load_explicit(&p->tail, memory_order_relaxed);
        if (t == h) {
            return NULL;
        }
        weft__g *g = atomic_load_explicit(&p->ring[h % WEFT__RING], memory_order_relaxed);
        if (weft__solo(p)) {
            atomic_store_explicit(&p->head, h + 1, memory_order_relaxed);
            return g;
        }
        if (atomic_compare_exchange_weak_explicit(&p->head, &h, h + 1, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return g;
        }
    }
}

bool weft__runq_has_ring(weft__p *p) {
    return atomic_load_explicit(&p->head, memory_order_acquire) !=
           atomic_load_explicit(&p->tail, memory_order_acquire);
}

/* Moves the larger half of the victim's ring into the thief's, whose ring is empty. How many. */
static uint32_t grab(weft__p *thief, weft__p *victim) {
    uint32_t base = atomic_load_explicit(&thief->tail, memory_order_relaxed);
    uint32_t h = atomic_load_explicit(&victim->head, memory_order_acquire);
    for (;;) {
        uint32_t t = atomic_load_explicit(&victim->tail, memory_order_acquire);
        uint32_t n = (t - h) - (t - h) / 2;
        if (n == 0) {
            return 0;
        }
        if (n > WEFT__RING / 2) { /* head and tail of different moments */
            h = atomic_load_explicit(&victim->head, memory_order_acquire);
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            weft__g *g =
                atomic_load_explicit(&victim->ring[(h + i) % WEFT__RING], memory_order_relaxed);
            atomic_store_explicit(&thief->ring[(base + i) % WEFT__RING], g, memory_order_relaxed);
        }
        if (atomic_compare_exchange_weak_explicit(&victim->head, &h, h + n, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            return n;
        }
    }
}

static weft__g *steal_next(weft__p *victim, uint32_t *seen_tick) {
    if (atomic_load_explicit(&victim->offered, memory_order_relaxed) == NULL) {
        return NULL;
    }
    uint32_t tick = atomic_load_explicit(&victim->tick, memory_order_relaxed);
    if (tick != *seen_tick) { /* its holder is about: it will most likely run it itself */
        *seen_tick = tick;
        return NULL;
    }
    return atomic_exchange_explicit(&victim->offered, NULL, memory_order_acq_rel);
}

/* Steals from victim: half of its ring, or (next_too) the G it offers. The
   last one taken is returned to run, the others lie in the thief's ring. seen_tick: the victim's
   tick at the thief's last look; updated. */
weft__g *weft__runqsteal(weft__p *thief, weft__p *victim, bool next_too, uint32_t *seen_tick) {
    uint32_t n = grab(thief, victim);
    if (n == 0) {
        weft__g *g = next_too ? steal_next(victim, seen_tick) : NULL;
        if (g != NULL) {
            weft__count(&thief->stats.steals, 1);
        }
        return g;
    }
    weft__count(&thief->stats.steals, n);
    uint32_t t = atomic_load_explicit(&thief->tail, memory_order_relaxed) + n - 1;
    weft__g *g = atomic_load_explicit(&thief->ring[t % WEFT__RING], memory_order_relaxed);
    if (n > 1) {
        atomic_store_explicit(&thief->tail, t, memory_order_release);
    }
    return g;
}
