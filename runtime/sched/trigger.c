/*
 * Triggers: a function that a signal handler may start as a G.
 *
 * A handler may have interrupted anything, the runtime itself included. So a fire enters nothing, takes
 * no lock and touches no P: it exchanges `pending`, and the first since the last look pushes the trigger
 * on its runtime's list and wakes the maker's thread, which starts the G. errno is left as it was.
 *
 *   - `pending` falls before the function is started, and by an exchange: a fire either finds it down
 *     and brings a start of its own, or comes before a start that is still to be.
 *   - One G of a trigger runs at a time. Fires meanwhile are kept as one (`again`), and start it again
 *     when it has ended.
 *   - Memory of triggers is never given back to the allocator, and goes round first in, first out: a
 *     handler that still ran on some thread when the trigger was freed may fire late. That is dropped
 *     (`open` is down), or, should the memory serve another by then, starts that one's function.
 *   - A fire inside (`firing`) holds trigger and runtime: it counts itself, then reads `open`. Who ends a
 *     trigger, its user or a stop, lowers `open` and then waits for `firing`; both are sequentially
 *     consistent. No lock is held over that wait, since the fire may have interrupted the waiter's
 *     thread at any point before, but is over when that thread goes on.
 *   - Three hold the memory (`refs`): the user, a place in the list, the G that runs. The last puts it
 *     back. The list's is taken by a fire, before `firing` goes down.
 *   - `r` and the runtime's list of triggers are guarded by the lock of all triggers; a stop clears them
 *     once the maker's thread has ended and no G is left. What is in the list of fires then is dropped.
 *
 * While a trigger lives, its runtime is not stuck: it may be fired. Lock order: a trigger's lock (a
 * source's) and the lock of all are never held together.
 */
#include "sched/sched.h"

#include <string.h>

struct weft_trigger {
    _Atomic uint32_t pending; /* fired and not seen: in the list of fires, or about to be */
    _Atomic uint32_t open;    /* fires count */
    _Atomic uint32_t firing;  /* fires inside */
    _Atomic uint32_t refs;
    weft_trigger *next; /* in the list of fires, or the pool */
    weft__r *fires_to;  /* set for as long as it is open, and while somebody is inside */
    weft_fn fn;
    void *arg;
    const void *site;
    weft_deferred ends; /* of the G that runs fn */

    weft__lock lock; /* guards these */
    weft__g *g;      /* runs fn; set by itself */
    bool running;    /* from before the start to the end */
    bool again;      /* fired meanwhile */
    bool freed;
    weft__waitq q; /* who frees it */

    weft__r *r; /* these by the lock of all; NULL: the runtime has gone */
    weft_trigger *older, **at;
};

weft__lock weft__trigger_lock; /* of all, and of the pool */
static weft_trigger *pool, **pool_end = &pool;

static const int64_t RETRY = WEFT_MILLISECOND; /* when no G could be had */

/* ---- memory ------------------------------------------------------------------------------------ */

static weft_trigger *trigger_take(void) {
    weft__lock_take(&weft__trigger_lock);
    weft_trigger *t = pool;
    if (t != NULL) {
        pool = t->next;
        pool_end = pool == NULL ? &pool : pool_end;
    }
    weft__lock_drop(&weft__trigger_lock);
    return t != NULL ? t : weft__mem_zalloc(sizeof *t);
}

static void unref(weft_trigger *t) {
    if (atomic_fetch_sub(&t->refs, 1) != 1) {
        return;
    }
    weft__lock_take(&weft__trigger_lock);
    t->next = NULL;
    *pool_end = t;
    pool_end = &t->next;
    weft__lock_drop(&weft__trigger_lock);
}

/* From here no fire counts, and none is inside. On no lock. */
static void close_fires(weft_trigger *t) {
    atomic_store(&t->open, 0);
    for (int i = 0; atomic_load(&t->firing) != 0; i++) {
        if (i < 200) {
            weft__pause();
        } else {
            weft__thread_nap(20 * WEFT_MICROSECOND); /* the handler's thread has been put aside */
        }
    }
}

/* ---- firing: signal-safe ----------------------------------------------------------------------- */

