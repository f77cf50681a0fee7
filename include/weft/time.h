/* weft/time.h: clocks, sleep, timers. */
#ifndef WEFT_TIME_H
#define WEFT_TIME_H
#include <weft/runtime.h>
WEFT_BEGIN
WEFT_API weft_time weft_now(void); /* - any sig: the runtime's clock: CLOCK_MONOTONIC */
WEFT_API int64_t weft_wall(weft_time t);
/* - any: nanoseconds since 1970 UTC at t, as the wall clock stands now */
WEFT_INLINE weft_time weft_in(weft_duration d) { return weft_time_add(weft_now(), d); }
/* - any sig: the deadline d from now */
WEFT_API int weft_sleep(weft_duration d);
/* P any ctx: never early; <= 0 returns 0 at once without a yield */
WEFT_API int weft_sleep_until(weft_time t); /* P any ctx */

/* Timers. Made armed; WEFT_FOREVER makes one unarmed; *out is written before it can fire; a
   function may reset, stop or free its own timer. A G parked in a wait stays parked over a stop
   (until a reset) and gets -EBADF when the timer is freed. Stop and reset are exact: true means it
   was pending (armed, or due and not yet taken) and that firing will not be seen; false means its
   effect has happened or nothing was pending. No old tick after either. Freed at any time, armed or
   not, from any thread. The caller needs a runtime. */
typedef struct weft_timer weft_timer;
typedef struct weft_timer_options {
    size_t size;
    int reserved0;
    int64_t reserved1;
    weft_duration slack; /* 0: the default, min(length / 256, 100 us), none below 1 ms; negative:
                            exact. weft_sleep and deadlines use the default */
    void *reserved[5];
} weft_timer_options;
WEFT_INLINE weft_timer_options weft_timer_options_default(void) {
    weft_timer_options o = WEFT_ZERO;
    o.size = sizeof o;
    return o;
}
WEFT_API WEFT_CHECK int weft_timer_new(weft_timer **out, weft_duration after,
                                       const weft_timer_options *o);
/* - any: one to wait on */
WEFT_API WEFT_CHECK int weft_timer_wait(weft_timer *t, weft_time *nominal);
/* P any ctx: takes one firing. nominal may be NULL */
WEFT_API WEFT_CHECK int weft_timer_wait_until(weft_timer *t, weft_time *nominal, weft_time until);
/* P any ctx */
WEFT_API WEFT_CHECK int weft_after_func(weft_timer **out, weft_duration after, weft_fn fn,
                                        void *arg, const weft_timer_options *o);
/* - any: fn runs as a new G at each firing. out == NULL: nobody holds it, it frees itself once
   fired */
WEFT_API bool weft_timer_stop(weft_timer *t);                       /* - any */
WEFT_API bool weft_timer_reset(weft_timer *t, weft_duration after); /* - any */
WEFT_API bool weft_timer_reset_at(weft_timer *t, weft_time when);   /* - any */
WEFT_API void weft_timer_free(weft_timer *t);
/* - any: stops; does not wait for a running fn. NULL is fine */
WEFT_END
#endif
