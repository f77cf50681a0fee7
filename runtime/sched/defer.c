/*
 * Deferred calls: a list of the caller's nodes, one list a G (or stand-in), newest first.
 *
 * Invariants:
 *   - Only the G itself touches its list, outside of enter and leave: no lock, no P, no atomic.
 *   - A node is off the list, its fn NULL, before its function is called. So each runs once, whatever
 *     that function does: defer more, run or drop others, park, or end the G (then weft_exit, deeper on
 *     the same stack, goes on with the rest).
 *   - `next` is kept mixed with the node's other words (defer.h). A node that was left in a frame which
 *     has gone is seen for what it is, before anything in it is followed or called, in two ways: it lies
 *     on the G's stack below the frame of whoever looks, or its words do not belong together.
 *   - When the body has returned, nodes in its own frame are below the one who looks, and intact: g.c
 *     takes them into its frame first.
 */
#include "sched/defer.h"

WEFT__COLD static void left_behind(void) {
#ifdef WEFT_CANARY_DEFERRED_LEFT_UNSEEN
    return;
#endif
    weft__fatal(
        "a function returned and left a deferred call behind: run or drop it before, or use "
        "WEFT_DEFER");
}

WEFT__COLD static void not_ours(const char *call) {
    weft__fatal("%s of a call that was deferred by another green thread or thread", call);
}

/* The newest node, which is one that may be touched: not below `frame`, where those who called live. */
static weft_deferred *newest(weft__g *g, const void *frame) {
    weft_deferred *d = g->deferred;
    if (d != NULL && (const char *)d < (const char *)frame && weft__on_stack_of(g, d) &&
        weft__on_stack_of(g, frame)) {
        left_behind();
    }
    return d;
}

static weft_deferred *next_of(const weft_deferred *d) {
    bool sane;
    weft_deferred *next = weft__deferred_next(d, &sane);
    if (weft__unlikely(!sane)) {
        left_behind();
    }
    return next;
}

void weft__deferred_add(weft__g *g, weft_deferred *d, weft_cb fn, void *arg) {
    d->fn = fn;
    d->arg = arg;
    weft__deferred_link(d, g->deferred);
    g->deferred = d;
}

/* Takes the newest off the list and runs it. d may be gone afterwards. */
static void run_newest(weft__g *g) {
    weft_deferred *d = g->deferred;
    g->deferred = next_of(d);
    weft_cb fn = d->fn;
    void *arg = d->arg;
    d->fn = NULL;
    fn(arg);
}

void weft__deferred_run(weft__g *g, const void *frame) {
    while (newest(g, frame) != NULL) {
        run_newest(g);
    }
}

/* The link that leads to d, as the node before it; NULL: the list begins with it. */
static weft_deferred *before(weft__g *g, const weft_deferred *d, const char *call) {
    weft_deferred *at = NULL;
    for (weft_deferred *x = g->deferred; x != d; x = next_of(x)) {
        if (x == NULL) {
            not_ours(call);
        }
        at = x;
    }
    return at;
}

WEFT_API void weft_defer(weft_deferred *d, weft_cb fn, void *arg) {
    if (fn == NULL) {
        *d = (weft_deferred){0};
        return;
    }
    weft__g *g = weft__g_self();
    newest(g, __builtin_frame_address(0));
#ifdef WEFT_DEBUG_CHECKS
    for (weft_deferred *x = g->deferred; x != NULL; x = next_of(x)) {
        weft__assert(x != d, "weft_defer of a node that is waiting to run");
    }
#endif
    weft__deferred_add(g, d, fn, arg);
}

WEFT_API void weft_defer_run(weft_deferred *d) {
    if (d->fn == NULL) {
        return;
    }
    weft__g *g = weft__g_self();
    if (weft__unlikely(newest(g, __builtin_frame_address(0)) != d)) {
        before(g, d, "weft_defer_run");
        while (g->deferred != d) {
            run_newest(g);
            if (d->fn == NULL) {
                return; /* one of them has run or dropped it */
            }
        }
    }
    run_newest(g);
}

WEFT_API void weft_defer_drop(weft_deferred *d) {
    if (d->fn == NULL) {
        return;
    }
    weft__g *g = weft__g_self();
    newest(g, __builtin_frame_address(0));
    weft_deferred *previous = before(g, d, "weft_defer_drop");
    if (previous == NULL) {
        g->deferred = next_of(d);
    } else {
        weft__deferred_link(previous, next_of(d));
    }
    d->fn = NULL;
}
