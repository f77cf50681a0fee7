/*
 * Timers of the user: one kind starts a G at each firing, one is waited on.
 *
 * Everything in a timer is guarded by the lock of the set it is homed in (sched/timers.c); no timer
 * has a lock of its own. `armed` is the state that stop and reset report: it falls when the firing
 * has had its effect (a G was started, a waiter took it), so their answers are exact.
 *
 * A function timer is in a heap while armed. One to wait on is in a heap only while somebody waits:
 * armed and past its time, it is due, and the first to look takes it.
 *
 * A freed timer with waiters (who were being claimed by something else that moment) goes with the
 * last of them.
 */
#include "sched/sched.h"

#include <string.h>
#include <weft/time.h>

struct weft_timer {
    weft__ktimer k; /* first; k.t.when is the rounded time while in a heap */
    weft__r *r;
    weft_fn fn; /* NULL: one to wait on */
    void *arg;
    const void *site;
    int64_t nominal; /* the time asked for */
    int64_t when;    /* rounded up within the slack: when it fires */
    weft_duration slack;
    bool armed;
    bool self_free; /* nobody holds it: it goes when it has fired */
    bool freed;     /* waiters are left: the last one frees */
    weft__waitq q;
};

static const int64_t RETRY = WEFT_MILLISECOND; /* when there was no memory for the G to start */

/* Under the lock. When a firing in `length` from now shall be. */
static void aim(weft_timer *t, int64_t when, int64_t now) {
    t->nominal = when;
    if (t->slack < 0 || when <= now) {
        t->when = when > now ? when : now; /* a past one is due, and not late, from now */
    } else if (t->slack > 0) {
        t->when = weft__round_within(when, t->slack);
    } else {
        t->when = weft__round_time(when, now);
    }
    t->armed = when != INT64_MAX;
}

static void timer_free(weft_timer *t) { weft__mem_free(t, sizeof *t); }

static void take_out(weft__tset *ts, weft_timer *t) {
    if (t->k.t.pos != 0) {
        weft__heap_remove(&ts->heap, &t->k.t);
    }
}

/* Under the lock, an armed timer belongs in the heap: puts it there or moves it. */
static int put_in(weft__tset *ts, weft_timer *t, bool *earlier) {
    return ts->closed ? 0 : weft__timer_put(ts, &t->k.t, t->when, earlier);
}

/* ---- firing ------------------------------------------------------------------------------------ */

/* Frees without dropping the lock: the set loses a hold, never its last (the runtime has one). */
static void free_under_lock(weft__tset *ts, weft_timer *t) {
    ts->refs--;
    timer_free(t);
}

static void fire_fn(weft__ktimer *k, weft__m *m, weft__tset *ts, int64_t now, weft__fired *out) {
    weft_timer *t = weft__container(k, weft_timer, k);
    int err;
    out->start = weft__g_new(m, t->r, t->fn, t->arg, t->site, &err);
    if (out->start == NULL && err != WEFT_ESTOPPING) {
        t->when =
            now + RETRY; /* still pending; its place in the heap is free, so this cannot fail */
        bool earlier;
        weft__timer_put(ts, &t->k.t, t->when, &earlier);
        return;
    }
    t->armed = false;
    if (t->self_free) {
        free_under_lock(ts, t);
    }
}

/* Under the lock, due: gives the firing to the first waiter that can be claimed. */
static weft__waiter *give(weft_timer *t, weft__won *won) {
    weft__waiter *w = weft__waitq_claim(&t->q, won);
    if (w != NULL) {
        t->armed = false;
        if (w->slot != NULL) {
            ((weft_time *)w->slot)->ns = t->nominal;
        }
    }
    return w;
}

/* Nobody holds it and it will never fire. */
static weft__waiter *gone_fn(weft__ktimer *k, weft__tset *ts) {
    weft_timer *t = weft__container(k, weft_timer, k);
    if (t->self_free) {
        free_under_lock(ts, t);
    }
    return NULL;
}

/* Who waits is no G of its runtime, or the runtime would not have ended. */
static weft__waiter *gone_wait(weft__ktimer *k, weft__tset *ts) {
    (void)ts;
    return weft__waitq_claim_all(&weft__container(k, weft_timer, k)->q);
}

static void fire_wait(weft__ktimer *k, weft__m *m, weft__tset *ts, int64_t now, weft__fired *out) {
    (void)m, (void)ts, (void)now;
    weft__won won = WEFT__LOST;
    out->waiter = give(weft__container(k, weft_timer, k), &won);
    out->won = won;
}

