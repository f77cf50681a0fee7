/*
 * What must be right in a forked child: the process's own locks, and the asymmetric fence, which the
 * system may want registered anew.
 *
 * The locks are taken before a fork, in the order of their coming, and dropped after it on both sides.
 */
#include "os/os.h"

enum { MOST = 16 };

static weft__lock *_Atomic held[MOST];
static int taken; /* by the fork under way; guarded by the first lock, which serialises forks too */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void) {
    int n = 0;
    while (n < MOST && atomic_load(&held[n]) != NULL) {
        weft__lock_take(atomic_load(&held[n++]));
    }
    taken = n;
}

/* A lock that came while we forked was not taken, and may be somebody's. */
static void after(void) {
    for (int i = taken - 1; i >= 0; i--) {
        weft__lock_drop(atomic_load(&held[i]));
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
