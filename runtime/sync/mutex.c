/*
 * The mutex: one compare-and-swap each way when free.
 *
 * `state` holds
 *   LOCKED
 *   WAITERS   the queue is not empty; changes under the inner lock
 *   WOKEN     a waiter has been woken to compete and has neither got the mutex nor queued again;
 *             changes under the inner lock
 *   STARVING  the first in the queue has competed for a millisecond and lost: the next unlock hands
 *             the mutex to it, and newcomers queue; changes under the inner lock
 * Newcomers may overtake whoever was woken, as long as nobody starves: the mutex goes to who runs.
 *
 * Lifetime: whoever unlocks may be overtaken by a next holder who frees the mutex. A fast unlock's
 * compare-and-swap is its last touch. A slow one leaves LOCKED, WAITERS or WOKEN set as long as it
 * holds the inner lock; with one of these set nobody sees the mutex as nobody's (0), and who was
 * woken takes the inner lock before he goes on.
 */
#include "sched/sched.h"

#include <weft/sync.h>

enum { LOCKED = 1, WAITERS = 2, WOKEN = 4, STARVING = 8 };
static const int64_t STARVES_AFTER = WEFT_MILLISECOND;

struct mutex {
    _Atomic uint32_t state;
    weft__lock lock;
    weft__waitq q;
    uint64_t unused;
};
_Static_assert(sizeof(struct mutex) == sizeof(weft_mutex), "the public mutex is this one");

/* A waiter of a mutex: since when it waits, over all its turns. */
struct turn {
    weft__waiter w; /* first. result: 1: the lock is yours, 0: compete */
    int64_t since;
    int64_t deadline;
    bool cancellable; /* the form with a time, perhaps "never" */
};

static struct mutex *of(weft_mutex *m) { return (struct mutex *)(void *)m; }

/* Takes it if it is free and nobody starves. */
WEFT__ALWAYS_INLINE bool try_fast(struct mutex *mx) {
    uint32_t s = 0;
    while (!atomic_compare_exchange_weak_explicit(&mx->state, &s, s | LOCKED, memory_order_acquire,
                                                  memory_order_relaxed)) {
        if ((s & (LOCKED | STARVING)) != 0) {
            return false;
        }
    }
    return true;
}

/* Under the inner lock: takes the mutex if it may be taken; else marks that somebody waits, and
   whether he starves. was_woken: the mark of it goes in either case. */
static bool take_or_mark(struct mutex *mx, bool was_woken, bool starves) {
    uint32_t s = atomic_load_explicit(&mx->state, memory_order_relaxed);
    for (;;) {
        uint32_t to = was_woken ? s & ~(uint32_t)WOKEN : s;
        bool got = (s & LOCKED) == 0 && (was_woken || (s & STARVING) == 0);
        to |= got ? LOCKED : WAITERS | (starves ? STARVING : 0);
        if (atomic_compare_exchange_weak_explicit(&mx->state, &s, to, memory_order_acquire,
                                                  memory_order_relaxed)) {
            return got;
        }
    }
}

/* Under the inner lock, by the holder: the first waiter is given the mutex, or is woken to compete. */
static weft__waiter *pass_on(struct mutex *mx, bool hand_over, weft__won *won) {
    weft__waiter *w = weft__waitq_claim(&mx->q, won);
    uint32_t clear = STARVING | (mx->q.head == NULL ? WAITERS : 0);
    uint32_t set = 0;
    if (!hand_over || w == NULL) {
        clear |= LOCKED;
        set = w != NULL ? WOKEN : 0;
    }
    uint32_t s = atomic_load_explicit(&mx->state, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&mx->state, &s, (s & ~clear) | set,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    return w;
}

/* A waiter leaves without the lock. If it had been woken to compete, the next one is. */
static void leave_mutex(weft__m *m, struct mutex *mx, bool was_woken) {
    weft__won won = WEFT__LOST;
    weft__waiter *w = NULL;
    uint32_t clear = STARVING | (was_woken ? WOKEN : 0) | (mx->q.head == NULL ? WAITERS : 0);
    uint32_t s = atomic_fetch_and_explicit(&mx->state, ~clear, memory_order_relaxed);
    if ((s & LOCKED) == 0 && (s & ~clear & WOKEN) == 0 && mx->q.head != NULL) {
        w = weft__waitq_claim(&mx->q, &won);
        if (w != NULL) {
            atomic_fetch_or_explicit(&mx->state, WOKEN, memory_order_relaxed);
        }
        if (mx->q.head == NULL) {
            atomic_fetch_and_explicit(&mx->state, ~(uint32_t)WAITERS, memory_order_relaxed);
        }
    }
    weft__lock_drop(&mx->lock);
    if (w != NULL) {
        weft__wake(m, w, won, 0);
    }
}

/* One park in the queue; the inner lock is held and dropped. 1: the lock is ours, 0: compete. */
static int park_once(weft__m **pm, struct mutex *mx, struct turn *t, bool front, const void *site) {
    weft__m *m = *pm;
    weft__waiter_init(&t->w, m->g, t->cancellable ? weft__park_begin(m->g, true) : 0, NULL);
    if (front) {
        weft__waitq_push_front(&mx->q, &t->w);
    } else {
        weft__waitq_push(&mx->q, &t->w);
    }
    if (!t->cancellable) {
        bool cancelled;
        *pm = weft__park_held(m, &mx->lock, false, WEFT__WAIT_MUTEX, mx, site, &cancelled);
        (void)atomic_load_explicit(&t->w.done, memory_order_acquire);
        return t->w.result;
    }
    weft__cause cause;
    weft__lock_drop(&mx->lock);
    *pm = weft__park_free(m, t->deadline, WEFT__WAIT_MUTEX, mx, site, &cause);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&t->w);
        return t->w.result;
    }
    weft__lock_take(&mx->lock);
    weft__waitq_unlink(&mx->q, &t->w);
    leave_mutex(*pm, mx, false);
    return weft__error_of(cause);
}

