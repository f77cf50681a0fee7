/*
 * The life of a G: made on a fresh or recycled stack, started, ended, recycled.
 *
 *        high   +--------------------------+  stack.low + stack.bytes
 *               | weft__g                  |  in the page that is hot anyway; never dropped
 *               | colour, 1..16 lines      |  so that many tops do not share cache sets
 *               | canary                   |  an overrun of the first frames runs into this
 *               | copied arguments         |
 *               | first frame              |
 *               |   ...                    |
 *        low    +--------------------------+  stack.low; the guard lies below
 *
 * Dead Gs are kept last in first out by the P that they ended on. They move in chains of about 64
 * between P and runtime, so that moving one costs nothing: linked by `next`; the first of a chain has
 * its length in `id` and the next chain in `arg`. A P keeps one chain in reserve. A G's
 * wait word, timer and stack outlive its deaths; everything else is set anew at birth.
 */
#include "sched/defer.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { G_AREA = (sizeof(weft__g) + WEFT__LINE - 1) & ~(size_t)(WEFT__LINE - 1), ID_BATCH = 64 };

static _Atomic uint64_t canary_value;

/* The canary's place, right above the first frame: 16 bytes, to keep frames aligned. */
static char *top_of(weft__g *g) {
    size_t colour = (((uintptr_t)g >> 16) % 16 + 1) * WEFT__LINE;
    return (char *)g - colour - 16;
}

uint64_t *weft__g_canary(weft__g *g) { return (uint64_t *)(void *)top_of(g); }

static uint64_t canary(void) {
    uint64_t v = atomic_load_explicit(&canary_value, memory_order_relaxed);
    if (v == 0) {
        uint64_t fresh = 0;
        if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh || fresh == 0) {
            fresh = (uint64_t)weft__clock_now() * UINT64_C(0x9e3779b97f4a7c15) | 1;
        }
        atomic_compare_exchange_strong(&canary_value, &v, fresh);
        v = atomic_load(&canary_value);
    }
    return v;
}

static weft__g *g_of_stack(weft__stack st) {
    return (weft__g *)(void *)(st.low + st.bytes - G_AREA);
}

/* A stack may have to be mapped, which can take long: a green thread asks from outside, and may have
   no P when it is back. On g0 (a timer starts a G) there is no outside. */
static int take_stack(weft__m *m, weft__r *r, weft__stack *st) {
    bool bracket = m != NULL && m->p != NULL && m->g != NULL &&
                   atomic_load_explicit(&m->incall, memory_order_relaxed) == 1;
    if (!bracket) {
        return weft__stacks_take(r->stacks, st);
    }
    weft__leave(m);
    int err = weft__stacks_take(r->stacks, st);
    weft__enter_nopark();
    return err;
}

/* A G on a stack it has never had before. */
static weft__g *g_from_system(weft__m *m, weft__r *r, int *err) {
    weft__stack st;
    *err = take_stack(m, r, &st);
    if (*err != 0) {
        return NULL;
    }
    weft__g *g = g_of_stack(st);
    g->stack = st; /* the rest of its memory is zero, as it came from the system */
    *weft__g_canary(g) = canary();
#ifdef WEFT__ASAN
    g->fiber.asan_low = st.low;
    g->fiber.asan_bytes = st.bytes;
#endif
    weft__hook_stack(r, &st, true);
    __atomic_store_n(&g->r, r, __ATOMIC_RELEASE); /* last: from here weft__each_g sees it */
    weft__fence_full(); /* pairs with a stop's: it finds g and flags it, or is seen here */
    if (atomic_load_explicit(&r->cancelling, memory_order_relaxed) != 0) {
        atomic_store_explicit(&g->cancel, 1, memory_order_relaxed);
    }
    return g;
}

static weft__g *chain_from_runtime(weft__r *r) {
    weft__lock_take(&r->gfree_lock);
    weft__g *chain = r->gfree;
    if (chain != NULL) {
        r->gfree = chain->arg;
    }
    weft__lock_drop(&r->gfree_lock);
    return chain;
}

