/* Waitgroups: a count in a gate (gate.h), open at zero. Word: count << 1 | WAITERS. */
#include "sync/gate.h"

#include <weft/sync.h>
#include <weft/task.h>

_Static_assert(sizeof(weft__gate) == sizeof(weft_waitgroup), "the public waitgroup is a gate");

static weft__gate *of(weft_waitgroup *w) { return (weft__gate *)(void *)w; }

WEFT__COLD static void bad_count(weft_waitgroup *w, int64_t count) {
    weft__fatal("waitgroup %p: its count would be %lld", (void *)w, (long long)count);
}

/* Who brought the count to zero and saw waiters owns their wake. */
WEFT__NOINLINE static void wake(weft_waitgroup *w) {
    weft__m *m = weft__enter_nopark();
    weft__gate_wake(m, of(w));
    weft__leave(m);
}

WEFT__ALWAYS_INLINE void add(weft_waitgroup *w, int n) {
    uint32_t before =
        atomic_fetch_add_explicit(&of(w)->word, (uint32_t)n << 1, memory_order_acq_rel);
    int64_t count = (int64_t)(before >> 1) + n;
    if (weft__unlikely(count < 0 || count > INT32_MAX)) {
        bad_count(w, count);
    }
    if (count == 0 && n != 0 && (before & WEFT__GATE_WAITERS) != 0) {
        wake(w);
    }
}

WEFT_API void weft_waitgroup_add(weft_waitgroup *w, int n) { add(w, n); }

WEFT_API void weft_waitgroup_done(weft_waitgroup *w) { add(w, -1); }

struct job {
    weft_waitgroup *w;
    weft_fn fn;
    void *arg;
    weft_deferred ends;
};

static void job_ends(void *arg) {
    struct job *j = arg;
    weft_waitgroup_done(j->w);
}

static int job_body(void *arg) {
    struct job *j = arg; /* a copy on this G's own stack, above all frames: it outlives them */
    weft__deferred_add(weft__m_self()->g, &j->ends, job_ends, j);
    return j->fn(j->arg);
}

WEFT_API int weft_waitgroup_go(weft_waitgroup *w, weft_fn fn, void *arg) {
    struct job j = {.w = w, .fn = fn, .arg = arg};
    weft_waitgroup_add(w, 1);
    weft__m *m = weft__enter_nopark();
    weft__r *r = weft__r_take();
    int err = weft__no_runtime();
    if (r != NULL) {
        err = weft__g_start_copy(m, r, job_body, &j, sizeof j, weft__caller());
    }
    weft__r_give(r);
    weft__leave(m);
    if (err != 0) {
        weft_waitgroup_done(w);
    }
    return err;
}

WEFT_API void weft_waitgroup_wait(weft_waitgroup *w) {
    if (!weft__gate_passed(of(w), WEFT__GATE_COUNT)) {
        weft__gate_wait(of(w), WEFT__GATE_COUNT, WEFT__WAIT_WAITGROUP, weft__caller());
    }
}

WEFT_API int weft_waitgroup_wait_until(weft_waitgroup *w, weft_time until) {
    return weft__gate_wait_until(of(w), WEFT__GATE_COUNT, until, WEFT__WAIT_WAITGROUP,
                                 weft__caller());
}
