/*
 * Timers in the scheduler: one heap a P and one for adders without a P, each with a lock.
 *
 * A timer is guarded by the lock of the set it is homed in; `home` changes only under that lock, and
 * only while the timer is in no heap, so who locks a set and still finds it to be the home has the
 * timer. Sets are never given back to the allocator (they serve the next runtime), so a set read a
 * moment too early can still be locked.
 *
 * A timer joins only the heap of the P that its adder holds (or the set without a P): an idle P's
 * heap never grows behind its back.
 *
 * min_key is published when the lock is dropped and read without it. It is a lower bound of the
 * earliest time: heads whose timer was moved to later are re-keyed before anybody sleeps on them.
 *
 * Firing: what is due leaves the heap and what must be done is copied, under the lock; it is done
 * with no lock held. A stop that comes later finds the timer in no heap: it has fired.
 */
#include "sched/sched.h"

#include <string.h>

weft__lock weft__tset_pool_lock;
static weft__tset *pool; /* linked by r, which a pooled set does not need */

enum { ROOM = 64 }; /* timers that a new set has room for */

static void to_pool(weft__tset *ts) {
    weft__lock_take(&weft__tset_pool_lock);
    ts->r = (weft__r *)(void *)pool;
    pool = ts;
    weft__lock_drop(&weft__tset_pool_lock);
}

weft__tset *weft__tset_new(weft__r *r) {
    weft__lock_take(&weft__tset_pool_lock);
    weft__tset *ts = pool;
    if (ts != NULL) {
        pool = (weft__tset *)(void *)ts->r;
    }
    weft__lock_drop(&weft__tset_pool_lock);
    if (ts == NULL) {
        ts = weft__mem_alloc_aligned(sizeof *ts, WEFT__LINE);
        if (ts == NULL) {
            return NULL;
        }
        memset(ts, 0, sizeof *ts);
    }
    /* Its first timers come in a park, which should not wait for the allocator's lock. */
    if (weft__heap_reserve(&ts->heap, ROOM) != 0) {
        to_pool(ts);
        return NULL;
    }
    weft__lock_take(&ts->lock);
    ts->r = r;
    ts->refs = 1;
    ts->closed = false;
    atomic_store(&ts->min_key, INT64_MAX);
    weft__lock_drop(&ts->lock);
    return ts;
}

/* Gives up one hold and the lock; the last one puts the set into the pool. */
static void unref(weft__tset *ts) {
    bool last = --ts->refs == 0;
    if (last) {
        weft__heap_fini(&ts->heap);
        memset(&ts->heap, 0, sizeof ts->heap);
    }
    weft__lock_drop(&ts->lock);
    if (last) {
        to_pool(ts);
    }
}

void weft__tset_close(weft__tset *ts) {
    weft__lock_take(&ts->lock);
    ts->closed = true; /* so nothing is put in while the lock is dropped below */
    while (ts->heap.len > 0) {
        weft__timer *t = ts->heap.entries[0].timer;
        weft__heap_remove(&ts->heap, t);
        weft__ktimer *k = weft__container(t, weft__ktimer, t);
        weft__waiter *chain = t->kind == WEFT__TIMER_K && k->gone != NULL ? k->gone(k, ts) : NULL;
        if (chain != NULL) {
            weft__lock_drop(&ts->lock);
            weft__m *m = weft__enter_nopark();
            weft__wake_chain(m, chain, -EBADF);
            weft__leave(m);
            weft__lock_take(&ts->lock);
        }
    }
    atomic_store(&ts->min_key, INT64_MAX);
    unref(ts);
}

weft__tset *weft__tset_of(weft__m *m, weft__r *r) {
    return m != NULL && m->p != NULL && m->r == r ? m->p->tset : r->tset;
}

static weft__tset *home_of(weft__timer *t) {
    return (weft__tset *)(void *)__atomic_load_n(&t->home, __ATOMIC_ACQUIRE);
}

static void set_home(weft__timer *t, weft__tset *ts) {
    __atomic_store_n(&t->home, &ts->heap, __ATOMIC_RELEASE);
}

weft__tset *weft__timer_lock(weft__timer *t) {
    for (;;) {
        weft__tset *ts = home_of(t);
        weft__lock_take(&ts->lock);
        if (weft__likely(home_of(t) == ts)) {
            return ts;
        }
        weft__lock_drop(&ts->lock);
    }
}

void weft__tset_unlock(weft__tset *ts) {
    atomic_store_explicit(&ts->min_key, weft__heap_min_key(&ts->heap), memory_order_release);
    weft__lock_drop(&ts->lock);
}

