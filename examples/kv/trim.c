/* trim.c: the one place that knows which allocator is linked. */
#include "trim.h"
#include <stdatomic.h>
#include <stdio.h>
#include <weft.h>
#ifdef KV_JEMALLOC
#include <jemalloc/jemalloc.h>
#elif defined(__GLIBC__)
#include <malloc.h>
#endif

#define MUCH ((size_t)4 * 1024 * 1024)
#define LITTLE ((size_t)64 * 1024)
#define PAUSE (100 * WEFT_MILLISECOND)

static atomic_size_t freed;
static atomic_bool pending; /* the timer is armed, or its function on its way */

static weft_mutex lock; /* of the next */
static weft_timer *timer;

static void give_back(void) {
#ifdef KV_JEMALLOC
    char name[32];
    snprintf(name, sizeof name, "arena.%u.purge", (unsigned)MALLCTL_ARENAS_ALL);
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0); /* what this thread keeps for itself */
    mallctl(name, NULL, NULL, NULL, 0);
#elif defined(__GLIBC__)
    malloc_trim(0);
#endif
}

static void trim_later(void) {
    WEFT_LOCK_GUARD(&lock);
    if (timer != NULL) weft_timer_reset(timer, PAUSE);
}

/* Again and again until a pause brings nothing more to speak of: what starts as much often goes on. */
static int trim(void *arg) {
    (void)arg;
    size_t bytes = atomic_exchange_explicit(&freed, 0, memory_order_relaxed);

    if (bytes > 0) give_back();
    if (bytes > LITTLE)
        trim_later();
    else
        atomic_store_explicit(&pending, false, memory_order_relaxed);
    return 0;
}

void trim_after(size_t bytes) {
    if (atomic_fetch_add_explicit(&freed, bytes, memory_order_relaxed) + bytes < MUCH) return;
    if (!atomic_exchange_explicit(&pending, true, memory_order_relaxed)) trim_later();
}

int trim_start(void) { return weft_after_func(&timer, WEFT_FOREVER, trim, NULL, NULL); }

void trim_stop(void) {
    WEFT_LOCK_GUARD(&lock);
    weft_timer_free(timer);
    timer = NULL;
}
