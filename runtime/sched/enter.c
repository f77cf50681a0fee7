/*
 * Who calls? The M of the calling thread, and stand-ins for plain threads.
 *
 * Stand-ins are never freed while the process lives: a waker may hold a G long after its thread has
 * gone. They go back to a list when their thread ends and serve the next thread.
 */
#include "sched/sched.h"

#include <string.h>

static __thread weft__m *self_m;

/* Opaque on purpose, LTO included: the asm may be anything, so neither the address nor the value can
   be carried from one call to the next, and the function is neither pure nor inlined. */
__attribute__((noinline
#if defined(__has_attribute)
#if __has_attribute(noipa)
               ,
               noipa
#endif
#endif
               )) weft__m *
weft__m_self(void) {
    __asm__ volatile("" ::: "memory");
    return self_m;
}

WEFT__NOINLINE void weft__m_set_self(weft__m *m) {
    __asm__ volatile("" ::: "memory");
    self_m = m;
}

struct standin {
    weft__m m;
    weft__g g;
    struct standin *next;
};

weft__lock weft__standin_lock;
static struct standin *standin_free;
static pthread_key_t standin_key;
static pthread_once_t standin_once = PTHREAD_ONCE_INIT;
static bool standin_key_made;

static void standin_thread_ends(void *p) {
    struct standin *s = p;
    weft__locals_end(&s->g); /* user code, which calls by this stand-in */
    s->g.deferred = NULL;    /* what is left lay on the thread's stack */
    weft__attach_thread_ends(&s->m);
    weft__m_set_self(NULL);
    weft__lock_take(&weft__standin_lock);
    s->next = standin_free;
    standin_free = s;
    weft__lock_drop(&weft__standin_lock);
}

static void standin_make_key(void) {
    weft__library_pin(); /* from here threads run code of ours when they end */
    standin_key_made = pthread_key_create(&standin_key, standin_thread_ends) == 0;
}

static void standin_init(struct standin *s) {
    memset(s, 0, sizeof *s);
    s->g.standin = true;
    s->g.m = &s->m;
    s->m.g = &s->g;
    atomic_store(&s->m.ticket, WEFT__PEACE);
}

static struct standin *standin_get(void) {
    pthread_once(&standin_once, standin_make_key);
    weft__lock_take(&weft__standin_lock);
    struct standin *s = standin_free;
    if (s != NULL) {
        standin_free = s->next;
    }
    weft__lock_drop(&weft__standin_lock);
    if (s != NULL) {
        return s;
    }
    s = weft__mem_alloc_aligned(sizeof *s, WEFT__LINE);
    if (s == NULL) {
        weft__fatal("out of memory at the first call of a plain thread");
    }
    standin_init(s);
    return s;
}

static weft__m *enter_first(void) {
    struct standin *s = standin_get();
    s->m.thread = weft__thread_id();
    if (standin_key_made) {
        pthread_setspecific(standin_key, s);
    }
    weft__m_set_self(&s->m);
    atomic_store_explicit(&s->m.incall, 1, memory_order_relaxed);
    return &s->m;
}

/* A green thread that forked goes on in the child, on its stack and without its runtime: its M was wiped.
   It is the child's only thread. As a stand-in whose every wait is ended with -EPERM it touches no lock
   that a thread of the parent may have held; what cannot fail works as long as it need not wait. */
static weft__m *enter_forked(void) {
    static struct standin child;
    standin_init(&child);
    child.m.thread = weft__thread_id();
    atomic_store(&child.g.cancel, WEFT__CANCEL_FORKED);
    weft__m_set_self(&child.m);
    atomic_store_explicit(&child.m.incall, 1, memory_order_relaxed);
    return &child.m;
}

static bool is_forked(const weft__m *m) {
    return (atomic_load_explicit(&m->ticket, memory_order_relaxed) & WEFT__PEACE) == 0 ||
           (m->g != NULL && atomic_load(&m->g->cancel) == WEFT__CANCEL_FORKED);
}

int weft__no_runtime(void) {
    weft__m *m = weft__m_self();
    return m != NULL && is_forked(m) ? -EPERM : WEFT_ENORUNTIME;
}

/* The slow way of enter: a thread that we have not seen, a forked child, or a request. A call within
   a call does not answer one: the outer call holds what is asked for. */
WEFT__COLD weft__m *weft__enter_slow(weft__m *m, bool may_park) {
    if (m == NULL) {
        return enter_first();
    }
    if ((atomic_load_explicit(&m->ticket, memory_order_relaxed) & WEFT__PEACE) == 0) {
        return enter_forked();
    }
    if (atomic_load_explicit(&m->incall, memory_order_relaxed) > 1 ||
        atomic_load_explicit(&m->ticket, memory_order_relaxed) == (WEFT__PEACE | WEFT__LOCKED)) {
        return m;
    }
    return weft__answer(m, may_park);
}

/* A thread's first call; or one from where there is no G, which is a hook. */
WEFT__COLD weft__g *weft__g_self_slow(void) {
    weft__m *m = weft__enter();
    weft__g *g = m->g;
    weft__leave(m);
    if (g == NULL) {
        weft__fatal("weft was called from a hook that may not call it");
    }
    return g;
}

/* Pays what the call owes: see the owed bits. Behind the publishing of the work, so this fence is
   I1's; it pairs with the one in proc.c's idle path. */
WEFT__COLD void weft__pay(weft__m *m) {
    uint8_t owed = m->owed;
    weft__p *p = m->p;
    m->owed = 0;
    if (p == NULL) {
        return;
    }
    if (weft__solo(p)) {
        weft__sysmon_poke(m->r); /* nobody else: but what waits here now must not wait for long */
        return;
    }
    weft__g *next = atomic_load_explicit(&p->runnext, memory_order_relaxed);
    if (next != NULL) {
        atomic_store_explicit(&p->runnext, NULL, memory_order_relaxed);
        if (p->sample) {
            weft__wait_sample(p, next);
        }
        atomic_store_explicit(&p->offered, next,
                              memory_order_release); /* empty: see runqput_next */
    } else if (owed == WEFT__OWED_NEXT) {
        return;
    }
    weft__fence_full();
    if (owed == WEFT__OWED_NEXT &&
        atomic_load_explicit(&m->r->nmspinning, memory_order_relaxed) != 0) {
        return; /* whoever spins sees what is offered; a nap of his need not be broken for it */
    }
    weft__wakep(m->r, owed & WEFT__OWED_TIMER ? &p->stats.wake_timer : &p->stats.wake_work);
}

WEFT_API weft_id weft_self(void) {
    weft__m *m = weft__m_self();
    return m != NULL && m->g != NULL ? m->g->id : 0;
}

WEFT_API int weft_proc_self(void) {
    weft__m *m = weft__enter_nopark();
    int index = m->p != NULL ? (int)m->p->index : -1;
    weft__leave(m);
    return index;
}
