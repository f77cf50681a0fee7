/*
 * weft_call: a G that its starter waits for, from wherever he is.
 *
 * The call lies on the caller's stack. `g` names the G only while fn runs: the G puts it in before fn and
 * takes it out behind, both under the lock, so the caller, who cuts its waits off when time is up, finds
 * under the lock either the G of this call or none; never the next G on that memory.
 *
 * Cutting off, in the order of park.c: the flag is set under the lock, a heavy fence crossed without it,
 * and then, under the lock, the wait claimed; again and again, since a held park that was on its way
 * shows late. The G takes the flag back when fn has returned. A stop may set the same flag meanwhile: the
 * G clears, full fence, reads `cancelling`; the stop sets `cancelling`, full fence, sets all flags. One
 * of the two comes last and the flag is up.
 *
 * The end: the G's last touch of the call is the drop of the lock if nobody waits, else the wake of the
 * waiter it has claimed and unlinked. Lock order: the call's lock is a source's.
 */
#include "sched/sched.h"

struct call {
    weft_fn fn;
    void *arg;
    weft__lock lock; /* guards what follows */
    weft__waitq q;   /* the caller */
    weft__g *g;
    bool cut_off; /* time is up: the flag is set, or to be set at once */
    bool ended;
    int result;

    weft_deferred ends; /* of the G */
    int returned;       /* by fn */
};

static const int64_t RESCAN_FIRST = 2 * WEFT_MILLISECOND, RESCAN_LONGEST = 64 * WEFT_MILLISECOND;

/* ---- the G ------------------------------------------------------------------------------------- */

static void call_begins(struct call *c, weft__g *g) {
    weft__lock_take(&c->lock);
    c->g = g;
    if (c->cut_off) {
        atomic_store_explicit(&g->cancel, 1, memory_order_relaxed);
    }
    weft__lock_drop(&c->lock);
}

static void take_flag_back(weft__g *g) {
    atomic_store_explicit(&g->cancel, 0, memory_order_relaxed);
    weft__fence_full();
    if (atomic_load(&g->r->cancelling) != 0) {
        atomic_store_explicit(&g->cancel, 1, memory_order_relaxed);
    }
}

static void call_ends(void *arg) {
    struct call *c = arg;
    weft__m *m = weft__enter();
    weft__won won = WEFT__LOST;
    weft__lock_take(&c->lock);
    if (c->cut_off) {
        take_flag_back(c->g);
    }
    c->g = NULL;
    c->result = m->g->by_exit ? m->g->exit_result : c->returned;
    c->ended = true;
    weft__waiter *w = weft__waitq_claim(&c->q, &won);
    weft__lock_drop(&c->lock);
    if (w != NULL) {
        weft__wake(m, w, won, 0);
    }
    weft__leave(m);
}

static int call_body(void *arg) {
    struct call *c = arg;
    weft__g *g = weft__m_self()->g;
    call_begins(c, g);
    weft__deferred_add(g, &c->ends, call_ends, c);
    return c->returned = c->fn(c->arg);
}

/* ---- the caller -------------------------------------------------------------------------------- */

/* Outside a call of weft: the fence may take its time. */
static void cut_off(struct call *c) {
    weft__lock_take(&c->lock);
    bool first = !c->cut_off;
    c->cut_off = true;
    if (first && c->g != NULL) {
        atomic_store_explicit(&c->g->cancel, 1, memory_order_relaxed);
    }
    weft__lock_drop(&c->lock);
    if (first) {
        weft__fence_heavy(); /* once: the flag stays up */
    }
    weft__lock_take(&c->lock);
    weft__g *g = c->g != NULL && weft__cancel_claim(c->g) ? c->g : NULL;
    weft__lock_drop(&c->lock);
    if (g != NULL) {
        weft__inject(g->r, g); /* claimed, and ours till then: it cannot have ended */
    }
}

/* Waits for the end until `when`; false: it has not come. Without memory for the time it waits on. */
static bool await(struct call *c, int64_t when, const void *site) {
    weft__m *m = weft__enter();
    weft__cause cause = WEFT__BY_NOMEM;
    bool ended = false;
    while (!ended && cause == WEFT__BY_NOMEM) {
        weft__waiter w;
        weft__lock_take(&c->lock);
        ended = c->ended;
        if (ended) {
            weft__lock_drop(&c->lock);
            break;
        }
        weft__waiter_init(&w, m->g, weft__park_begin(m->g, false), NULL);
        weft__waitq_push(&c->q, &w);
        weft__lock_drop(&c->lock);
        m = weft__park_free(m, when, WEFT__WAIT_CALL, c->arg, site, &cause);
        if (cause == WEFT__BY_SOURCE) {
            weft__waiter_await(&w);
            ended = true;
        } else {
            weft__lock_take(&c->lock);
            weft__waitq_unlink(&c->q, &w);
            ended = c->ended;
            weft__lock_drop(&c->lock);
        }
        when = cause == WEFT__BY_NOMEM ? INT64_MAX : when;
    }
    weft__leave(m);
    return ended;
}

static void wait_for_end(struct call *c, int64_t until, const void *site) {
    bool ended = until > weft__clock_now() && await(c, until, site);
    for (int64_t pause = RESCAN_FIRST; !ended;) {
        cut_off(c);
#ifdef WEFT_CANARY_CALL_CUTS_OFF_ONCE
        pause = INT64_MAX / 4;
#endif
        ended = await(c, weft__clock_now() + pause, site);
        pause = pause * 2 < RESCAN_LONGEST ? pause * 2 : RESCAN_LONGEST;
    }
}

WEFT_API int weft_call(weft_runtime *rt, weft_fn fn, void *arg, weft_time until, int *result) {
    const void *site = weft__caller();
    if (fn == NULL) {
        return -EINVAL;
    }
    struct call c = {.fn = fn, .arg = arg};
    weft__m *m = weft__enter();
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    int err = r != NULL ? -EPERM : weft__no_runtime();
    if (r != NULL && !weft__forked(r)) {
        weft__abroad_begin(m, r);
        atomic_fetch_add(&r->users, 1);
        err = weft__g_start(m, r, call_body, &c, site);
        atomic_fetch_sub(&r->users, 1);
    }
    weft__r_give(taken); /* from here fn's G holds it */
    weft__leave(m);
    if (err == 0) {
        wait_for_end(&c, until.ns, site);
    }
    if (r != NULL) {
        weft__abroad_end(weft__m_self(), r);
    }
    if (err == 0 && result != NULL) {
        *result = c.result;
    }
    return err;
}
