/*
 * How many Ps: changed at any time, without stopping the world.
 *
 * Records of Ps are never freed while the runtime lives; `nps` counts them. The first `nprocs` of them run
 * Gs, the others have been set aside: empty queue, in no list, marked in idle_mask so that thieves pass
 * them over. All that looks for work, timers or sums looks at `nps` records, so nothing in a P that is on
 * its way out is ever overlooked.
 *
 * sysmon makes the change, for it alone takes Ps from others (handoff.c). It writes what it wants into
 * the P (`change`), and whoever has the P in his hands does it:
 *   idle, or waiting for an M: sysmon itself, under sched.lock (weft__p_fetch)
 *   held by an M               at its next look from g0 (weft__p_heed); REVOKE makes that look come soon
 *   its M in user code         sysmon takes it as from any hog, and does it (weft__handoffp)
 *   on its way                 where it comes to rest (weft__pidleput), or by the M that gets it
 * So a change waits for nobody's user code, but with WEFT_EXCLUSIVE, where nothing is taken.
 *
 * Invariants:
 *   Z1  `change` is written before the P is looked for; who puts a P to rest looks at `change` under
 *       sched.lock. So a P that is asked for comes to sysmon by the one way or the other.
 *   Z2  `solo` is changed by the P's holder or in somebody's hands. It becomes false before a second P is
 *       let loose, and true only once all other Ps have been set aside, when no thief can be at work.
 *   Z3  The timers of a P that is set aside stay where they are: in every scan for the earliest time, and
 *       each such heap is looked after by the P whose index is the same modulo nprocs. One-shots that
 *       are armed again go elsewhere by themselves. So no timer is moved, and none can be lost in a move.
 *   Z4  Where the default is in force, what it is made of (CPUs allowed, quotas of control groups) is looked
 *       at again once a second while the runtime works: read by sysmon, with descriptors of its own; asked
 *       for by the maker's thread, which may allocate and does not wait.
 *   Z5  Who waits here has been counted in `users` (the runtime stays, and is not taken for dead).
 */
#include <string.h>

#include "sched/sched.h"

struct weft__resize_request {
    struct weft__resize_request *next;
    weft__waiter w;  /* without a G nobody waits */
    int n;           /* 0: not in use */
    weft__p **fresh; /* records that may be needed; taken from the end */
    int nfresh;
    size_t room;        /* of fresh */
    weft__order *order; /* for n records; NULL once taken */
    bool begun;
};

/* ---- records ------------------------------------------------------------------------------------ */

static const size_t SEEN_BYTES = WEFT__MOST_PROCS * sizeof(uint32_t);

weft__p *weft__p_new(weft__r *r) {
    weft__p *p = weft__mem_alloc_aligned(sizeof *p, WEFT__LINE);
    if (p == NULL) {
        return NULL;
    }
    memset(p, 0, sizeof *p);
    p->r = r;
    p->rand = (uint64_t)weft__clock_now() * 2654435761u + (uint64_t)(uintptr_t)p * 97 + 1;
    p->seen_ticks = weft__mem_zalloc(SEEN_BYTES);
    p->tset = weft__tset_new(r);
    if (p->seen_ticks == NULL || p->tset == NULL) {
        weft__p_free(p);
        return NULL;
    }
    return p;
}

void weft__p_free(weft__p *p) {
    if (p == NULL) {
        return;
    }
    if (p->tset != NULL) {
        weft__tset_close(p->tset);
    }
    weft__mem_free(p->seen_ticks, SEEN_BYTES);
    weft__mem_free_aligned(p, sizeof *p, WEFT__LINE);
}

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static size_t order_bytes(uint32_t n) { return sizeof(weft__order) + n * sizeof(uint32_t); }

weft__order *weft__order_new(uint32_t n) {
    weft__order *o = weft__mem_zalloc(order_bytes(n));
    if (o == NULL) {
        return NULL;
    }
    o->n = n;
    for (uint32_t i = 1; i <= n; i++) {
        if (gcd(i, n) == 1) {
            o->strides[o->nstrides++] = i;
        }
    }
    return o;
}

