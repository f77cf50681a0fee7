/* The parts of eh.h that are seldom needed. */
#include "sched/sched.h"

weft__eh weft__eh_none;

extern void *__cxa_get_globals(void) __attribute__((weak));

/* The thread of weft_run may itself be in a handler. */
void weft__eh_begin(weft__m *m) {
    m->eh = __cxa_get_globals != NULL ? __cxa_get_globals() : &weft__eh_none;
    m->eh_before = *m->eh;
    if (weft__eh_busy(m->eh)) {
        *m->eh = (weft__eh){0};
    }
}

void weft__eh_end(weft__m *m) {
    if (weft__eh_busy(&m->eh_before)) {
        *m->eh = m->eh_before;
    }
}

/* A G that ends in a handler, by weft_exit, leaves its exception to nobody. */
WEFT__COLD weft__m *weft__fiber_switch_eh(weft__fiber *from, weft__fiber *to, weft__m *m,
                                          bool ends) {
    weft__eh mine = *m->eh;
    *m->eh = (weft__eh){0};
    m = weft__fiber_switch_bare(from, to, m, ends);
#ifndef WEFT_CANARY_EXCEPTIONS_STAY_WITH_THE_THREAD
    *m->eh = mine;
#endif
    return m;
}