static void chain_to_runtime(weft__r *r, weft__g *chain) {
    weft__lock_take(&r->gfree_lock);
    chain->arg = r->gfree;
    r->gfree = chain;
    weft__lock_drop(&r->gfree_lock);
}

/* The P's cache has grown to a chain: it becomes the reserve, the former reserve goes down. */
void weft__gfree_rotate(weft__p *p) {
    if (p->gfree_spare != NULL) {
        chain_to_runtime(p->r, p->gfree_spare);
    }
    p->gfree->id = p->gfree_len;
    p->gfree_spare = p->gfree;
    p->gfree = NULL;
    p->gfree_len = 0;
}

void weft__gfree_give(weft__p *p) {
    if (p->gfree_spare != NULL) {
        chain_to_runtime(p->r, p->gfree_spare);
        p->gfree_spare = NULL;
    }
    if (p->gfree != NULL) {
        p->gfree->id = p->gfree_len;
        chain_to_runtime(p->r, p->gfree);
        p->gfree = NULL;
        p->gfree_len = 0;
    }
}

/* The first of a chain; the rest becomes the P's cache, or goes back. */
static weft__g *split_chain(weft__r *r, weft__p *p, weft__g *chain) {
    weft__g *rest = chain->next;
    if (rest == NULL) {
        return chain;
    }
    rest->id = chain->id - 1;
    if (p != NULL) {
        p->gfree = rest;
        p->gfree_len = (uint32_t)rest->id;
    } else {
        chain_to_runtime(r, rest);
    }
    return chain;
}

WEFT__COLD static weft__g *g_slow(weft__m *m, weft__r *r, weft__p *p, int *err) {
    weft__g *chain = NULL;
    if (p != NULL && p->gfree_spare != NULL) {
        chain = p->gfree_spare;
        p->gfree_spare = NULL;
    } else {
        chain = chain_from_runtime(r);
    }
    return chain != NULL ? split_chain(r, p, chain) : g_from_system(m, r, err);
}

/* A spawn's part of the books: refused while stopping, counted against max_gs. */
static int admit(weft__r *r) {
    if (weft__unlikely(atomic_load_explicit(&r->stopping, memory_order_relaxed) != 0)) {
        return WEFT_ESTOPPING;
    }
    if (weft__unlikely(r->cfg.max_gs != 0) &&
        atomic_fetch_add(&r->gcount, 1) >= (int64_t)r->cfg.max_gs) {
        atomic_fetch_sub(&r->gcount, 1);
        return -EAGAIN;
    }
    return 0;
}

static void count_far(weft__r *r, _Atomic uint64_t *counter) {
    weft__lock_take(&r->stats_lock);
    weft__count(counter, 1);
    weft__lock_drop(&r->stats_lock);
}

/* The same without a P. A spawner with a P is a G, which the stop sees in the books (a timer that fires
   just then is dropped, as all that are left). This one is entered before it asks: it sees `stopping`,
   or the stop sees it; else the stop could find nobody left while the G is being made. */
static int admit_far(weft__r *r) {
    count_far(r, &r->stats.created);
    weft__fence_full();
    return admit(r);
}

/* It was entered, and was not born: who waits for the last G to end may have seen it. */
static void not_born(weft__r *r) {
    count_far(r, &r->stats.ended);
    weft__fence_full();
    if (atomic_load(&r->draining) != 0) {
        weft__note_wake(&r->drained);
    }
}

static uint64_t new_id(weft__r *r, weft__p *p) {
    if (p == NULL) {
        return atomic_fetch_add_explicit(&r->next_id, 1, memory_order_relaxed);
    }
    if (p->id_next == p->id_end) {
        p->id_next = atomic_fetch_add_explicit(&r->next_id, ID_BATCH, memory_order_relaxed);
        p->id_end = p->id_next + ID_BATCH;
    }
    return p->id_next++;
}