void weft__order_free(weft__order *o) {
    while (o != NULL) {
        weft__order *older = o->older;
        weft__mem_free(o, order_bytes(o->n));
        o = older;
    }
}

/* ---- a P changes -------------------------------------------------------------------------------- */

void weft__p_changes(weft__p *p) {
    uint8_t to = weft__change_of(p);
    while (to == WEFT__P_SOLO || to == WEFT__P_SHARED) {
        bool solo = to == WEFT__P_SOLO;
        atomic_store_explicit(&p->solo, solo, memory_order_relaxed);
        atomic_store_explicit(&p->owes,
                              solo ? 0 : WEFT__OWED_NEXT | WEFT__OWED_WORK | WEFT__OWED_TIMER,
                              memory_order_relaxed);
        if (atomic_compare_exchange_strong(&p->change, &to, 0)) {
            return;
        }
    }
}

void weft__p_retires(weft__r *r, weft__p *p) {
    weft__gfree_give(p);
    p->gone = true;
    atomic_fetch_sub(&r->nprocs, 1);
    atomic_store_explicit(&p->change, 0, memory_order_release);
}

void weft__p_set_aside(weft__p *p) {
    weft__r *r = p->r;
#ifdef WEFT_CANARY_RETIRED_WITH_ITS_QUEUE
    weft__lock_take(&r->lock);
    weft__pidleput(r, p);
    weft__lock_drop(&r->lock);
    return;
#endif
    weft__flush_queue(p);
    weft__lock_take(&r->lock);
    weft__pidleput(r, p);
    weft__lock_drop(&r->lock);
    weft__pidle_look_again(r); /* what was flushed may have been seen by nobody else */
}

void weft__p_heed(weft__m *m) {
    weft__p_changes(m->p);
    if (weft__change_of(m->p) == WEFT__P_RETIRE) {
        weft__releasep(m);
    }
}

int64_t weft__timers_of(weft__r *r, weft__p *p) {
    int64_t first = weft__tset_min(p->tset);
    int nps = weft__nps(r), step = weft__nprocs(r);
    if (weft__likely(nps == step)) {
        return first;
    }
    for (int i = (int)p->index + step; i < nps; i += step) {
        int64_t min = weft__tset_min(r->ps[i]->tset);
        first = min < first ? min : first;
    }
    return first;
}

/* ---- by sysmon ---------------------------------------------------------------------------------- */

/* Asks p for a change, and does it if p is at rest. */
static void ask(weft__r *r, weft__p *p, uint8_t change) {
    if (change != 0) {
        atomic_store(&p->change, change);
    } else if (weft__change_of(p) == 0) {
        return;
    }
    atomic_store(&r->retaking, 1); /* what lies in its queue is nowhere for a moment */
    weft__lock_take(&r->lock);
    enum weft__p_was was = weft__p_fetch(r, p);
    if (was == WEFT__P_WAS_IDLE) {
        weft__pidleput(r, p);
    }
    weft__lock_drop(&r->lock);
    if (was == WEFT__P_WAITED) {
#ifndef WEFT_CANARY_SPINNER_LOST_WITH_ITS_P
        if (p->make_spinning) { /* the M to come was counted; below, all is looked at once more */
            atomic_fetch_sub(&r->nmspinning, 1);
        }
#endif
        weft__handoffp(r, p);
    }
    atomic_store(&r->retaking, 0);
}

