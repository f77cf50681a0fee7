/*
 * Channels: a lock, a ring of elements, two queues of waiters.
 *
 * Invariants, under the lock:
 *   - receivers wait only while the ring is empty, senders only while it is full; so never both
 *     queues have claimable waiters;
 *   - a value goes straight from a sender's frame to a waiting receiver's, or through the ring in
 *     order; with a full ring and waiting senders a receiver takes the oldest element and puts the
 *     first sender's in its place: first in, first out on both sides;
 *   - closed never goes back; a close claims all waiters.
 * A waiter is claimed before anything is moved for it. The last reference frees the channel, unless
 * somebody is still linked in it: then he who leaves last does.
 */
#include "sched/sched.h"

#include <string.h>
#include <weft/chan.h>

struct weft_chan {
    weft__lock lock;
    bool closed;
    bool orphan; /* no reference is left, waiters are */
    size_t elem;
    size_t cap;
    size_t len;  /* elements in the ring */
    size_t head; /* index of the oldest */
    weft__waitq recvq, sendq;
    _Atomic size_t refs;
    char ring[] __attribute__((aligned(16)));
};

static const weft_time NEVER = {INT64_MAX};

WEFT__ALWAYS_INLINE void copy_elem(void *to, const void *from, size_t bytes) {
    switch (bytes) { /* the common sizes without a call */
    case 8:
        memcpy(to, from, 8);
        return;
    case 4:
        memcpy(to, from, 4);
        return;
    case 0:
        return;
    case 16:
        memcpy(to, from, 16);
        return;
    default:
        memcpy(to, from, bytes);
    }
}

WEFT__ALWAYS_INLINE char *cell(weft_chan *c, size_t index) { return c->ring + index * c->elem; }

WEFT__ALWAYS_INLINE void ring_push(weft_chan *c, const void *elem) {
    size_t at = c->head + c->len;
    copy_elem(cell(c, at < c->cap ? at : at - c->cap), elem, c->elem);
    c->len++;
}

WEFT__ALWAYS_INLINE void ring_pop(weft_chan *c, void *elem) {
    if (elem != NULL) {
        copy_elem(elem, cell(c, c->head), c->elem);
    }
    c->head = c->head + 1 < c->cap ? c->head + 1 : 0;
    c->len--;
}

/* ---- life -------------------------------------------------------------------------------------- */

WEFT_API int weft_chan_new(weft_chan **out, size_t elem_bytes, size_t capacity) {
    size_t bytes;
    if (__builtin_mul_overflow(elem_bytes, capacity, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(weft_chan), &bytes) || bytes > PTRDIFF_MAX) {
        return -EINVAL;
    }
    weft_chan *c = weft__mem_alloc_aligned(bytes, WEFT__LINE);
    if (c == NULL) {
        return -ENOMEM;
    }
    memset(c, 0, sizeof *c);
    c->elem = elem_bytes;
    c->cap = capacity;
    atomic_store_explicit(&c->refs, 1, memory_order_relaxed);
    *out = c;
    return 0;
}

static void chan_free(weft_chan *c) {
    weft__mem_free_aligned(c, sizeof *c + c->elem * c->cap, WEFT__LINE);
}

static bool nobody_waits(const weft_chan *c) {
    return c->recvq.head == NULL && c->sendq.head == NULL;
}

WEFT_API weft_chan *weft_chan_ref(weft_chan *c) {
    if (c != NULL) {
        atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    }
    return c;
}

WEFT_API void weft_chan_unref(weft_chan *c) {
    if (c == NULL) {
        return;
    }
    size_t before = atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel);
    if (before == 0) {
        weft__fatal("channel %p: more references given up than were held", (void *)c);
    }
    if (before > 1) {
        return;
    }
    weft__lock_take(&c->lock);
    bool idle = nobody_waits(c);
    c->orphan = !idle;
    weft__lock_drop(&c->lock);
    if (idle) {
        chan_free(c);
    }
}