weft__g *weft__g_new(weft__m *m, weft__r *r, weft_fn fn, void *arg, const void *site, int *err) {
    weft__p *p = m != NULL && m->r == r ? m->p : NULL;
    *err = weft__likely(p != NULL) ? admit(r) : admit_far(r);
    if (weft__unlikely(*err != 0)) {
        if (p == NULL) {
            not_born(r);
        }
        return NULL;
    }
    weft__g *g = p != NULL ? p->gfree : NULL;
    if (weft__likely(g != NULL)) {
        weft__g *next = g->next;
        p->gfree = next;
        p->gfree_len--;
        __builtin_prefetch(next, 1); /* a burst of spawns: its lines are on their way by then */
        __builtin_prefetch((char *)next + WEFT__LINE, 1);
    } else {
        bool counts_here = p != NULL;
        g = g_slow(m, r, p, err);
        p = counts_here ? m->p : NULL;
        if (counts_here && p == NULL) {
            count_far(r, &r->stats.created);
        }
        if (g == NULL) {
            if (r->cfg.max_gs != 0) {
                atomic_fetch_sub(&r->gcount, 1);
            }
            if (p == NULL) {
                not_born(r);
            }
            return NULL;
        }
    }
    g->fn = fn;
    g->arg = arg;
    g->created_at = site;
    g->id = new_id(r, p);
    g->reason = WEFT__WAIT_NONE;
    weft__ctx_init(&g->fiber.ctx, top_of(g));
#ifdef WEFT__TSAN
    g->fiber.tsan = __tsan_create_fiber(0);
#endif
    if (weft__likely(p != NULL)) {
        weft__count(&p->stats.created, 1);
    }
    return g;
}

int weft__g_start(weft__m *m, weft__r *r, weft_fn fn, void *arg, const void *site) {
    int err;
    weft__g *g = weft__g_new(m, r, fn, arg, site, &err);
    if (weft__unlikely(g == NULL)) {
        return err;
    }
    weft__ready(m, g);
    return 0;
}

/* As above, fn being given a copy of `bytes` bytes at arg that lies on the new stack. */
int weft__g_start_copy(weft__m *m, weft__r *r, weft_fn fn, const void *arg, size_t bytes,
                       const void *site) {
    int err;
    weft__g *g = weft__g_new(m, r, fn, NULL, site, &err);
    if (g == NULL) {
        return err;
    }
    char *top = top_of(g) - ((bytes + 15) & ~(size_t)15);
    memcpy(top, arg, bytes);
    g->arg = top;
    weft__ctx_init(&g->fiber.ctx, top);
    weft__ready(m, g);
    return 0;
}

/* The body has returned: what it deferred runs, then what was local to it goes. User code, outside. The
   nodes may lie in the body's own frame, right below ours, intact until the next call: so they are taken
   into our frame before that, and nothing is called till then. */
WEFT__ALWAYS_INLINE void body_returned(weft__g *g) {
#ifdef WEFT__TSAN
    void *room = __builtin_alloca(4096); /* its hooks are calls */
    __asm__ volatile("" : : "r"(room) : "memory");
#endif
    if (weft__unlikely(g->deferred != NULL)) {
        const char *here = __builtin_frame_address(0);
        size_t below = (size_t)(here - (const char *)weft__deferred_lowest(g, here));
#ifdef WEFT_CANARY_BODYS_FRAME_NOT_KEPT
        below = 0;
#endif
        void *kept = __builtin_alloca(below);
        __asm__ volatile("" : : "r"(kept) : "memory");
        weft__deferred_run(g, kept);
    }
    if (weft__unlikely(g->locals != NULL)) {
        weft__locals_end(g);
    }
}

/* The first frame of every G. */
#ifdef WEFT__ASAN
__attribute__((no_sanitize_address))
#endif
void weft__g_entry(weft__m *m) {
#ifdef WEFT__ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    weft__commit(m);
    weft__g *g = m->g;
    weft__leave(m);
    int result = g->fn(g->arg);
    body_returned(g);
    weft__g_exit(weft__enter(), result);
}

