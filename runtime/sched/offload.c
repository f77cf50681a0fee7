/*
 * weft_offload: calls that block, so many at once and no more.
 *
 * Any call may block without telling anybody (handoff.c). But each takes a thread while it lasts, and once
 * max_threads of them are in such calls nobody else runs. So here is a class of calls that is bounded by
 * half of that: a G takes one of the runtime's slots, gives its P away and runs the function on its own
 * stack and thread; whoever finds no slot waits for one, parked, first come first served.
 *
 *   - A slot goes from the G that leaves straight to the first waiter: nobody overtakes.
 *   - Only the wait for a slot can be ended early. A function that has begun is waited for: its argument
 *     may lie on the caller's stack.
 *   - The slot is given back by a deferred call, so weft_exit in the function gives it back too.
 *
 * The lock is a source's.
 */
#include "sched/sched.h"

static uint32_t slots(const weft__r *r) {
    uint32_t half = (uint32_t)r->cfg.max_threads / 2;
    return half > 0 ? half : 1;
}

/* Inside; on *pm. 0: a slot is ours. */
static int take_slot(weft__m **pm, weft__r *r, const void *site) {
    weft__m *m = *pm;
    if (weft__cancelled(m->g)) {
        return weft__cancel_error(m->g);
    }
    weft__lock_take(&r->offload_lock);
    if (r->offloads < slots(r)) {
        r->offloads++;
        weft__lock_drop(&r->offload_lock);
        return 0;
    }
    weft__waiter w;
    weft__waiter_init(&w, m->g, weft__park_begin(m->g, true), NULL);
    weft__waitq_push(&r->offload_q, &w);
    r->offload_queued++;
    weft__lock_drop(&r->offload_lock);
    weft__cause cause;
    *pm = m = weft__park_free(m, INT64_MAX, WEFT__WAIT_OFFLOAD, r, site, &cause);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return 0;
    }
    weft__lock_take(&r->offload_lock);
    weft__waitq_unlink(&r->offload_q, &w);
    r->offload_queued--;
    weft__lock_drop(&r->offload_lock);
    return weft__error_of(cause);
}

static void give_slot(void *arg) {
    weft__r *r = arg;
    weft__m *m = weft__enter_nopark();
    weft__won won = WEFT__LOST;
    weft__lock_take(&r->offload_lock);
    weft__waiter *w = weft__waitq_claim(&r->offload_q, &won);
    if (w != NULL) {
        r->offload_queued--;
    } else {
        r->offloads--;
    }
    weft__lock_drop(&r->offload_lock);
    if (w != NULL) {
        weft__wake(m, w, won, 0);
    }
    weft__leave(m);
}

static int run(weft__r *r, weft_fn fn, void *arg) {
    weft__m *m = weft__enter();
    weft__g *g = m->g;
    weft_deferred slot = WEFT_ZERO;
    weft__deferred_add(g, &slot, give_slot, r);
    weft__handoff_now(m);
    weft__leave(m);
    int result = fn(arg);
    weft_block_end();
    weft_defer_run(&slot);
    return result;
}

WEFT_API int weft_offload(weft_fn fn, void *arg, int *result) {
    const void *site = weft__caller();
    if (fn == NULL) {
        return -EINVAL;
    }
    int unused, err = 0, *out = result != NULL ? result : &unused;
    weft__m *m = weft__enter();
    weft__r *r = m->r;
    if (r != NULL) {
        err = take_slot(&m, r, site);
    }
    weft__leave(m);
    if (err == 0) {
        *out = r != NULL ? run(r, fn, arg) : fn(arg);
    }
    return err;
}
