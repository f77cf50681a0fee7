/*
 * Memory for the runtime's own records: from the host's hooks, or from the C library's allocator or
 * whatever the process has put in its place.
 *
 * Which one is settled once a process, by the first that comes: weft_set_allocator, or an allocation.
 * From then on the hooks are constant. Who comes while they are being set waits for it.
 */
#include "base/base.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <weft/runtime.h>

enum { NOT_SETTLED, BEING_SET, SETTLED };
enum { LEAST_ALIGN = 16 };

static _Atomic int state;
static weft_allocator hooks; /* alloc NULL: the C library's. Constant once SETTLED is seen */

WEFT__COLD static void settle(void) {
    int seen = NOT_SETTLED;
    while (!atomic_compare_exchange_strong(&state, &seen, SETTLED) && seen != SETTLED) {
        seen = NOT_SETTLED;
        sched_yield();
    }
}

static bool has_hooks(void) {
    if (weft__unlikely(atomic_load_explicit(&state, memory_order_acquire) != SETTLED)) {
        settle();
    }
    return hooks.alloc != NULL;
}

WEFT_API int weft_set_allocator(const weft_allocator *a) {
    weft_allocator given = {0};
    if (a == NULL || weft__options_read(&given, sizeof given, sizeof given, a) != 0 ||
        given.alloc == NULL || given.free == NULL) {
        return -EINVAL;
    }
    int seen = NOT_SETTLED;
    if (!atomic_compare_exchange_strong(&state, &seen, BEING_SET)) {
        return -EBUSY;
    }
    hooks = given;
    atomic_store_explicit(&state, SETTLED, memory_order_release);
    return 0;
}

void *weft__mem_alloc_aligned(size_t bytes, size_t align) {
    bytes = bytes != 0 ? bytes : 1;
    if (has_hooks()) {
        return hooks.alloc(hooks.ctx, bytes, align);
    }
    void *p = NULL;
    return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

void weft__mem_free_aligned(void *ptr, size_t bytes, size_t align) {
    if (ptr == NULL) {
        return;
    }
    if (has_hooks()) {
        hooks.free(hooks.ctx, ptr, bytes != 0 ? bytes : 1, align);
    } else {
        free(ptr);
    }
}

void *weft__mem_alloc(size_t bytes) {
    return has_hooks() ? weft__mem_alloc_aligned(bytes, LEAST_ALIGN) : malloc(bytes ? bytes : 1);
}

void *weft__mem_zalloc(size_t bytes) {
    if (!has_hooks()) {
        return calloc(1, bytes ? bytes : 1);
    }
    void *p = weft__mem_alloc_aligned(bytes, LEAST_ALIGN);
    return p != NULL ? memset(p, 0, bytes) : NULL;
}

void weft__mem_free(void *ptr, size_t bytes) { weft__mem_free_aligned(ptr, bytes, LEAST_ALIGN); }