/* A short while of watching pays: the holder most often runs and lets go soon. */
static bool spin(weft__m *m, struct mutex *mx) {
    if (m->r == NULL || weft__nprocs(m->r) == 1) {
        return false;
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 30; i++) {
            weft__pause();
        }
        uint32_t s = atomic_load_explicit(&mx->state, memory_order_relaxed);
        if ((s & LOCKED) == 0 && try_fast(mx)) {
            return true;
        }
        if ((s & STARVING) != 0) {
            return false;
        }
        if (weft__runq_has_ring(m->p)) {
            return false; /* others could run here meanwhile */
        }
    }
    return false;
}

WEFT__NOINLINE static int lock_slow(struct mutex *mx, weft_time until, bool cancellable,
                                    const void *site) {
    weft__m *m = weft__enter();
    struct turn t = {.deadline = INT64_MAX, .cancellable = cancellable};
    int got = 0;
    bool woken = false;
    if (cancellable && weft__cancelled(m->g)) {
        got = weft__cancel_error(m->g);
    } else if (!spin(m, mx)) {
        for (;;) {
            weft__lock_take(&mx->lock);
            int64_t now = weft__clock_now();
            if (until.ns <= now && (atomic_load(&mx->state) & LOCKED) != 0) {
                leave_mutex(m, mx, woken);
                got = -ETIMEDOUT;
                break;
            }
            bool starves = woken && now - t.since > STARVES_AFTER;
            if (take_or_mark(mx, woken, starves)) {
                weft__lock_drop(&mx->lock);
                break;
            }
            if (t.since == 0) {
                t.since = now;
                t.deadline = until.ns == INT64_MAX ? INT64_MAX : weft__round_time(until.ns, now);
            }
            got = park_once(&m, mx, &t, woken, site);
            if (got != 0) {
                break;
            }
            woken = true;
        }
    }
    weft__leave(m);
    return got < 0 ? got : 0;
}

/* Nobody waits, or who was woken last is still on his way to compete: nobody need be woken. With
   WOKEN left set the mutex stays somebody's, so this is the last touch as well. */
WEFT__ALWAYS_INLINE bool unlock_fast(struct mutex *mx) {
    uint32_t s = LOCKED;
    while (!atomic_compare_exchange_weak_explicit(&mx->state, &s, s & ~(uint32_t)LOCKED,
                                                  memory_order_release, memory_order_relaxed)) {
        if (s != LOCKED && (s & (LOCKED | WOKEN | STARVING)) != (LOCKED | WOKEN)) {
            return false;
        }
    }
    return true;
}

WEFT__NOINLINE static void unlock_slow(struct mutex *mx) {
    weft__m *m = weft__enter_nopark();
    do {
        weft__lock_take(&mx->lock);
        uint32_t s = atomic_load_explicit(&mx->state, memory_order_relaxed);
        if ((s & LOCKED) == 0) {
            weft__fatal("unlock of mutex %p, which is not locked", (void *)mx);
        }
        if (mx->q.head != NULL && (s & (WOKEN | STARVING)) != WOKEN) {
            weft__won won = WEFT__LOST;
            bool hand_over = (s & STARVING) != 0;
            weft__waiter *w = pass_on(mx, hand_over, &won);
            weft__lock_drop(&mx->lock);
#ifndef WEFT_CANARY_UNLOCK_WAKES_NOBODY
            if (w != NULL) {
                weft__wake(m, w, won, hand_over ? 1 : 0);
            }
#endif
            break;
        }
        /* Who waited has left, or has been woken meanwhile. It is still ours, so the inner lock can
           be dropped before it is. */
        weft__lock_drop(&mx->lock);
    } while (!unlock_fast(mx));
    weft__leave(m);
}

WEFT_API void weft_mutex_lock(weft_mutex *m) {
    if (weft__unlikely(!try_fast(of(m)))) {
        lock_slow(of(m), weft_time_at(INT64_MAX), false, weft__caller());
    }
}

WEFT_API int weft_mutex_lock_until(weft_mutex *m, weft_time until) {
    weft__m *self = weft__m_self();
    if (weft__likely((self == NULL || !weft__cancelled(self->g)) && try_fast(of(m)))) {
        return 0;
    }
    return lock_slow(of(m), until, true, weft__caller());
}

WEFT_API bool weft_mutex_try_lock(weft_mutex *m) { return try_fast(of(m)); }

WEFT_API void weft_mutex_unlock(weft_mutex *m) {
    if (weft__unlikely(!unlock_fast(of(m)))) {
        unlock_slow(of(m));
    }
}