/* ---- making ------------------------------------------------------------------------------------ */

/* What later versions will read must be zero in this one. */
static int read_options(weft_timer_options *out, const weft_timer_options *in) {
    *out = weft_timer_options_default();
    int err = weft__options_read(out, sizeof *out, offsetof(weft_timer_options, reserved), in);
    bool clean = out->reserved0 == 0 && out->reserved1 == 0;
    for (size_t i = 0; i < WEFT_COUNT(out->reserved); i++) {
        clean &= out->reserved[i] == NULL;
    }
    return err != 0 ? err : clean ? 0 : -EINVAL;
}

static int timer_of(weft__r *r, weft_timer **out, weft_duration after, weft_fn fn, void *arg,
                    weft_duration slack, const void *site) {
    weft_timer *t = weft__mem_alloc(sizeof *t);
    if (t == NULL) {
        return -ENOMEM;
    }
    memset(t, 0, sizeof *t);
    t->k.fire = fn != NULL ? fire_fn : fire_wait;
    t->k.gone = fn != NULL ? gone_fn : gone_wait;
    t->k.t.kind = WEFT__TIMER_K;
    t->r = r;
    t->fn = fn;
    t->arg = arg;
    t->site = site;
    t->slack = slack;
    t->self_free = out == NULL;
    weft__m *m = weft__enter_nopark();
    weft__tset *ts = weft__tset_of(m, r);
    weft__timer_home(&t->k.t, ts);
    weft_timer *was = out != NULL ? *out : NULL;
    if (out != NULL) {
        *out = t;
    }
    int err = 0;
    int64_t now = weft__clock_now();
    bool earlier = false;
    weft__lock_take(&ts->lock);
    aim(t, weft_time_add(weft_time_at(now), after).ns, now);
    int64_t when = t->when;
    if (fn != NULL && t->armed) {
        err = put_in(ts, t, &earlier);
    }
    if (err != 0 && out != NULL) {
        *out = was;
    }
    if (err != 0 || (t->self_free && !t->armed)) {
        free_under_lock(ts, t); /* it could not be armed, or nobody could ever arm it */
    }
    weft__tset_unlock_earlier(m, ts, r, when, earlier);
    weft__leave(m);
    return err;
}

static int timer_new(weft_timer **out, weft_duration after, weft_fn fn, void *arg,
                     const weft_timer_options *o, const void *site) {
    weft_timer_options opt;
    int err = read_options(&opt, o);
    if (err != 0) {
        return err;
    }
    weft__r *r = weft__r_take();
    err = r != NULL ? timer_of(r, out, after, fn, arg, opt.slack, site) : weft__no_runtime();
    weft__r_give(r);
    return err;
}

WEFT_API int weft_timer_new(weft_timer **out, weft_duration after, const weft_timer_options *o) {
    return out == NULL ? -EINVAL : timer_new(out, after, NULL, NULL, o, weft__caller());
}

WEFT_API int weft_after_func(weft_timer **out, weft_duration after, weft_fn fn, void *arg,
                             const weft_timer_options *o) {
    return fn == NULL ? -EINVAL : timer_new(out, after, fn, arg, o, weft__caller());
}

/* ---- stop, reset, free ------------------------------------------------------------------------- */

WEFT_API bool weft_timer_stop(weft_timer *t) {
    weft__m *m = weft__enter_nopark();
    weft__tset *ts = weft__timer_lock(&t->k.t);
    bool was = t->armed;
    t->armed = false;
    take_out(ts, t);
    weft__tset_unlock(ts);
    weft__leave(m);
    return was;
}

static bool reset_to(weft_timer *t, int64_t when, int64_t now) {
    weft__m *m = weft__enter_nopark();
    weft__tset *ts = weft__timer_lock(&t->k.t);
    bool was = t->armed, earlier = false;
    bool at_home = m->p != NULL && m->r == t->r; /* t->r itself may be gone */
    if (at_home && t->k.t.pos == 0 && !ts->closed && ts != m->p->tset) {
        ts = weft__timer_rehome(&t->k.t, ts, m->p->tset); /* it joins the heap of the P we hold */
        was = t->armed;
    }
    aim(t, when, now);
    t->armed &= !ts->closed;
    int64_t at = t->when;
    if (!t->armed) {
        take_out(ts, t);
    } else if (t->fn != NULL || t->q.head != NULL) {
        if (put_in(ts, t, &earlier) != 0) {
            t->armed = false; /* no memory for its place: it does not fire, and says so next time */
        }
    }
    weft__tset_unlock_earlier(m, ts, t->r, at, earlier);
    weft__leave(m);
    return was;
}

