/*
 * Room os: the machine behind a few words. Note (sleep until woken), short lock, fences, clock,
 * threads. Knows nothing of green threads.
 */
#ifndef WEFT__OS_H
#define WEFT__OS_H

#include "base/base.h"

#include <pthread.h>

/* --- clock ------------------------------------------------------------------------------------ */
int64_t weft__clock_now(void);  /* CLOCK_MONOTONIC, ns; signal-safe */
int64_t weft__clock_wall(void); /* CLOCK_REALTIME, ns since 1970 */

/* --- note: one sleeper, woken once; then cleared by its sleeper for the next use ---------------- */
typedef struct weft__note {
    _Atomic uint32_t set;
} weft__note;
WEFT__ALWAYS_INLINE void weft__note_clear(weft__note *n) {
    atomic_store_explicit(&n->set, 0, memory_order_relaxed);
}
void weft__note_sleep(weft__note *n);
bool weft__note_sleep_until(weft__note *n,
                            int64_t when); /* INT64_MAX: for ever. false: time is up */
void weft__note_wake(weft__note *n); /* may be called more than once; signal-safe. The note's memory
                                        must outlive the call: notes live in records never freed while
                                        a waker may come */

/* --- short lock ------------------------------------------------------------------------------- */
/* For sections of some tens of instructions without a system call. Acquire is one exchange, release
   one plain store that owes nobody a wake-up: waiters pause, yield once, then sleep for a bounded
   time (20..200 us) and look again. So the memory may be freed by the next holder. Zero is free.
   It may be released by another thread than its taker (a held park does). */
typedef struct weft__lock {
    _Atomic uint32_t held;
} weft__lock;
void weft__lock_slow(weft__lock *l);
WEFT__ALWAYS_INLINE bool weft__lock_try(weft__lock *l) {
    return atomic_load_explicit(&l->held, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&l->held, 1, memory_order_acquire) == 0;
}
WEFT__ALWAYS_INLINE void weft__lock_take(weft__lock *l) {
    if (weft__unlikely(atomic_exchange_explicit(&l->held, 1, memory_order_acquire) != 0)) {
        weft__lock_slow(l);
    }
}
WEFT__ALWAYS_INLINE void weft__lock_drop(weft__lock *l) {
    atomic_store_explicit(&l->held, 0, memory_order_release);
}

/* --- asymmetric fences ------------------------------------------------------------------------ */
/* A pair: many threads cross light fences often, one crosses a heavy fence seldom; between a store
   before and a load behind, they order as two full fences would. Light is nothing but a compiler
   barrier where the kernel can fence all threads of the process for us (membarrier); else both are
   full fences, chosen once by weft__fence_init. Under TSan always the latter. */
extern bool weft__fence_asymmetric;
void weft__fence_init(void); /* once a process; before the first light fence */
void weft__fence_heavy(void);
#if defined(WEFT__TSAN) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
WEFT__ALWAYS_INLINE void weft__fence_full(void) {
    atomic_thread_fence(memory_order_seq_cst); /* TSan orders nothing by it, and need not: what lies
                                                  on both sides is atomic */
}
WEFT__ALWAYS_INLINE void weft__fence_light(void) {
    if (weft__likely(weft__fence_asymmetric)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        weft__fence_full();
    }
}

/* --- fork ------------------------------------------------------------------------------------- */
/* A lock that is the process's is held over every fork from here on, so that a child finds it free and
   what it guards whole. Again is harmless; at most 16, which take nothing while they are held. */
void weft__fork_holds(weft__lock *l);

/* --- threads ---------------------------------------------------------------------------------- */
WEFT__ALWAYS_INLINE void weft__pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
/* Starts a joinable thread. It inherits the caller's signal mask. 0 or a negative errno. */
int weft__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg);
void weft__thread_exact_timers(
    void); /* the calling thread's sleeps are not rounded by the kernel */
void weft__thread_nap(int64_t ns);
long weft__thread_id(void);
/* The calling thread gets a table of descriptors of its own that holds 0 to 2 and `keep` (-1: none): what
   it opens takes none from the process. Not where the system cannot; then all is as before. */
void weft__thread_own_files(int keep);
/* Of a thread of this process by its id: what it does, 'R' (runs, or waits for a CPU), 'S' or 'D' (sleeps),
   another letter; 0: the system does not say, or it is no more. */
char weft__thread_state(long id);
int64_t weft__thread_cpu(long id); /* its CPU time, ns; -1: the system does not say */

/* --- files that tell about the machine ---------------------------------------------------------- */
/* For reading; -1: it is not to be had, and what it would tell is unknown. */
int weft__file_open(const char *path);
/* By nothing but the system call: for a thread with a table of descriptors of its own, whose numbers mean
   another file to whoever follows the C library's. */
int weft__file_open_raw(const char *path);
long weft__file_read_raw(int fd, void *buf, size_t bytes);
void weft__file_close_raw(int fd);

/* --- this library ----------------------------------------------------------------------------- */
/* From here dlclose does not unload the code of ours. May be called again. */
void weft__library_pin(void);

/* --- address space ---------------------------------------------------------------------------- */
/* Zeroed pages that a forked child sees as zeros again where the system can (Linux). NULL: none. */
void *weft__pages_map(size_t bytes);
void weft__pages_unmap(void *p, size_t bytes);

#endif