uint32_t weft__tset_len(weft__tset *ts) {
    weft__lock_take(&ts->lock);
    uint32_t len = ts->heap.len;
    weft__lock_drop(&ts->lock);
    return len;
}

void weft__timer_home(weft__timer *t, weft__tset *ts) {
    weft__lock_take(&ts->lock);
    ts->refs++;
    set_home(t, ts);
    weft__lock_drop(&ts->lock);
}

void weft__timer_unhome(weft__timer *t, weft__tset *ts) {
    (void)t;
    atomic_store_explicit(&ts->min_key, weft__heap_min_key(&ts->heap), memory_order_release);
    unref(ts);
}

weft__tset *weft__timer_rehome(weft__timer *t, weft__tset *ts, weft__tset *to) {
    /* `to` gets its hold first: the timer must not be homed in a set that has gone. It belongs to a
       living runtime whose thread we are, so it is not closed under us. */
    weft__lock_drop(&ts->lock);
    weft__lock_take(&to->lock);
    to->refs++;
    weft__lock_drop(&to->lock);
    weft__tset *now = weft__timer_lock(t);
    if (now == to || t->pos != 0) { /* somebody else has been here */
        weft__lock_drop(&now->lock);
        weft__lock_take(&to->lock);
        unref(to);
        return weft__timer_lock(t);
    }
    set_home(t, to);
    unref(now);
    return weft__timer_lock(t);
}

int weft__timer_put(weft__tset *ts, weft__timer *t, int64_t when, bool *earlier) {
    int64_t before = weft__heap_min_key(&ts->heap);
    if (t->pos != 0) {
        weft__heap_reset(&ts->heap, t, when);
    } else {
        t->when = when;
        int err = weft__heap_insert(&ts->heap, t);
        if (err != 0) {
            return err;
        }
    }
    *earlier = weft__heap_min_key(&ts->heap) < before;
    return 0;
}

/* Locks the set where t is, or is to be. In no heap and with one party to arm it, its home is free
   to choose. */
static weft__tset *lock_for(weft__m *m, weft__r *r, weft__timer *t) {
    if (home_of(t) != NULL) {
        weft__tset *ts = weft__timer_lock(t);
        if (t->pos != 0) {
            return ts;
        }
        weft__lock_drop(&ts->lock);
    }
    weft__tset *ts = weft__tset_of(m, r);
    set_home(t, ts);
    weft__lock_take(&ts->lock);
    return ts;
}

int weft__timer_arm(weft__m *m, weft__r *r, weft__timer *t, int64_t when) {
    weft__tset *ts = lock_for(m, r, t);
    bool earlier = false;
    int err = weft__timer_put(ts, t, when, &earlier);
    weft__tset_unlock(ts);
    if (earlier) {
        weft__timers_earlier(m, r, when);
    }
    return err;
}

int weft__timer_arm_g(weft__m *m, weft__g *g, uint64_t gen, int64_t when) {
    weft__tset *ts = weft__tset_of(m, g->r);
    weft__timer *t = &g->timer;
    bool earlier = false;
    set_home(t, ts); /* in no heap, and only its G arms it */
    weft__lock_take(&ts->lock);
    t->kind = WEFT__TIMER_G;
    g->timer_gen = gen;
    int err = weft__timer_put(ts, t, when, &earlier);
    weft__tset_unlock(ts);
    if (earlier) {
        weft__timers_earlier(m, g->r, when);
    }
    return err;
}

bool weft__timer_stop(weft__timer *t) {
    weft__tset *ts = weft__timer_lock(t);
    bool was = t->pos != 0;
    if (was) {
        weft__heap_remove(&ts->heap, t);
        weft__tset_unlock(ts);
    } else {
        weft__lock_drop(&ts->lock);
    }
    return was;
}

/* A time earlier than all before has been published in a set of r. Who sleeps in the poller must not
   sleep past it; if nobody does, an idle P shall (owed, since this M may go there itself at once).
   I8: publish, full fence, read `polling`; there: set `polling`, then look for the earliest. */
void weft__timers_earlier(weft__m *m, weft__r *r, int64_t when) {
#ifdef WEFT_CANARY_TIMER_NO_EARLIER_WAKE
    return;
#endif
    weft__fence_full();
    if (atomic_load(&r->polling) != 0) {
        int64_t until = atomic_load(&r->poll_until);
        if (until == 0 || until > when) {
            weft__poller_break(r->poller);
        }
        return;
    }
    if (m == NULL || m->p == NULL || m->r != r) {
        weft__wakep(r, &r->stats.wake_timer);
        return;
    }
#ifndef WEFT_TARGET_PLAN9 /* there the wake-up is left out: the adder's P will look by itself */
    /* One P alone: this M goes there in any case, unless it computes; then sysmon is to know. */
    m->owed |= WEFT__OWED_TIMER & atomic_load_explicit(&m->p->owes, memory_order_relaxed);
#endif
}

