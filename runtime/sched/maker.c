/*
 * Ms and the thread that makes them. Threads are made by one maker only, never on a G's stack: they
 * inherit its signal mask, which is that of the thread that started the runtime. The same thread does what
 * else may take its time and must not keep sysmon: see outside.c.
 */
#include "sched/sched.h"

#include <string.h>

/* A record whose thread is no more, as good as new; its settle lock and its place among all stay. */
static weft__m *m_again(weft__r *r) {
    weft__lock_take(&r->lock);
    weft__m *m = r->mfree;
    if (m != NULL) {
        r->mfree = m->gone_link;
    }
    weft__lock_drop(&r->lock);
    if (m == NULL) {
        return NULL;
    }
    weft__m *all_link = m->all_link;
    memset(m, 0, sizeof *m);
    m->all_link = all_link;
    m->r = r;
    atomic_store(&m->ticket, WEFT__PEACE);
    return m;
}

weft__m *weft__m_new(weft__r *r) {
    weft__m *m = m_again(r);
    if (m != NULL) {
        return m;
    }
    m = weft__pages_map(sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    m->r = r;
    atomic_store(&m->ticket, 1);
    weft__lock_take(&r->lock);
    m->all_link = r->allm;
    r->allm = m;
    weft__lock_drop(&r->lock);
    return m;
}

void weft__m_begin(weft__m *m) {
    m->thread = weft__thread_id();
#ifdef WEFT__ASAN
    pthread_attr_t attr;
    void *low;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &low, &bytes);
        m->g0.asan_low = low;
        m->g0.asan_bytes = bytes;
        pthread_attr_destroy(&attr);
    }
#endif
#ifdef WEFT__TSAN
    m->g0.tsan = __tsan_get_current_fiber();
#endif
    weft__eh_begin(m);
#ifdef WEFT__CTX_HAS_FINI
    weft__ctx_prepare(&m->g0.ctx);
#endif
    atomic_store_explicit(&m->incall, 1, memory_order_relaxed);
    weft__m_set_self(m);
}

void weft__m_end(weft__m *m) {
#ifdef WEFT__CTX_HAS_FINI
    weft__ctx_fini(&m->g0.ctx);
#endif
    weft__eh_end(m);
    atomic_store_explicit(&m->incall, 0,
                          memory_order_release); /* a retaker sees that it has no P */
    weft__m_set_self(NULL);
}

/* An M has left for good; the others may be all that is left, and stuck. */
void weft__m_gone(weft__r *r) {
    weft__lock_take(&r->lock);
    r->nm--;
    weft__verdict v;
    while ((v = weft__checkdead(r)) == WEFT__UNSURE) {
        weft__lock_drop(&r->lock);
        weft__thread_nap(WEFT_MILLISECOND);
        weft__lock_take(&r->lock);
    }
    weft__lock_drop(&r->lock);
    if (v == WEFT__DEAD) {
        weft__stuck_report(r);
    }
}

/* The maker joins it, and the record can be used again. */
static void thread_ends(weft__m *m) {
    weft__r *r = m->r;
    weft__lock_take(&r->lock);
    m->gone_link = r->mgone;
    r->mgone = m;
    weft__lock_drop(&r->lock);
    weft__note_wake(&r->maker_note);
}

/* By itself, before it runs anything: statistics show no G without its thread. */
static void count_made(weft__r *r) {
    weft__lock_take(&r->lock);
    r->threads_created++;
    weft__lock_drop(&r->lock);
}

static void *m_body(void *arg) {
    weft__m *m = arg;
    count_made(m->r);
    weft__thread_exact_timers();
    weft__sigstack sig;
    bool has_sig = weft__sigstack_setup(&sig) == 0;
    weft__hook_thread(m->r, true);
    weft__m *before = weft__m_self(); /* its stand-in, if the hook has called weft */
    weft__m_begin(m);
    weft__serve(m); /* takes a P that waits, or is a spare */
    weft__m_end(m);
    weft__m_set_self(before);
    weft__hook_thread(m->r, false);
    if (has_sig) {
        weft__sigstack_teardown(&sig);
    }
    thread_ends(m);
    return NULL;
}

