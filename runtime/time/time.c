/* The clocks that people read, and sleep. */
#include "sched/sched.h"

#include <weft/time.h>

WEFT_API weft_time weft_now(void) { return weft_time_at(weft__clock_now()); }

WEFT_API int64_t weft_wall(weft_time t) {
    return weft_time_add(weft_time_at(weft__clock_wall()),
                         weft_time_sub(t, weft_time_at(weft__clock_now())))
        .ns;
}

static int sleep_to(int64_t when, int64_t now, const void *site) {
    weft__m *m = weft__enter();
    int err = weft__cancel_error(m->g);
    if (!weft__cancelled(m->g)) {
        weft__cause cause;
        weft__park_begin(m->g, true);
        m = weft__park_free(m, weft__round_time(when, now), WEFT__WAIT_SLEEP, NULL, site, &cause);
        err = cause == WEFT__BY_DEADLINE ? 0 : weft__error_of(cause);
    }
    weft__leave(m);
    return err;
}

WEFT_API int weft_sleep(weft_duration d) {
    if (d <= 0) {
        return 0;
    }
    int64_t now = weft__clock_now();
#ifdef WEFT_CANARY_SLEEP_EARLY
    weft__m *m = weft__m_self();
    now = m != NULL && m->p != NULL ? m->p->now : now;
#endif
    return sleep_to(weft_time_add(weft_time_at(now), d).ns, now, weft__caller());
}

WEFT_API int weft_sleep_until(weft_time t) {
    int64_t now = weft__clock_now();
    return t.ns <= now ? 0 : sleep_to(t.ns, now, weft__caller());
}