void weft__tset_unlock_earlier(weft__m *m, weft__tset *ts, weft__r *r, int64_t when, bool earlier) {
    bool foreign =
        earlier && m->r != r; /* then only the set, which is not closed, has held r for us */
    if (foreign) {
        atomic_fetch_add(&r->users, 1);
    }
    weft__tset_unlock(ts);
    if (earlier) {
        weft__timers_earlier(m, r, when);
    }
    if (foreign) {
        atomic_fetch_sub(&r->users, 1);
    }
}

static void note_late(weft__pstats *s, int64_t late) {
    weft__phist_add(&s->timer_late, late);
    weft__count(&s->timers_fired, 1);
}

static void fire_g(weft__timer *t, weft__glist *ready) {
    weft__g *g = weft__container(t, weft__g, timer);
    if (weft__claim(g, g->timer_gen, WEFT__BY_DEADLINE) == WEFT__WON_READY) {
        weft__glist_push(ready, g);
    }
}

static void ready_all(weft__m *m, weft__glist *ready) {
    weft__glist mine = {0};
    weft__g *g;
    while ((g = weft__glist_pop(ready)) != NULL) {
        if (g->r == m->r && m->p != NULL) {
            atomic_store_explicit(&g->status, WEFT__G_RUNNABLE, memory_order_relaxed);
            weft__glist_push(&mine, g);
        } else {
            weft__ready_far(m, g);
        }
    }
    if (mine.len > 0) {
        m->owed |= WEFT__OWED_WORK;
        weft__runqput_list(m->p, &mine);
    }
}

static void finish(weft__m *m, weft__fired *f) {
    if (f->waiter != NULL) {
        weft__wake(m, f->waiter, (weft__won)f->won, 0);
    }
    if (f->run != NULL) {
        f->run(m, f->arg, f->num);
    }
}

/* Runs what is due by `now` (perhaps a moment ago: such a clock may say due, it is never ahead).
   m holds a P. */
void weft__timers_run(weft__m *m, weft__tset *ts, int64_t now) {
    enum { A_TIME = 64 }; /* fired under one hold of the lock */
    weft__timer *t;
    weft__glist ready = {0};
    weft__lock_take(&ts->lock);
    for (int n = 1; (t = weft__heap_due(&ts->heap, now)) != NULL; n++) {
        weft__fired f = {0};
        note_late(&m->p->stats, now - t->when);
        if (t->kind == WEFT__TIMER_G) {
            fire_g(t, &ready);
        } else {
            weft__ktimer *k = weft__container(t, weft__ktimer, t);
            k->fire(k, m, ts, now, &f);
            if (f.start != NULL) {
                weft__glist_push(&ready, f.start);
            }
        }
        if (f.run != NULL || f.waiter != NULL || n % A_TIME == 0) {
            weft__tset_unlock(ts);
            finish(m, &f);
            weft__lock_take(&ts->lock);
        }
    }
    weft__tset_unlock(ts);
    ready_all(m, &ready);
}

int64_t weft__round_within(int64_t when, int64_t slack) {
    if (slack <= 0 || when <= 0 || when > INT64_MAX - slack) {
        return when;
    }
    uint64_t differ = (uint64_t)(when - 1) ^ (uint64_t)(when + slack);
    int bit = 63 - __builtin_clzll(differ);
    return (when + slack) >> bit << bit;
}

int64_t weft__round_time(int64_t when, int64_t now) {
    int64_t length = when - now;
    if (length < WEFT_MILLISECOND) {
        return when;
    }
    int64_t slack = length / 256;
    return weft__round_within(when,
                              slack < 100 * WEFT_MICROSECOND ? slack : 100 * WEFT_MICROSECOND);
}

static int64_t next_of(weft__tset *ts, int64_t upto) {
    if (weft__tset_min(ts) >= upto) {
        return upto;
    }
    weft__lock_take(&ts->lock);
    int64_t when = weft__heap_min(&ts->heap);
    weft__tset_unlock(ts);
    return when < upto ? when : upto;
}

int64_t weft__timers_next(weft__r *r) {
    int64_t when = next_of(r->tset, INT64_MAX);
    int nps = weft__nps(r);
    for (int i = 0; i < nps; i++) {
        when = next_of(r->ps[i]->tset, when);
    }
    return when;
}