void weft__g_exit(weft__m *m, int result) {
    weft__g *g = m->g;
    weft__r *r = g->r;
    if (weft__unlikely(g->standin)) {
        weft__fatal("a green thread returned in a forked child: call exec or _exit");
    }
    if (weft__unlikely(*weft__g_canary(g) != canary())) {
        weft__fatal("green thread %llu wrote over the top of its stack", (unsigned long long)g->id);
    }
    if (weft__unlikely(g->is_main)) {
        g->is_main = false;
        weft__main_ends(r, result, g->by_exit);
    }
    g->by_exit = false;
    if (weft__unlikely(g->locked != 0)) {
        weft__locked_ends(m, g);
    }
    if (weft__unlikely(r->cfg.max_gs != 0)) {
        atomic_fetch_sub(&r->gcount, 1);
    }
    weft__count(&m->p->stats.ended, 1);
    m->commit = WEFT__COMMIT_EXIT;
    m->commit_g = g;
    weft__g *next = weft__pick_direct(m);
    weft__fiber *to = &m->g0;
    if (next != NULL) {
        weft__execute(m, next);
        to = &next->fiber;
    }
    weft__fiber_switch(&g->fiber, to, m, true);
    __builtin_unreachable();
}

/* On the far side: g's stack is nobody's now. */
void weft__g_reap(weft__m *m, weft__g *g) {
    weft__p *p = m->p;
    atomic_store_explicit(&g->status, WEFT__G_DEAD, memory_order_relaxed);
#ifdef WEFT__TSAN
    __tsan_destroy_fiber(g->fiber.tsan);
    g->fiber.tsan = NULL;
#endif
#ifdef WEFT__ASAN
    weft__stack_sanitize_reset((weft__stack){g->stack.low, g->stack.bytes - G_AREA});
#endif
    if (g->name != NULL) {
        g->name[0] = '\0';
    }
    if (weft__unlikely(g->r->cfg.max_stack_bytes != 0)) {
        g->next = NULL; /* stacks are scarce: no P keeps them from the others */
        g->id = 1;
        chain_to_runtime(g->r, g);
        return;
    }
    g->next = p->gfree;
    p->gfree = g;
    p->gfree_len++;
}

struct each {
    void (*fn)(weft__g *g, void *arg);
    void *arg;
};

static void each_stack(weft__stack st, void *arg) {
    struct each *e = arg;
    weft__g *g = g_of_stack(st);
    if (__atomic_load_n(&g->r, __ATOMIC_ACQUIRE) != NULL) { /* else it is being made */
        e->fn(g, e->arg);
    }
}

/* Every G ever made, the dead too. Its words may change under the caller's eyes. */
void weft__each_g(weft__r *r, void (*fn)(weft__g *g, void *arg), void *arg) {
    struct each e = {fn, arg};
    weft__stacks_each(r->stacks, each_stack, &e);
}

static void free_one(weft__g *g, void *arg) {
    (void)arg;
    weft__mem_free(g->name, 64);
#ifdef WEFT__TSAN
    if (g->fiber.tsan != NULL) {
        __tsan_destroy_fiber(g->fiber.tsan);
    }
#endif
#ifdef WEFT__CTX_HAS_FINI
    weft__ctx_fini(&g->fiber.ctx);
#endif
}

void weft__g_free_all(weft__r *r) { weft__each_g(r, free_one, NULL); }

void weft__describe_g(const weft__g *g, char *buf, size_t bytes) {
    const char *name = g->name;
    if (name != NULL && name[0] != '\0') {
        snprintf(buf, bytes, "green thread %llu (%s)", (unsigned long long)g->id, name);
    } else {
        snprintf(buf, bytes, "green thread %llu", (unsigned long long)g->id);
    }
}
