/*
 * Ms and the thread that makes them. Threads are made by one maker only, never on a G's stack: they
 * inherit its signal mask, which is that of the thread that started the runtime.
 */
#include "sched/sched.h"

#include <string.h>

weft__m *weft__m_new(weft__r *r) {
    weft__m *m = weft__pages_map(sizeof *m);
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
    atomic_store_explicit(&m->incall, 1, memory_order_relaxed);
    weft__m_set_self(m);
}

void weft__m_end(weft__m *m) {
#ifdef WEFT__CTX_HAS_FINI
    weft__ctx_fini(&m->g0.ctx);
#endif
    weft__eh_end(m);
    atomic_store_explicit(&m->incall, 0, memory_order_relaxed);
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

static void *m_body(void *arg) {
    weft__m *m = arg;
    weft__thread_exact_timers();
    weft__sigstack sig;
    bool has_sig = weft__sigstack_setup(&sig) == 0;
    weft__hook_thread(m->r, true);
    weft__m *before = weft__m_self(); /* its stand-in, if the hook has called weft */
    weft__m_begin(m);
    weft__acquirep(m, m->nextp);
    m->nextp = NULL;
    weft__serve(m);
    weft__m_end(m);
    weft__m_set_self(before);
    weft__hook_thread(m->r, false);
    if (has_sig) {
        weft__sigstack_teardown(&sig);
    }
    return NULL;
}

/* No M for p: another takes it, or whoever comes back next. */
static void give_back(weft__r *r, weft__p *p, int err) {
    weft__lock_take(&r->lock);
    uint32_t left = r->nm - 1;
    weft__not_made(r, p);
    if (err != 0) {
        weft__log(r, WEFT_LOG_WARNING, "no thread could be made (%s): %u run", weft_strerror(err),
                  left);
    }
}

static void make(weft__r *r, weft__p *p) {
    bool spinning = p->make_spinning;
    weft__m *m = weft__m_new(r);
    if (m == NULL) {
        give_back(r, p, -ENOMEM);
        return;
    }
    m->nextp = p;
    m->spinning = spinning;
    int err = weft__thread_start(&m->pthread, r->name, m_body, m);
    if (err != 0) {
        weft__lock_take(&r->lock);
        r->allm = m->all_link; /* made by this thread alone: still the first */
        weft__lock_drop(&r->lock);
        weft__pages_unmap(m, sizeof *m);
        give_back(r, p, err);
        return;
    }
    weft__lock_take(&r->lock);
    r->threads_created++;
    weft__lock_drop(&r->lock);
}

static void *maker_body(void *arg) {
    weft__r *r = arg;
    weft__watch watch = {0};
    weft__thread_exact_timers();
    for (;;) {
        weft__watch_sleep(r, &watch);
        for (;;) {
            weft__lock_take(&r->lock);
            weft__p *p = r->make_list;
            bool stop = r->make_stop;
            if (p != NULL) {
                r->make_list = p->link;
            }
            weft__lock_drop(&r->lock);
            if (p == NULL && stop) {
                return NULL;
            }
            if (p == NULL) {
                break;
            }
            if (stop) {
                give_back(r, p, 0);
            } else {
                make(r, p);
            }
        }
    }
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
    }
    weft__m *idle = r->midle;
    r->midle = NULL;
    r->nmidle = 0;
    weft__lock_drop(&r->lock);
    while (idle != NULL) {
        weft__m *next = idle->idle_link;
        weft__note_wake(&idle->note);
        idle = next;
    }
    weft__poller_break(r->poller);
    for (weft__m *m = r->allm; m != NULL; m = m->all_link) {
        if (!m->main) {
            pthread_join(m->pthread, NULL);
        }
    }
}