/* Z2: the first P, if it was alone, knows that it is not any more. */
static void let_loose(weft__r *r, struct weft__resize_request *q) {
    for (int i = weft__nprocs(r); i < q->n; i++) {
        bool fresh = i == weft__nps(r);
        weft__p *p = fresh ? q->fresh[--q->nfresh] : r->ps[i];
        atomic_store(&p->change, WEFT__P_SHARED);
        if (fresh) {
            p->index = (uint32_t)i;
            r->ps[i] = p;
            atomic_store(&r->nps, i + 1);
        }
        weft__lock_take(&r->lock);
        p->gone = false;
        atomic_fetch_add(&r->nprocs, 1);
        weft__pidleput(r, p);
        weft__lock_drop(&r->lock);
    }
    weft__order *before = atomic_load(&r->order);
    if ((uint32_t)weft__nps(r) > before->n) {
        q->order->older = before;
        atomic_store(&r->order, q->order);
        q->order = NULL;
    }
    weft__pidle_look_again(r);
}

static void begin(weft__r *r, struct weft__resize_request *q) {
    int now = weft__nprocs(r);
    if (now == 1 && q->n > 1) {
        ask(r, r->ps[0], WEFT__P_SHARED);
    }
    for (int i = now - 1; i >= q->n; i--) {
        ask(r, r->ps[i], WEFT__P_RETIRE);
    }
    q->begun = true;
}

/* True: the number is what it shall be. */
static bool goes_on(weft__r *r, struct weft__resize_request *q) {
    if (q->n > 1 && weft__change_of(r->ps[0]) != 0) {
        ask(r, r->ps[0], 0);
        if (weft__change_of(r->ps[0]) != 0) {
            return false;
        }
    }
    for (int i = weft__nprocs(r) - 1; i >= q->n; i--) {
        ask(r, r->ps[i], 0);
    }
    if (weft__nprocs(r) > q->n) {
        return false;
    }
    if (weft__nprocs(r) < q->n) {
        let_loose(r, q);
    } else if (q->n == 1 && !weft__solo(r->ps[0])) {
        ask(r, r->ps[0], WEFT__P_SOLO);
    }
    return true;
}

/* Nothing of the request is touched behind `done`. */
static void tell(struct weft__resize_request *q) {
    weft__g *g = q->w.g;
    if (g == NULL) {
        atomic_store_explicit(&q->w.done, 1, memory_order_release);
        return;
    }
    weft__won won = weft__waiter_claim(&q->w); /* nobody else claims it */
    atomic_store_explicit(&q->w.done, 1, memory_order_release);
    if (won == WEFT__WON_READY) {
        weft__ready_far(NULL, g);
    }
}

/* There is one: it is counted once it is in the list. */
static struct weft__resize_request *next_request(weft__r *r) {
    weft__lock_take(&r->resize_lock);
    struct weft__resize_request *q = r->resize_q;
    r->resize_q = q->next;
    weft__lock_drop(&r->resize_lock);
    return q;
}

bool weft__resize_step(weft__r *r) {
    while (atomic_load(&r->resizes) != 0) {
        if (r->resize == NULL) {
            r->resize = next_request(r);
        }
        struct weft__resize_request *q = r->resize;
        if (!q->begun) {
            begin(r, q);
        }
        if (!goes_on(r, q)) {
            return true;
        }
        r->resize = NULL;
        atomic_fetch_sub(&r->resizes, 1);
        tell(q);
    }
    return false;
}

/* ---- by the caller ------------------------------------------------------------------------------ */

/* Everything that may be needed: sysmon does not allocate. More records may come before its turn, not
   fewer. */
static int prepare(weft__r *r, struct weft__resize_request *q) {
    int more = q->n - weft__nps(r);
    if (more <= 0) {
        return 0;
    }
    q->order = weft__order_new((uint32_t)q->n);
    q->room = (size_t)more;
    q->fresh = weft__mem_zalloc(q->room * sizeof *q->fresh);
    for (int i = 0; q->fresh != NULL && i < more; i++) {
        q->fresh[i] = weft__p_new(r);
        q->nfresh += q->fresh[i] != NULL;
    }
    return q->order != NULL && q->nfresh == more ? 0 : -ENOMEM;
}

static void clean_up(struct weft__resize_request *q) {
    for (int i = 0; i < q->nfresh; i++) {
        weft__p_free(q->fresh[i]);
    }
    weft__mem_free(q->fresh, q->room * sizeof *q->fresh);
    weft__order_free(q->order);
    *q = (struct weft__resize_request){0};
}