static void push(weft__r *r, weft_trigger *t) {
    weft_trigger *head = atomic_load_explicit(&r->fired, memory_order_relaxed);
    do {
        t->next = head;
    } while (!atomic_compare_exchange_weak(&r->fired, &head, t));
}

/* Inside `firing`, or with another hold on runtime and trigger. */
static void fire(weft_trigger *t) {
    if (atomic_exchange(&t->pending, 1) == 0) {
        weft__r *r = t->fires_to;
        atomic_fetch_add(&t->refs, 1);
        push(r, t);
        weft__note_wake(&r->maker_note);
    }
}

WEFT_API void weft_trigger_fire(weft_trigger *t) {
    int saved = errno;
    atomic_fetch_add(&t->firing, 1);
    if (atomic_load(&t->open) != 0) {
        fire(t);
    }
    atomic_fetch_sub(&t->firing, 1);
    errno = saved;
}

/* ---- the G ------------------------------------------------------------------------------------- */

/* Fires that came meanwhile are one more; its place in the list is taken before `running` is given up,
   so nobody who frees it sees neither. */
static void run_ends(void *arg) {
    weft_trigger *t = arg;
    weft__m *m = weft__enter();
    weft__lock_take(&t->lock);
    bool again = t->again && !t->freed;
    t->g = NULL;
    t->running = t->again = false;
    weft__waiter *chain = weft__waitq_claim_all(&t->q);
    weft__lock_drop(&t->lock);
    if (again) {
        fire(t); /* this G holds both: the runtime cannot end before it */
    }
    weft__wake_chain(m, chain, 0);
    weft__leave(m);
    unref(t);
}

static int run_body(void *arg) {
    weft_trigger *t = arg;
    weft__g *g = weft__m_self()->g;
    weft__lock_take(&t->lock);
    t->g = g;
    weft__lock_drop(&t->lock);
    weft__deferred_add(g, &t->ends, run_ends, t);
    return t->fn(t->arg);
}

/* ---- the maker's thread ------------------------------------------------------------------------ */

