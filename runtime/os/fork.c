/*
 * What must be right in a forked child: the process's own locks, and the asymmetric fence, which the
 * system may want registered anew.
 *
 * The locks are taken before a fork and dropped after it on both sides, in the order of their coming.
 */
#include "os/os.h"

enum { MOST = 16 };

static weft__lock *_Atomic held[MOST];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void) {
    for (int i = 0; i < MOST && atomic_load(&held[i]) != NULL; i++) {
        weft__lock_take(atomic_load(&held[i]));
    }
}

/* A lock that came while we forked is not ours to drop: the list only grows, and is read here as it was
   then, for this thread came through `before`. */
static void after(void) {
    for (int i = MOST - 1; i >= 0; i--) {
        weft__lock *l = atomic_load(&held[i]);
        if (l != NULL) {
            weft__lock_drop(l);
        }
    }
}

static void in_child(void) {
    after();
    weft__fence_init();
}

static void begin(void) { pthread_atfork(before, after, in_child); }

void weft__fork_holds(weft__lock *l) {
    pthread_once(&once, begin);
    for (int i = 0; i < MOST; i++) {
        weft__lock *was = NULL;
        if (atomic_load_explicit(&held[i], memory_order_acquire) == l ||
            atomic_compare_exchange_strong(&held[i], &was, l) || was == l) {
            return;
        }
    }
    weft__fatal("internal error: too many locks of the process");
}