static void give_up(weft__r *r, int err) {
    weft__not_made(r);
    weft__lock_take(&r->lock);
    uint32_t left = r->nm;
    weft__lock_drop(&r->lock);
    weft__log(r, WEFT_LOG_WARNING, "no thread could be made (%s): %u run", weft_strerror(err),
              left);
}

/* Ps that wait stay where every M that goes idle finds them, until this one does: making a thread
   allocates, and may wait for a lock that a thread of ours holds. */
static void make(weft__r *r) {
    weft__m *m = weft__m_new(r);
    if (m == NULL) {
        give_up(r, -ENOMEM);
        return;
    }
    m->fresh = true;
    int err = weft__thread_start(&m->pthread, NULL, m_body, m);
    if (err != 0) {
        weft__lock_take(&r->lock);
        m->joined = true;
        m->gone_link = r->mfree;
        r->mfree = m;
        weft__lock_drop(&r->lock);
        give_up(r, err);
    }
}

/* Threads that have ended are joined, as long as the runtime makes some; the rest by weft__ms_stop. */
static void join_gone(weft__r *r) {
    weft__lock_take(&r->lock);
    weft__m *gone = r->mgone;
    r->mgone = NULL;
    weft__lock_drop(&r->lock);
    while (gone != NULL) {
        weft__m *next = gone->gone_link;
        pthread_join(gone->pthread, NULL);
        weft__lock_take(&r->lock);
        gone->joined = true;
        gone->gone_link = r->mfree;
        r->mfree = gone;
        weft__lock_drop(&r->lock);
        gone = next;
    }
}

/* One order; false: there is none. */
static bool make_next(weft__r *r, bool *stop) {
    weft__lock_take(&r->lock);
    bool ordered = r->make_count > 0;
    r->make_count -= ordered;
    *stop = r->make_stop;
    weft__lock_drop(&r->lock);
    if (ordered && *stop) {
        weft__not_made(r);
    } else if (ordered) {
        make(r);
    }
    return ordered;
}

static void *maker_body(void *arg) {
    weft__r *r = arg;
    weft__thread_exact_timers();
    for (bool stop = false; !stop;) {
        weft__note_sleep_until(&r->maker_note, r->helper_due);
        weft__note_clear(&r->maker_note);
        weft__fence_full(); /* cleared before orders are looked for */
        weft__outside_look(r);
        while (make_next(r, &stop)) {
        }
        if (!stop) {
            join_gone(r);
        }
    }
    return NULL;
}

int weft__maker_start(weft__r *r) { return weft__thread_start(&r->maker, r->name, maker_body, r); }

void weft__maker_stop(weft__r *r) {
    weft__lock_take(&r->lock);
    r->make_stop = true;
    weft__lock_drop(&r->lock);
    weft__note_wake(&r->maker_note);
    pthread_join(r->maker, NULL);
}

void weft__ms_stop(weft__r *r) {
    weft__lock_take(&r->lock);
    for (weft__m *m = r->allm; m != NULL; m = m->all_link) {
        atomic_store(&m->exit, true);
        m->parked = false;
        atomic_store(&m->asleep, false);
    }
    r->midle = NULL;
    r->nmidle = 0;
    weft__lock_drop(&r->lock);
    for (weft__m *m = r->allm; m != NULL; m = m->all_link) {
        if (!m->joined) {
            weft__note_wake(&m->note);
        }
    }
    weft__poller_break(r->poller);
    for (weft__m *m = r->allm; m != NULL; m = m->all_link) {
        if (!m->main && !m->joined) {
            pthread_join(m->pthread, NULL);
        }
    }
}
