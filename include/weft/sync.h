/* weft/sync.h: locks and their kin. In place, zero is ready, no allocation, no destroy, any thread,
   across runtimes; not copyable. No unlock, done or set touches the object once another party can
   have returned because of it, so that party may free it. The plain forms cannot fail and do not
   end with a context: a lock that may return unlocked is a lock that will be misused. Their _until
   forms obey both the time and the context. Misuse (unlock of unlocked, negative count) is a fatal
   message. */
#ifndef WEFT_SYNC_H
#define WEFT_SYNC_H
#include <weft/base.h>
WEFT_BEGIN
typedef struct weft_mutex {
    uint64_t opaque[4];
} weft_mutex;
typedef struct weft_waitgroup {
    uint64_t opaque[3];
} weft_waitgroup;
typedef struct weft_event {
    uint64_t opaque[3];
} weft_event;
/* clang-format off */
#define WEFT_MUTEX_INIT {{0}}
#define WEFT_WAITGROUP_INIT {{0}}
#define WEFT_EVENT_INIT {{0}}
/* clang-format on */

WEFT_API void weft_mutex_lock(weft_mutex *m);                                  /* P any */
WEFT_API WEFT_CHECK int weft_mutex_lock_until(weft_mutex *m, weft_time until); /* P any ctx */
WEFT_API WEFT_CHECK bool weft_mutex_try_lock(weft_mutex *m); /* - any: true: yours */
WEFT_API void weft_mutex_unlock(weft_mutex *m);
/* - any: by any G, as Go's */

#if defined(__GNUC__) && !defined(__cplusplus)
WEFT_INLINE void weft__guard_end(weft_mutex **m) { weft_mutex_unlock(*m); }
/* Lock now, unlock at the end of the block (weft_exit skips it). */
#define WEFT_LOCK_GUARD(m) WEFT__GUARD(__COUNTER__, m)
#define WEFT__GUARD(id, m) WEFT__GUARD2(id, m)
#define WEFT__GUARD2(id, m)                                                                        \
    weft_mutex *weft__g##id __attribute__((cleanup(weft__guard_end))) = (m);                       \
    weft_mutex_lock(weft__g##id)
#endif

WEFT_API void weft_waitgroup_add(weft_waitgroup *w, int n); /* - any */
WEFT_API void weft_waitgroup_done(weft_waitgroup *w);
/* - any: does not touch *w once a waiter can return */
WEFT_API WEFT_CHECK int weft_waitgroup_go(weft_waitgroup *w, weft_fn fn, void *arg);
/* - G: add, go, done */
WEFT_API void weft_waitgroup_wait(weft_waitgroup *w); /* P any */
WEFT_API WEFT_CHECK int weft_waitgroup_wait_until(weft_waitgroup *w, weft_time until);
/* P any ctx */

/* The bridge from callbacks: set in the callback of any library on any thread, wait in a G. Stays
   set until reset. The setter does not touch it once a waiter can return, so it may live on the
   waiter's stack. Where nobody but a plain thread is left to set it, weft_run takes the program for
   dead: weft_external_begin tells it that somebody will come. */
WEFT_API void weft_event_set(weft_event *e);          /* - any */
WEFT_API void weft_event_reset(weft_event *e);        /* - any */
WEFT_API bool weft_event_is_set(const weft_event *e); /* - any */
WEFT_API void weft_event_wait(weft_event *e);
/* P any: not ended by the context: a callback still holds it */
WEFT_API WEFT_CHECK int weft_event_wait_until(weft_event *e, weft_time until); /* P any ctx */
WEFT_END
#endif
