/*
 * Plain threads that are attached to a runtime: where a call means "the runtime of the caller", they have
 * one.
 *
 * An attachment is no hold: an attached thread may sleep for ever, and a stop must not wait for it. So
 * the stand-in's M keeps `r` NULL and takes the paths of every plain thread; a call that needs a runtime
 * asks for the attached one and holds it for as long as it needs it (weft__r_take, weft__r_give), by
 * `users`, for which the stop waits.
 *
 *   - One lock guards every attachment's `r` and the runtimes' lists of them. A thread reads `r` and
 *     raises `users` under it; a stop clears `r` in all of its list under it, behind `stopping`, and only
 *     then waits for `users`. So a call either holds the runtime before that, or finds none.
 *   - Who attaches looks at `stopping` under the lock: behind the stop's clearing nobody gets into the
 *     list.
 *   - Attachments nest: the innermost counts, even if its runtime has gone (then there is none). They
 *     are their thread's to free, at detach or at its end.
 *
 * The lock ranks below every other and is held for a few instructions.
 */
#include "sched/sched.h"

struct weft__attach {
    struct weft__attach *outer;      /* the thread's; the rest is guarded by the lock */
    weft__r *r;                      /* NULL: it has gone */
    struct weft__attach *next, **at; /* in r's list */
};

weft__lock weft__attach_lock;

static void unlist(struct weft__attach *a) {
    if (a->r == NULL) {
        return;
    }
    *a->at = a->next;
    if (a->next != NULL) {
        a->next->at = a->at;
    }
    a->r = NULL;
}

static void pop(weft__m *m) {
    struct weft__attach *a = m->attach;
    m->attach = a->outer;
    weft__lock_take(&weft__attach_lock);
    unlist(a);
    weft__lock_drop(&weft__attach_lock);
    weft__mem_free(a, sizeof *a);
}

void weft__attach_thread_ends(weft__m *m) {
    while (m->attach != NULL) {
        pop(m);
    }
}

void weft__attach_detach_all(weft__r *r) {
#ifdef WEFT_CANARY_STOP_LEAVES_ATTACHED
    return;
#endif
    weft__lock_take(&weft__attach_lock);
    while (r->attached != NULL) {
        unlist(r->attached);
    }
    weft__lock_drop(&weft__attach_lock);
}

/* ---- the runtime of a caller ------------------------------------------------------------------- */

static weft__r *attached_to(weft__m *m, bool hold) {
    if (m == NULL || m->attach == NULL) {
        return NULL;
    }
    weft__lock_take(&weft__attach_lock);
    weft__r *r = m->attach->r;
    if (r != NULL && hold) {
        atomic_fetch_add(&r->users, 1);
    }
    weft__lock_drop(&weft__attach_lock);
    return r;
}

WEFT__COLD weft__r *weft__attached_take(weft__m *m) { return attached_to(m, true); }

weft__r *weft__r_take(void) {
    weft__m *m = weft__m_self();
    return m != NULL && m->r != NULL ? m->r : weft__attached_take(m);
}

void weft__r_give(weft__r *r) {
    if (r != NULL && weft__m_self()->r == NULL) {
        atomic_fetch_sub(&r->users, 1);
    }
}

WEFT_API weft_runtime *weft_current(void) {
    weft__m *m = weft__m_self();
    return m != NULL && m->r != NULL ? m->r : attached_to(m, false);
}

/* ---- the public calls -------------------------------------------------------------------------- */

static int enlist(struct weft__attach *a, weft__r *r) {
    weft__lock_take(&weft__attach_lock);
    bool open = atomic_load(&r->stopping) == 0 && !atomic_load(&r->dead);
    if (open) {
        a->r = r;
        a->next = r->attached;
        a->at = &r->attached;
        if (a->next != NULL) {
            a->next->at = &a->next;
        }
        r->attached = a;
    }
    weft__lock_drop(&weft__attach_lock);
    return open ? 0 : WEFT_ESTOPPING;
}

static int attach(weft__m *m, weft__r *r) {
    struct weft__attach *a = weft__mem_zalloc(sizeof *a);
    if (a == NULL) {
        return -ENOMEM;
    }
    int err = enlist(a, r);
    if (err != 0) {
        weft__mem_free(a, sizeof *a);
        return err;
    }
    a->outer = m->attach;
    m->attach = a;
    return 0;
}

WEFT_API int weft_attach(weft_runtime *rt) {
    weft__m *m = weft__enter();
    weft__leave(m); /* from here only what is this thread's own, if it is a plain one */
    if (m->r != NULL) {
        return rt == NULL || rt == m->r ? 0 : -EBUSY;
    }
    weft__r *r = rt != NULL ? rt : weft__attached_take(m);
    if (r == NULL) {
        return weft__no_runtime();
    }
    int err = attach(m, r);
    if (rt == NULL) {
        weft__r_give(r);
    }
    return err;
}

WEFT_API void weft_detach(void) {
    weft__m *m = weft__m_self();
    if (m != NULL && m->attach != NULL) {
        pop(m);
    }
}
