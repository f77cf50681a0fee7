/* Events: a flag in a gate (gate.h). Word: SET << 1 | WAITERS. */
#include "sync/gate.h"

#include <weft/sync.h>

enum { SET = 2 };
_Static_assert(sizeof(weft__gate) == sizeof(weft_event), "the public event is a gate");

static weft__gate *of(weft_event *e) { return (weft__gate *)(void *)e; }

WEFT_API void weft_event_set(weft_event *e) {
    uint32_t before = atomic_fetch_or_explicit(&of(e)->word, SET, memory_order_acq_rel);
    if ((before & SET) == 0 && (before & WEFT__GATE_WAITERS) != 0) {
        weft__m *m = weft__enter_nopark();
        weft__gate_wake(m, of(e));
        weft__leave(m);
    }
}

WEFT_API void weft_event_reset(weft_event *e) {
    atomic_fetch_and_explicit(&of(e)->word, ~(uint32_t)SET, memory_order_acq_rel);
}

WEFT_API bool weft_event_is_set(const weft_event *e) {
    return weft__gate_settled((const weft__gate *)(const void *)e, WEFT__GATE_FLAG);
}

WEFT_API void weft_event_wait(weft_event *e) {
    if (!weft__gate_passed(of(e), WEFT__GATE_FLAG)) {
        weft__gate_wait(of(e), WEFT__GATE_FLAG, WEFT__WAIT_EVENT, weft__caller());
    }
}

WEFT_API int weft_event_wait_until(weft_event *e, weft_time until) {
    return weft__gate_wait_until(of(e), WEFT__GATE_FLAG, until, WEFT__WAIT_EVENT, weft__caller());
}
