/*
 * How long runnable Gs wait, for weft_stats: of some of them, and exactly.
 *
 * A G that is sampled carries it itself. `since` has the time, and `thread`, which says on which thread it ran
 * last, is kept as its complement. So the test by which weft__execute finds a G that comes from another
 * thread finds this one too, whoever picks it, and the way from one G straight to the next has not one
 * instruction more. What it runs afterwards, and how long its P then lies idle, is not looked at.
 *
 * Invariants:
 *   W1  `thread` is negative only between a put in a queue and the next weft__execute of that G.
 *   W2  It is marked before it is published, by who puts it, and unmarked by who runs it: nobody marks a
 *       G that lies in a queue, where a thief may have it.
 *   W3  A G that is marked is not marked again: one that is moved from queue to queue has waited since the
 *       first.
 *
 * Which are taken: a look from g0 asks for one (`sample`), after a number of picks that is drawn anew each
 * time, lest Gs that take turns have it fall on the same one always; the next one that is put in the ring, or
 * offered, is it. And one of so many that come from outside.
 */
#include "sched/sched.h"

enum { SAMPLE_PICKS = 32, SAMPLE_SPREAD = 64, SAMPLE_INJECTED = 32 };

static void mark(weft__g *g) {
    if (g->thread >= 0) { /* W3 */
        g->since = weft__clock_now();
        g->thread = ~g->thread;
    }
}

void weft__wait_look(weft__p *p) {
    uint32_t tick = atomic_load_explicit(&p->tick, memory_order_relaxed);
    if (tick - p->sample_tick >= p->sample_gap) {
        p->sample_tick = tick;
        p->sample_gap = SAMPLE_PICKS + weft__rand(&p->rand) % SAMPLE_SPREAD;
        p->sample = true;
    }
}

void weft__wait_sample(weft__p *p, weft__g *g) {
    p->sample = false;
    mark(g);
}

void weft__wait_injected(weft__g *g, uint64_t nth) {
    if (nth % SAMPLE_INJECTED == 0) {
        mark(g);
    }
}

void weft__g_comes(weft__m *m, weft__g *g) {
    weft__pstats *s = &m->p->stats;
    if (g->thread < 0) {
        weft__phist_add(&s->queue_wait, weft__clock_now() - g->since);
#ifdef WEFT_CANARY_SAMPLED_FOR_EVER
        return;
#endif
        g->thread = ~g->thread;
    }
    if (g->thread != m->thread) {
        if (g->thread != 0) {
            weft__count(&s->migrations, 1);
        }
        g->thread = m->thread;
    }
}
