/* stack/slab.c: carves stacks out of slabs.

   A slab is one reservation of address space, cut into slots:

       base            base + slot_bytes
       | guard | stack | guard | stack | guard | ...
               ^ low          ^ low

   Slabs are small at first, for programs with few green threads, and double, for programs with a
   million. A slab is reserved without access; slots are opened when they are first handed out, so
   that in a process that locks its memory only stacks in use become resident. Slots are handed out
   from the bottom up and in order, so that with guard regions the opened part of a slab stays one
   mapping.

   Invariants. Slabs are only added, at the head of the list, and published complete: a signal
   handler may walk the list at any moment. `used` only grows, and is stored after the slot is
   ready. All other fields are constant, or under the pool's lock. */
#include "stack/stack.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"
#include "stack/guard.h"

#ifdef WEFT__ASAN
#include <sanitizer/asan_interface.h>
#endif

#define FIRST_SLAB_BYTES ((size_t)1 << 20)
/* Reserving costs nothing, and the fewer slabs the shorter the walk in find. If there is no room
   for so much, less is asked for. */
#define MAX_SLAB_BYTES (sizeof(void *) > 4 ? (size_t)1 << 35 : (size_t)1 << 26)
/* Where address space is limited (RLIMIT_AS), what we reserve ahead the host's malloc is refused. */
#define MAX_SLAB_BYTES_LIMITED ((size_t)1 << 24)
/* Slots opened by one call: the call costs more than a guard region. */
#define OPEN_BATCH 16

struct slab {
    struct slab *next; /* the one made before */
    char *base;
    size_t slots;
    size_t opened;       /* slots [0, opened) have been given access rights, guard and all; lock */
    _Atomic size_t used; /* slots [0, used) have been handed out */
    char *next_free[];   /* by slot: the next stack (its low end) in the pool's free list; lock */
};

struct weft__stacks {
    _Atomic(struct slab *) slabs; /* newest first */
    pthread_mutex_t lock;
    char *free;         /* low end of the stack that was put back last; lock */
    size_t stack_bytes; /* usable */
    size_t guard_bytes;
    size_t slot_bytes; /* both */
    size_t max_slots;  /* bound of all slabs together */
    size_t slots;      /* in all slabs; lock */
    size_t slab_bytes; /* to reserve next; lock */
    size_t max_slab_bytes;
    size_t rationed;   /* stacks whose guard took mappings; lock */
    bool guard_region; /* guards are tried as guard regions first */
};

static struct slab *slab_new(weft__stacks *s);
static int slot_open(weft__stacks *s, struct slab *b, size_t i);

/* Pools. */

