/* The public calls about green threads themselves: go, yield, exit, name. */
#include "sched/sched.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <weft/task.h>

WEFT__COLD static int go_attached(weft__m *m, weft_fn fn, void *arg, const void *site) {
    weft__r *r = weft__attached_take(m);
    int err = r != NULL ? weft__g_start(m, r, fn, arg, site) : weft__no_runtime();
    weft__r_give(r);
    return err;
}

WEFT_API int weft_go(weft_fn fn, void *arg) {
    weft__m *m = weft__enter_nopark();
    int err;
    if (weft__likely(m->r != NULL)) {
        err = weft__g_start(m, m->r, fn, arg, weft__caller());
    } else {
        err = go_attached(m, fn, arg, weft__caller());
    }
    weft__leave(m);
    return err;
}

WEFT_API int weft_go_copy(weft_fn fn, const void *args, size_t bytes) {
    args = bytes != 0 ? args : ""; /* NULL is fine for nothing */
    if (bytes > 4096) {
        return -E2BIG;
    }
    weft__m *m = weft__enter_nopark();
    weft__r *r = weft__r_take();
    int err = weft__no_runtime();
    if (r != NULL) {
        err = weft__g_start_copy(m, r, fn, args, bytes, weft__caller());
    }
    weft__r_give(r);
    weft__leave(m);
    return err;
}

/* A direct pick has found nobody. If it may not be made here, or what it found is not for this thread, the
   scheduler's stack has to look. */
static bool is_alone(weft__m *m) {
    weft__p *p = m->p;
    if (weft__likely(atomic_load_explicit(&m->ticket, memory_order_relaxed) == WEFT__PEACE)) {
        return m->aside == NULL;
    }
    return !weft__runq_has_ring(p) && atomic_load(&p->runnext) == NULL &&
           atomic_load(&p->offered) == NULL;
}

/* Pops first: with nobody else in line the caller goes on. Every sixteenth time the scheduler's
   stack looks at the rest of the world in any case. */
WEFT_API void weft_yield(void) {
    weft__m *m = weft__enter();
    weft__g *g = m->g;
    if (weft__unlikely(g->standin)) {
        weft__leave(m);
        sched_yield();
        return;
    }
    weft__fiber *to = &m->g0;
    weft__g *next = weft__pick_direct(m);
    if (weft__likely(next != NULL)) {
        weft__execute(m, next);
        to = &next->fiber;
    } else if (m->p->picks < WEFT__PICKS && (m->owed & ~WEFT__OWED_NEXT) == 0 && is_alone(m)) {
#ifndef WEFT__TSAN
        m->p->picks++;
        weft__leave(m);
        return;
#endif
    }
    m->commit = WEFT__COMMIT_YIELD;
    m->commit_g = g;
    m = weft__fiber_switch(&g->fiber, to, m, false);
    weft__commit(m);
    weft__leave(m);
}

WEFT_API void weft_exit(int result) {
    weft__m *m = weft__enter();
    if (m->g == NULL || m->g->standin) {
        weft__fatal("weft_exit on a thread that is no green thread");
    }
    weft__g *g = m->g;
    g->by_exit = true;
    g->exit_result = result;
    weft__leave(m);
    weft__deferred_run(g, __builtin_frame_address(0));
    weft__locals_end(g);
    weft__g_exit(weft__enter(), result);
}

WEFT_API void weft_set_name(const char *fmt, ...) {
    weft__m *m = weft__m_self();
    weft__g *g = m != NULL ? m->g : NULL;
    if (g == NULL) {
        return;
    }
    if (g->name == NULL) {
        g->name = weft__mem_zalloc(64);
        if (g->name == NULL) {
            return; /* a name is a help, not a promise */
        }
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(g->name, 64, fmt, ap);
    va_end(ap);
}

/* Never inlined, and errno's address is taken anew: it is that of the thread we are on now. */
WEFT_API WEFT__NOINLINE int weft_errno(void) {
    __asm__ volatile("" ::: "memory");
    return errno;
}

WEFT_API WEFT__NOINLINE void weft_set_errno(int e) {
    __asm__ volatile("" ::: "memory");
    errno = e;
}