WEFT_API int weft_chan_close(weft_chan *c) {
    if (c == NULL) {
        return -EPIPE;
    }
    weft__m *m = weft__enter_nopark();
    weft__lock_take(&c->lock);
    if (c->closed) {
        weft__lock_drop(&c->lock);
        weft__leave(m);
        return -EPIPE;
    }
    c->closed = true;
    weft__waiter *receivers = weft__waitq_claim_all(&c->recvq);
    weft__waiter *senders = weft__waitq_claim_all(&c->sendq);
    for (weft__waiter *w = receivers; w != NULL; w = w->next) {
        if (w->slot != NULL) {
            memset(w->slot, 0, c->elem);
        }
    }
    weft__lock_drop(&c->lock);
    weft__wake_chain(m, receivers, -EPIPE);
    weft__wake_chain(m, senders, -EPIPE);
    weft__leave(m);
    return 0;
}

WEFT_API size_t weft_chan_len(const weft_chan *c) {
    if (c == NULL) {
        return 0;
    }
    weft_chan *w = (weft_chan *)(uintptr_t)c; /* the lock is no part of the value */
    weft__lock_take(&w->lock);
    size_t len = w->len;
    weft__lock_drop(&w->lock);
    return len;
}

WEFT_API size_t weft_chan_cap(const weft_chan *c) { return c != NULL ? c->cap : 0; }

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Ended by somebody else than the channel: leaves the queue. */
static void leave_queue(weft_chan *c, weft__waitq *q, weft__waiter *w) {
    weft__lock_take(&c->lock);
#ifdef WEFT_CANARY_WAITER_NOT_UNLINKED
    (void)q, (void)w;
#else
    weft__waitq_unlink(q, w);
#endif
    bool last = c->orphan && nobody_waits(c);
    weft__lock_drop(&c->lock);
    if (last) {
        chan_free(c);
    }
}

/* Parks in q without a deadline; c's lock is held and dropped. *pm is the M that the G wakes on. */
WEFT__ALWAYS_INLINE int wait_held(weft__m **pm, weft_chan *c, weft__waitq *q, void *slot,
                                  weft__reason why, const void *site) {
    weft__waiter w;
    bool cancelled;
    weft__waiter_init(&w, (*pm)->g, 0, slot);
    weft__waitq_push(q, &w);
    *pm = weft__park_held(*pm, &c->lock, true, why, c, site, &cancelled);
    if (weft__unlikely(cancelled)) {
        leave_queue(c, q, &w);
        return -ECANCELED;
    }
    (void)atomic_load_explicit(&w.done, memory_order_acquire); /* with it the value */
    return w.result;
}

WEFT__NOINLINE static int wait_until(weft__m **pm, weft_chan *c, weft__waitq *q, void *slot,
                                     weft_time until, weft__reason why, const void *site) {
    weft__m *m = *pm;
    int64_t now = weft__clock_now();
    if (until.ns <= now) {
        weft__lock_drop(&c->lock);
        return -ETIMEDOUT;
    }
    weft__waiter w;
    weft__cause cause;
    weft__waiter_init(&w, m->g, weft__park_begin(m->g, true), slot);
    weft__waitq_push(q, &w);
    weft__lock_drop(&c->lock);
    *pm = weft__park_free(m, weft__round_time(until.ns, now), why, c, site, &cause);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return w.result;
    }
    leave_queue(c, q, &w);
    return weft__error_of(cause);
}

/* A NULL channel: nothing ever comes. */
WEFT__COLD static int wait_null(weft__m **pm, weft_time until, const void *site) {
    weft__m *m = *pm;
    weft__cause cause;
    if (until.ns <= weft__clock_now()) {
        return -ETIMEDOUT;
    }
    weft__park_begin(m->g, true);
    *pm = weft__park_free(m, until.ns, WEFT__WAIT_NULL_CHAN, NULL, site, &cause);
    return weft__error_of(cause);
}

/* ---- send -------------------------------------------------------------------------------------- */

/* True: it went without waiting, *result says how, and the lock has been dropped. */
WEFT__ALWAYS_INLINE bool send_now(weft__m *m, weft_chan *c, const void *elem, int *result) {
    if (weft__unlikely(c->closed)) {
        weft__lock_drop(&c->lock);
        *result = -EPIPE;
        return true;
    }
    if (c->recvq.head != NULL) {
        weft__won won;
        weft__waiter *w = weft__waitq_claim(&c->recvq, &won);
        if (weft__likely(w != NULL)) {
            if (w->slot != NULL) {
                copy_elem(w->slot, elem, c->elem);
            }
            weft__lock_drop(&c->lock);
            weft__wake(m, w, won, 0);
            *result = 0;
            return true;
        }
    }
    if (c->len < c->cap) {
        ring_push(c, elem);
        weft__lock_drop(&c->lock);
        *result = 0;
        return true;
    }
    return false;
}

