/*
 * Notes and the slow way of the short lock, on the futex.
 *
 * Note: a sleeper waits while the word is 0; a waker exchanges it to 1 and wakes whoever sleeps.
 * The exchange is a full fence, so what the waker wrote before is seen by the sleeper behind.
 */
#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *ts,
                  uint32_t mask) {
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, val, ts, NULL, mask);
}

static struct timespec timespec_of(int64_t ns) {
    struct timespec ts = {.tv_sec = (time_t)(ns / WEFT_SECOND),
                          .tv_nsec = (long)(ns % WEFT_SECOND)};
    return ts;
}

void weft__note_sleep(weft__note *n) {
    while (atomic_load_explicit(&n->set, memory_order_acquire) == 0) {
        futex(&n->set, FUTEX_WAIT, 0, NULL, 0);
    }
}

bool weft__note_sleep_until(weft__note *n, int64_t when) {
    if (when == INT64_MAX) {
        weft__note_sleep(n);
        return true;
    }
    struct timespec ts = timespec_of(when > 0 ? when : 0);
    while (atomic_load_explicit(&n->set, memory_order_acquire) == 0) {
        if (weft__clock_now() >= when) {
            return atomic_load_explicit(&n->set, memory_order_acquire) != 0;
        }
        /* BITSET takes an absolute time on the monotonic clock. */
        futex(&n->set, FUTEX_WAIT_BITSET, 0, &ts, FUTEX_BITSET_MATCH_ANY);
    }
    return true;
}

void weft__note_wake(weft__note *n) {
    if (atomic_exchange_explicit(&n->set, 1, memory_order_seq_cst) == 0) {
        futex(&n->set, FUTEX_WAKE, 1, NULL, 0);
    }
}

void weft__lock_slow(weft__lock *l) {
    int64_t nap = 20 * WEFT_MICROSECOND;
    for (int round = 0;; round++) {
        if (round < 4) {
            for (int i = 0; i < 30; i++) {
                weft__pause();
            }
        } else if (round == 4) {
            sched_yield();
        } else {
            struct timespec ts = timespec_of(nap);
            futex(&l->held, FUTEX_WAIT, 1, &ts,
                  0); /* nobody wakes it: a nap that ends early if free */
            nap = nap < 100 * WEFT_MICROSECOND ? nap * 2 : 200 * WEFT_MICROSECOND;
        }
        if (weft__lock_try(l)) {
            return;
        }
    }
}