static bool address_space_limited(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

int weft__stacks_new(weft__stacks **out, size_t default_bytes, size_t max_total_bytes) {
    size_t page = weft__page_bytes();
    size_t guard = weft__guard_bytes();
    if (default_bytes == 0 || default_bytes > SIZE_MAX / 4) return -EINVAL;
    weft__stacks *s = weft__mem_alloc(sizeof *s);
    if (!s) return -ENOMEM;
    size_t bytes = (default_bytes + page - 1) / page * page;
    *s = (weft__stacks){
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .stack_bytes = bytes,
        .guard_bytes = guard,
        .slot_bytes = guard + bytes,
        .max_slots = max_total_bytes ? max_total_bytes / bytes : SIZE_MAX,
        .slab_bytes = FIRST_SLAB_BYTES,
        .max_slab_bytes = address_space_limited() ? MAX_SLAB_BYTES_LIMITED : MAX_SLAB_BYTES,
        .guard_region = weft__guard_works(),
    };
    *out = s;
    return 0;
}

static weft__stack slot_stack(const weft__stacks *s, const struct slab *b, size_t i) {
    char *low = b->base + i * s->slot_bytes + s->guard_bytes;
    return (weft__stack){.low = low, .bytes = s->stack_bytes};
}

static size_t slab_record_bytes(size_t slots) {
    return sizeof(struct slab) + slots * sizeof(char *);
}

static void slab_free(weft__stacks *s, struct slab *b) {
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    for (size_t i = 0; i < used; i++) weft__stack_sanitize_reset(slot_stack(s, b, i));
    munmap(b->base, b->slots * s->slot_bytes);
    weft__mem_free(b, slab_record_bytes(b->slots));
}

void weft__stacks_free(weft__stacks *s) {
    if (!s) return;
    struct slab *b = atomic_load_explicit(&s->slabs, memory_order_relaxed);
    while (b) {
        struct slab *next = b->next;
        slab_free(s, b);
        b = next;
    }
    weft__guard_ration_give(s->rationed);
    pthread_mutex_destroy(&s->lock);
    weft__mem_free(s, sizeof *s);
}

/* The slab that holds addr. Signal-safe: acquire pairs with the release in slab_new. */
static struct slab *slab_of(weft__stacks *s, const void *addr) {
    struct slab *b = atomic_load_explicit(&s->slabs, memory_order_acquire);
    while (b && (uintptr_t)addr - (uintptr_t)b->base >= b->slots * s->slot_bytes) b = b->next;
    return b;
}

static size_t slot_index(const weft__stacks *s, const struct slab *b, const void *addr) {
    return ((uintptr_t)addr - (uintptr_t)b->base) / s->slot_bytes;
}

/* Lock held. NULL: none was put back. */
static char *free_pop(weft__stacks *s) {
    char *low = s->free;
    if (!low) return NULL;
    struct slab *b = slab_of(s, low);
    s->free = b->next_free[slot_index(s, b, low)];
    return low;
}

/* Lock held. The next slot that was never used: 0 or -ENOMEM. */
static int slot_take(weft__stacks *s, char **low) {
    struct slab *b = atomic_load_explicit(&s->slabs, memory_order_relaxed);
    size_t i = b ? atomic_load_explicit(&b->used, memory_order_relaxed) : 0;
    if (!b || i == b->slots) {
        b = slab_new(s);
        if (!b) return -ENOMEM;
        i = 0;
    }
    int err = slot_open(s, b, i);
    if (err) return err;
    /* Pairs with the acquire in find and each: who sees the slot counted sees it open. */
    atomic_store_explicit(&b->used, i + 1, memory_order_release);
    *low = slot_stack(s, b, i).low;
    return 0;
}

int weft__stacks_take(weft__stacks *s, weft__stack *out) {
    pthread_mutex_lock(&s->lock);
    char *low = free_pop(s);
    int err = low ? 0 : slot_take(s, &low);
    pthread_mutex_unlock(&s->lock);
    if (!err) *out = (weft__stack){.low = low, .bytes = s->stack_bytes};
    return err;
}

void weft__stacks_put(weft__stacks *s, weft__stack st) {
    weft__stack_sanitize_reset(st);
    struct slab *b = slab_of(s, st.low);
    pthread_mutex_lock(&s->lock);
    b->next_free[slot_index(s, b, st.low)] = s->free;
    s->free = st.low;
    pthread_mutex_unlock(&s->lock);
}

void weft__stacks_each(weft__stacks *s, void (*fn)(weft__stack st, void *arg), void *arg) {
    struct slab *b = atomic_load_explicit(&s->slabs, memory_order_acquire);
    for (; b; b = b->next) {
        size_t used = atomic_load_explicit(&b->used, memory_order_acquire);
        for (size_t i = 0; i < used; i++) fn(slot_stack(s, b, i), arg);
    }
}

size_t weft__stacks_reserved(weft__stacks *s) {
    size_t stacks = 0;
    struct slab *b = atomic_load_explicit(&s->slabs, memory_order_acquire);
    for (; b; b = b->next) stacks += atomic_load_explicit(&b->used, memory_order_relaxed);
    return stacks * s->stack_bytes;
}

bool weft__stacks_find(weft__stacks *s, const void *addr, weft__stack *out, bool *in_guard) {
    struct slab *b = slab_of(s, addr);
    if (!b) return false;
    size_t i = slot_index(s, b, addr);
    if (i >= atomic_load_explicit(&b->used, memory_order_acquire)) return false;
    *out = slot_stack(s, b, i);
    *in_guard = (uintptr_t)addr < (uintptr_t)out->low;
    return true;
}

void weft__stack_sanitize_reset(weft__stack st) {
#ifdef WEFT__ASAN
    __asan_unpoison_memory_region(st.low, st.bytes);
#else
    (void)st;
#endif
}

/* Slabs. The pool's lock is held throughout. */

/* Reserves up to `want` slots, or as many as there is address space for. NULL: not one. */
static char *reserve(const weft__stacks *s, size_t *want) {
    for (size_t n = *want; n > 0; n /= 2) {
        char *base = mmap(NULL, n * s->slot_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (base != MAP_FAILED) {
            *want = n;
            return base;
        }
    }
    return NULL;
}

/* How many slots the next slab should have; 0: the bound is reached. */
static size_t slab_slots(const weft__stacks *s) {
    size_t n = s->slab_bytes / s->slot_bytes;
    size_t left = s->max_slots - s->slots;
    if (n == 0) n = 1;
    return n < left ? n : left;
}

static struct slab *slab_new(weft__stacks *s) {
    size_t slots = slab_slots(s);
    char *base = reserve(s, &slots);
    if (!base) return NULL;
    struct slab *b = weft__mem_alloc(slab_record_bytes(slots));
    if (!b) {
        munmap(base, slots * s->slot_bytes);
        return NULL;
    }
    /* A huge page would make the first touch of a stack cost that of all its neighbours. A kernel
       without huge pages refuses the advice, and needs none. */
    madvise(base, slots * s->slot_bytes, MADV_NOHUGEPAGE);
    b->next = atomic_load_explicit(&s->slabs, memory_order_relaxed);
    b->base = base;
    b->slots = slots;
    b->opened = 0;
    atomic_init(&b->used, 0);
    /* Pairs with the acquire in slab_of. */
    atomic_store_explicit(&s->slabs, b, memory_order_release);
    s->slots += slots;
    if (s->slab_bytes < s->max_slab_bytes) s->slab_bytes *= 2;
    return b;
}

/* Slots. The pool's lock is held throughout. */

static int set_access(char *at, size_t bytes, int prot) {
    /* All that can go wrong with a range of our own is a lack of memory or of mappings. */
    return mprotect(at, bytes, prot) == 0 ? 0 : -ENOMEM;
}

/* Gives access to slot i, whose guard region is in place, and to some that follow: their guards
   are installed before anybody gets them. */
static int open_batch(weft__stacks *s, struct slab *b, size_t i) {
    size_t n = b->slots - i < OPEN_BATCH ? b->slots - i : OPEN_BATCH;
    char *at = b->base + i * s->slot_bytes;
    int err = set_access(at, n * s->slot_bytes, PROT_READ | PROT_WRITE);
    if (err && n > 1) {
        n = 1;
        err = set_access(at, s->slot_bytes, PROT_READ | PROT_WRITE);
    }
    if (!err) b->opened = i + n;
    return err;
}

/* A guard by access rights: opens the stack and leaves its guard closed, or, if the slot was opened
   in a batch, closes the guard again. */
static int open_rationed(weft__stacks *s, struct slab *b, size_t i) {
    if (!weft__guard_ration_take()) return -ENOMEM;
    char *guard = b->base + i * s->slot_bytes;
    int err = i < b->opened
                  ? set_access(guard, s->guard_bytes, PROT_NONE)
                  : set_access(guard + s->guard_bytes, s->stack_bytes, PROT_READ | PROT_WRITE);
    if (err) {
        weft__guard_ration_give(1);
        return err;
    }
    s->rationed++;
    return 0;
}

static int slot_open(weft__stacks *s, struct slab *b, size_t i) {
#ifdef WEFT_CANARY_STACK_GUARD_MISSING
    return i < b->opened ? 0 : open_batch(s, b, i);
#endif
    char *guard = b->base + i * s->slot_bytes;
    /* The install fails in memory that the process has locked, before or after we reserved it. */
    if (s->guard_region && weft__guard_install(guard, s->guard_bytes) == 0) {
        return i < b->opened ? 0 : open_batch(s, b, i);
    }
    return open_rationed(s, b, i);
}