static weft_trigger *take_fired(weft__r *r) {
    weft_trigger *newest = atomic_exchange(&r->fired, NULL), *oldest = NULL;
    while (newest != NULL) {
        weft_trigger *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/* Out of the list; whether it is to be started. */
static bool see(weft_trigger *t) {
    weft__lock_take(&t->lock);
    atomic_exchange(&t->pending, 0); /* what was written before a fire is seen by fn */
    bool start = !t->freed && !t->running;
#ifndef WEFT_CANARY_TRIGGER_RUNS_DEAF
    t->again |= t->running;
#endif
    t->running |= start;
    weft__lock_drop(&t->lock);
    return start;
}

/* No G could be had: true, it is in the list again; else the fire is dropped. */
static bool put_off(weft__m *m, weft__r *r, weft_trigger *t, bool drop) {
    weft__lock_take(&t->lock);
    t->running = false;
    weft__waiter *chain = weft__waitq_claim_all(&t->q);
    bool keep = !drop && !t->freed && atomic_exchange(&t->pending, 1) == 0;
    weft__lock_drop(&t->lock);
    weft__wake_chain(m, chain, 0);
    if (keep) {
        push(r, t);
    }
    return keep;
}

/* Starts what was fired; when to look again. */
int64_t weft__triggers_run(weft__r *r) {
    int64_t due = INT64_MAX;
    if (atomic_load_explicit(&r->fired, memory_order_relaxed) == NULL) {
        return due;
    }
    weft__m *m = weft__enter();
    for (weft_trigger *t = take_fired(r), *next; t != NULL; t = next) {
        next = t->next; /* seen, it may be pushed again at once */
        if (!see(t)) {
            unref(t);
            continue;
        }
        /* The list's hold becomes the G's. */
        int err = weft__g_start(m, r, run_body, t, t->site);
        if (err == 0) {
            continue;
        }
        if (put_off(m, r, t, err == WEFT_ESTOPPING)) {
            due = weft__clock_now() + RETRY;
        } else {
            unref(t);
        }
    }
    weft__leave(m);
    return due;
}

/* ---- a stop ------------------------------------------------------------------------------------ */

static void unlist(weft_trigger *t) {
    *t->at = t->older;
    if (t->older != NULL) {
        t->older->at = t->at;
    }
    t->r = NULL;
}

/* One that a stop finds is held while its fires are closed: its user may free it meanwhile. */
static weft_trigger *take_listed(weft__r *r) {
    weft__lock_take(&weft__trigger_lock);
    weft_trigger *t = r->triggers;
    if (t != NULL) {
        unlist(t);
        atomic_fetch_add(&t->refs, 1);
    }
    weft__lock_drop(&weft__trigger_lock);
    return t;
}

void weft__triggers_stop(weft__r *r) {
    weft_trigger *t;
    while ((t = take_listed(r)) != NULL) {
        close_fires(t);
        unref(t);
    }
    for (t = take_fired(r); t != NULL;) {
        weft_trigger *next = t->next;
        atomic_store(&t->pending, 0);
        unref(t);
        t = next;
    }
}

/* ---- the public calls -------------------------------------------------------------------------- */

static int enlist(weft_trigger *t, weft__r *r) {
    weft__lock_take(&weft__trigger_lock);
    bool open = atomic_load(&r->stopping) == 0 && !atomic_load(&r->dead);
    if (open) {
        t->r = r;
        t->older = r->triggers;
        t->at = &r->triggers;
        if (t->older != NULL) {
            t->older->at = &t->older;
        }
        r->triggers = t;
        atomic_fetch_add(&r->ntriggers, 1);
        t->fires_to = r;
        atomic_store(&t->open, 1);
    }
    weft__lock_drop(&weft__trigger_lock);
    return open ? 0 : WEFT_ESTOPPING;
}

static int trigger_new(weft_trigger **out, weft__r *r, weft_fn fn, void *arg, const void *site) {
    weft_trigger *t = trigger_take();
    if (t == NULL) {
        return -ENOMEM;
    }
    atomic_store(&t->refs, 1);
    t->fn = fn;
    t->arg = arg;
    t->site = site;
    t->freed = t->again = false;
    int err = enlist(t, r);
    if (err != 0) {
        unref(t);
        return err;
    }
    *out = t;
    return 0;
}

WEFT_API int weft_trigger_new(weft_trigger **out, weft_runtime *rt, weft_fn fn, void *arg) {
    if (out == NULL || fn == NULL) {
        return -EINVAL;
    }
    weft__r *taken = rt == NULL ? weft__r_take() : NULL, *r = rt != NULL ? rt : taken;
    int err = r != NULL ? trigger_new(out, r, fn, arg, weft__caller()) : weft__no_runtime();
    weft__r_give(taken);
    return err;
}

/* Its runtime, if it has not gone, is one trigger poorer, and perhaps stuck for it. */
static void leave_runtime(weft_trigger *t) {
    weft__lock_take(&weft__trigger_lock);
    weft__r *r = t->r;
    if (r != NULL) {
        unlist(t);
        atomic_fetch_add(&r->users,
                         1); /* under the lock: a stop empties the list, then waits for us */
    }
    weft__lock_drop(&weft__trigger_lock);
    if (r != NULL) {
        if (atomic_fetch_sub(&r->ntriggers, 1) == 1) {
            weft__look_again(r);
        }
        atomic_fetch_sub(&r->users, 1);
    }
}

WEFT_API void weft_trigger_free(weft_trigger *t) {
    if (t == NULL) {
        return;
    }
    close_fires(t);
    weft__m *m = weft__enter();
    weft__lock_take(&t->lock);
    t->freed = true;
    while (t->running && t->g != m->g) { /* by its own function: that cannot wait for itself */
        weft__waiter w;
        bool unused;
        weft__waiter_init(&w, m->g, 0, NULL);
        weft__waitq_push(&t->q, &w);
        m = weft__park_held(m, &t->lock, false, WEFT__WAIT_TRIGGER, t, weft__caller(), &unused);
        (void)atomic_load_explicit(&w.done, memory_order_acquire);
        weft__lock_take(&t->lock);
    }
    weft__lock_drop(&t->lock);
    weft__leave(m);
    leave_runtime(t);
    unref(t);
}