WEFT__ALWAYS_INLINE int send_to(weft_chan *c, const void *elem, weft_time until, const void *site) {
    weft__m *m = weft__enter();
    int result;
    if (weft__cancelled(m->g)) {
        result = weft__cancel_error(m->g);
    } else if (weft__unlikely(c == NULL)) {
        result = wait_null(&m, until, site);
    } else {
        weft__lock_take(&c->lock);
        if (!send_now(m, c, elem, &result)) {
            void *slot = (void *)(uintptr_t)elem; /* only read from */
            result = until.ns == INT64_MAX
                         ? wait_held(&m, c, &c->sendq, slot, WEFT__WAIT_SEND, site)
                         : wait_until(&m, c, &c->sendq, slot, until, WEFT__WAIT_SEND, site);
        }
    }
    weft__leave(m);
    return result;
}

WEFT_API int weft_chan_send(weft_chan *c, const void *elem) {
    return send_to(c, elem, NEVER, weft__caller());
}

WEFT_API int weft_chan_send_until(weft_chan *c, const void *elem, weft_time until) {
    return send_to(c, elem, until, weft__caller());
}

WEFT_API int weft_chan_try_send(weft_chan *c, const void *elem) {
    if (c == NULL) {
        return -EAGAIN;
    }
    weft__m *m = weft__enter_nopark();
    int result;
    weft__lock_take(&c->lock);
    if (!send_now(m, c, elem, &result)) {
        weft__lock_drop(&c->lock);
        result = -EAGAIN;
    }
    weft__leave(m);
    return result;
}

/* ---- receive ----------------------------------------------------------------------------------- */

WEFT__ALWAYS_INLINE bool recv_now(weft__m *m, weft_chan *c, void *elem, int *result) {
    weft__won won;
    weft__waiter *w = c->sendq.head != NULL ? weft__waitq_claim(&c->sendq, &won) : NULL;
    if (c->len > 0) {
        ring_pop(c, elem);
        if (w != NULL) {
            ring_push(c, w->slot);
        }
    } else if (w != NULL) {
        if (elem != NULL) {
            copy_elem(elem, w->slot, c->elem);
        }
    } else if (weft__unlikely(c->closed)) {
        weft__lock_drop(&c->lock);
        if (elem != NULL) {
            memset(elem, 0, c->elem);
        }
        *result = -EPIPE;
        return true;
    } else {
        return false;
    }
    weft__lock_drop(&c->lock);
    if (w != NULL) {
        weft__wake(m, w, won, 0);
    }
    *result = 0;
    return true;
}

WEFT__ALWAYS_INLINE int recv_from(weft_chan *c, void *elem, weft_time until, const void *site) {
    weft__m *m = weft__enter();
    int result;
    if (weft__cancelled(m->g)) {
        result = weft__cancel_error(m->g);
    } else if (weft__unlikely(c == NULL)) {
        result = wait_null(&m, until, site);
    } else {
        weft__lock_take(&c->lock);
        if (!recv_now(m, c, elem, &result)) {
            result = until.ns == INT64_MAX
                         ? wait_held(&m, c, &c->recvq, elem, WEFT__WAIT_RECV, site)
                         : wait_until(&m, c, &c->recvq, elem, until, WEFT__WAIT_RECV, site);
        }
    }
    weft__leave(m);
    return result;
}

WEFT_API int weft_chan_recv(weft_chan *c, void *elem) {
    return recv_from(c, elem, NEVER, weft__caller());
}

WEFT_API int weft_chan_recv_until(weft_chan *c, void *elem, weft_time until) {
    return recv_from(c, elem, until, weft__caller());
}

WEFT_API int weft_chan_try_recv(weft_chan *c, void *elem) {
    if (c == NULL) {
        return -EAGAIN;
    }
    weft__m *m = weft__enter_nopark();
    int result;
    weft__lock_take(&c->lock);
    if (!recv_now(m, c, elem, &result)) {
        weft__lock_drop(&c->lock);
        result = -EAGAIN;
    }
    weft__leave(m);
    return result;
}