WEFT_API bool weft_timer_reset(weft_timer *t, weft_duration after) {
    int64_t now = weft__clock_now();
    return reset_to(t, weft_time_add(weft_time_at(now), after).ns, now);
}

WEFT_API bool weft_timer_reset_at(weft_timer *t, weft_time when) {
    return reset_to(t, when.ns, weft__clock_now());
}

WEFT_API void weft_timer_free(weft_timer *t) {
    if (t == NULL) {
        return;
    }
    weft__m *m = weft__enter_nopark();
    weft__tset *ts = weft__timer_lock(&t->k.t);
    take_out(ts, t);
    t->armed = false;
    weft__waiter *chain = weft__waitq_claim_all(&t->q);
    bool now = t->q.head == NULL;
    t->freed = !now;
    if (now) {
        weft__timer_unhome(&t->k.t, ts);
        timer_free(t);
    } else {
        weft__tset_unlock(ts);
    }
    weft__wake_chain(m, chain, -EBADF);
    weft__leave(m);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Ended by something else: leaves the queue. The heap is for timers that are waited on. */
static void leave_timer(weft_timer *t, weft__waiter *w) {
    weft__tset *ts = weft__timer_lock(&t->k.t);
    weft__waitq_unlink(&t->q, w);
    if (t->q.head == NULL) {
        take_out(ts, t);
        if (t->freed) {
            weft__timer_unhome(&t->k.t, ts);
            timer_free(t);
            return;
        }
    }
    weft__tset_unlock(ts);
}

static int park(weft__m **pm, weft_timer *t, weft__tset *ts, weft_time *nominal, int64_t deadline,
                const void *site) {
    weft__m *m = *pm;
    weft__waiter w;
    bool earlier = false;
    weft__waiter_init(&w, m->g, weft__park_begin(m->g, true), nominal);
    weft__waitq_push(&t->q, &w);
    if (t->armed && t->k.t.pos == 0 && put_in(ts, t, &earlier) != 0) {
        weft__claim(m->g, w.gen, WEFT__BY_NOMEM);
    }
    const weft__r *r = t->r; /* to compare: it may go meanwhile, and the timer too */
    weft__abroad_begin(m, r);
    weft__tset_unlock_earlier(m, ts, t->r, t->when, earlier);
    weft__cause cause;
    *pm = weft__park_free(m, deadline, WEFT__WAIT_TIMER, t, site, &cause);
    weft__abroad_end(*pm, r);
    if (cause == WEFT__BY_SOURCE) {
        weft__waiter_await(&w);
        return w.result;
    }
    leave_timer(t, &w);
    return weft__error_of(cause);
}

static int timer_wait(weft_timer *t, weft_time *nominal, weft_time until, const void *site) {
    if (t->fn != NULL) {
        return -EINVAL; /* its firings go to a function */
    }
    weft__m *m = weft__enter();
    int err = 0;
    if (weft__cancelled(m->g)) {
        err = weft__cancel_error(m->g);
    } else {
        int64_t now = weft__clock_now();
        weft__tset *ts = weft__timer_lock(&t->k.t);
        if (t->armed && t->when <= now && t->q.head == NULL) {
            t->armed = false;
            if (nominal != NULL) {
                nominal->ns = t->nominal;
            }
            weft__tset_unlock(ts);
        } else if (ts->closed || until.ns <= now) {
            err = ts->closed ? -EBADF : -ETIMEDOUT; /* closed: it went with its runtime */
            weft__tset_unlock(ts);
        } else {
            err = park(&m, t, ts, nominal,
                       until.ns == INT64_MAX ? INT64_MAX : weft__round_time(until.ns, now), site);
        }
    }
    weft__leave(m);
    return err;
}

WEFT_API int weft_timer_wait(weft_timer *t, weft_time *nominal) {
    return timer_wait(t, nominal, weft_time_at(INT64_MAX), weft__caller());
}

WEFT_API int weft_timer_wait_until(weft_timer *t, weft_time *nominal, weft_time until) {
    return timer_wait(t, nominal, until, weft__caller());
}