static void hand_in(weft__r *r, struct weft__resize_request *q) {
    weft__lock_take(&r->resize_lock);
    struct weft__resize_request **at = &r->resize_q;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = q;
    weft__lock_drop(&r->resize_lock);
    atomic_fetch_add(&r->resizes, 1);
    weft__fence_full(); /* pairs with sysmon's, between saying that it sleeps and reading `resizes` */
    weft__sysmon_wake(r);
    weft__note_wake(&r->sysmon_note); /* out of a short nap, too */
}

/* Inside; returns the M that it comes back on. */
static weft__m *hand_in_and_wait(weft__m *m, weft__r *r, struct weft__resize_request *q,
                                 const void *site) {
    weft__waiter_init(&q->w, m->g, weft__park_begin(m->g, false), NULL);
    hand_in(r, q);
    weft__cause cause;
    m = weft__park_free(m, INT64_MAX, WEFT__WAIT_PROCS, r, site, &cause);
    weft__waiter_await(&q->w);
    return m;
}

/* What max_threads leaves of n. */
static int most_of(weft__r *r, int n) {
    return n < r->cfg.max_threads ? n : r->cfg.max_threads - 1;
}

static int resize(weft__r *r, int n, const void *site) {
    if (n < 0 || n > WEFT__MOST_PROCS || n >= r->cfg.max_threads) {
        return -EINVAL;
    }
    struct weft__resize_request q = {.n = n != 0 ? n : most_of(r, weft__default_procs(r))};
    atomic_store(&r->follows, n == 0 && r->default_procs == 0);
    int err = prepare(r, &q);
    if (err == 0) {
        weft__m *m = weft__enter();
        weft__abroad_begin(m, r);
        m = hand_in_and_wait(m, r, &q, site);
        weft__abroad_end(m, r);
        weft__leave(m);
    }
    clean_up(&q);
    return err;
}

WEFT_API int weft_set_procs(weft_runtime *rt, int n) {
    const void *site = weft__caller();
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    if (r == NULL) {
        return weft__no_runtime();
    }
    if (weft__forked(r)) {
        weft__r_give(taken);
        return -EPERM;
    }
    atomic_fetch_add(&r->users, 1);
    weft__r_give(taken);
    int err = resize(r, n, site);
    atomic_fetch_sub(&r->users, 1);
    return err;
}

/* ---- the default is followed ---------------------------------------------------------------------- */

static const int64_t FOLLOW_EVERY = WEFT_SECOND;

void weft__follow_look(weft__r *r, int64_t now) {
    if (!atomic_load_explicit(&r->follows, memory_order_relaxed) ||
        now - r->follow_looked < FOLLOW_EVERY) {
        return;
    }
    r->follow_looked = now;
    int n = most_of(r, weft__default_procs(r));
    if (n != weft__nprocs(r)) {
        atomic_store(&r->follow_to, n);
        weft__note_wake(&r->maker_note);
    }
}

void weft__follow(weft__r *r) {
    if (atomic_load(&r->follow_to) == 0) {
        return;
    }
    struct weft__resize_request *q = r->follow;
    if (q == NULL && (q = r->follow = weft__mem_zalloc(sizeof *q)) == NULL) {
        return;
    }
    if (atomic_load_explicit(&q->w.done, memory_order_acquire) != 0) {
        clean_up(q);
    }
    if (q->n != 0) {
        return; /* the last one is under way; sysmon will look again */
    }
    q->n = atomic_exchange(&r->follow_to, 0);
    if (!atomic_load(&r->follows) || prepare(r, q) != 0) {
        clean_up(q);
        return;
    }
    hand_in(r, q);
}

/* The threads that used it have ended. */
void weft__follow_end(weft__r *r) {
    if (r->follow != NULL) {
        clean_up(r->follow);
        weft__mem_free(r->follow, sizeof *r->follow);
    }
}
