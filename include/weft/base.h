/* weft/base.h: types, time points, errors, attributes. Needs nothing, includes no system header but
   the C99 ones.

   The comment behind each function of these headers begins with tags that say where it may be
   called:

       P     may park or yield: the green thread may go on on another OS thread. Not under a pthread
             mutex, not in an inline callback
       -     never waits and never switches
       any   by green threads and plain threads, across runtimes
       G     by green threads; what makes something also by plain threads attached to a runtime:
             elsewhere WEFT_ENORUNTIME
       out   by plain threads, or by a green thread of another runtime
       sig   in a signal handler too
       ctx   returns -ECANCELED or -ETIMEDOUT as soon as the caller's context has ended. Calls
             without it cannot be cut short

   Results are 0 or a count; negative is an error. On error an out-parameter is untouched unless the
   line says otherwise. `_until` takes a point in time: a past one makes the call a try that still
   says -ETIMEDOUT, WEFT_NEVER waits. Option structs come from their `_default()`, which stores the
   caller's own sizeof, and zero is the default of every field. G stands for a green thread, P for
   the right to run one: there are as many as CPUs at hand. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#ifndef __cplusplus
#include <stdbool.h>
#define WEFT_BEGIN
#define WEFT_END
#define WEFT_ZERO {0}
#else
#define WEFT_BEGIN extern "C" {
#define WEFT_END }
#define WEFT_ZERO {}
#endif
/* clang-format on */
#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
/* Ignoring the result is a bug: the compiler says so. */
#define WEFT_CHECK __attribute__((warn_unused_result))
#define WEFT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define WEFT_NORETURN __attribute__((noreturn))
/* unused: clang warns for inline functions that a macro made. */
#define WEFT_INLINE static inline __attribute__((unused))
#else
#define WEFT_API
#define WEFT_CHECK
#define WEFT_PRINTF(f, a)
#define WEFT_NORETURN
#define WEFT_INLINE static inline
#endif
#define WEFT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

WEFT_BEGIN
/* The body of a green thread. Same shape as C11's thrd_start_t. The result is a group's error,
   weft_run's status, or only shown in dumps. Must not be left by longjmp or exception. */
typedef int (*weft_fn)(void *arg);
/* A callback. It must not park, but a deferred call and a local's destructor may. free() fits. */
typedef void (*weft_cb)(void *arg);
/* A green thread's number; 1 is main; never used again; 0 is nobody. */
typedef uint64_t weft_id;

/* A length of time is a plain count of nanoseconds. A point in time is a struct, so that the
   compiler refuses a length where a point is wanted (`_until(ch, &v, 5 * WEFT_SECOND)` would be a
   deadline five seconds after boot), and so that the only way to add is the saturating one. No
   value but WEFT_NEVER is special: a zero point is simply long past. */
typedef int64_t weft_duration;
typedef struct weft_time {
    int64_t ns; /* monotonic; of the runtime's clock, which a simulation replaces */
} weft_time;
#define WEFT_NANOSECOND INT64_C(1)
#define WEFT_MICROSECOND (1000 * WEFT_NANOSECOND)
#define WEFT_MILLISECOND (1000 * WEFT_MICROSECOND)
#define WEFT_SECOND (1000 * WEFT_MILLISECOND)
#define WEFT_MINUTE (60 * WEFT_SECOND)
#define WEFT_HOUR (60 * WEFT_MINUTE)
#define WEFT_FOREVER INT64_MAX
#define WEFT_NEVER (weft_time_at(INT64_MAX))
WEFT_INLINE weft_time weft_time_at(int64_t ns) {
    weft_time t;
    t.ns = ns;
    return t;
}
WEFT_INLINE weft_time weft_time_add(weft_time t, weft_duration d) {
    if (t.ns == INT64_MAX || (d > 0 && t.ns > INT64_MAX - d)) return weft_time_at(INT64_MAX);
    if (d < 0 && t.ns < INT64_MIN - d) return weft_time_at(INT64_MIN);
    return weft_time_at(t.ns + d);
}
WEFT_INLINE weft_duration weft_time_sub(weft_time a, weft_time b) {
    if (b.ns < 0 && a.ns > INT64_MAX + b.ns) return INT64_MAX;
    if (b.ns > 0 && a.ns < INT64_MIN + b.ns) return INT64_MIN;
    return a.ns - b.ns;
}
WEFT_INLINE int weft_time_cmp(weft_time a, weft_time b) { return (a.ns > b.ns) - (a.ns < b.ns); }

/* Errors are negative errno values. Codes that no errno names lie below them; EOF and the EAI group
   have libuv's values, so one table serves both. -EPIPE: the other end is gone or the channel
   closed. -EBADF: this handle is closed (Go's net.ErrClosed), also for those parked on it.
   -ECANCELED / -ETIMEDOUT: a context, a scope or a deadline of the caller's own. -EBUSY: a second
   reader, or a taken thing. -EAGAIN: a try that would have parked. In the child of a fork that has not
   called exec weft may not be called: from a green thread that ends it with a message.
   -EDEADLK: would wait for itself. */
#define WEFT_EOF (-4095)
#define WEFT_EAI_AGAIN (-3001)
#define WEFT_EAI_FAIL (-3004)
#define WEFT_EAI_FAMILY (-3005)
#define WEFT_EAI_MEMORY (-3006)
#define WEFT_EAI_NODATA (-3007)
#define WEFT_EAI_NONAME (-3008)
#define WEFT_EAI_SERVICE (-3010)
/* Neither a green thread nor attached to a runtime, and the call needs one. */
#define WEFT_ENORUNTIME (-5001)
/* The runtime is being stopped (also the cause of its root context). */
#define WEFT_ESTOPPING (-5002)
/* The kernel's own ETIMEDOUT on a socket: the peer stopped answering. Never -ETIMEDOUT, so that a
   loop which retries after its own deadline cannot spin on a dead connection. */
#define WEFT_EPEERDEAD (-5003)

WEFT_API const char *weft_strerror(int err); /* - any sig: text, never NULL, static */
WEFT_API const char *weft_errname(int err);
/* - any sig: "ETIMEDOUT", "WEFT_EOF", "EAI_NONAME"; "E?" if unknown */
WEFT_API int weft_must(int result, const char *what);
/* - any: result if >= 0, else a fatal message with `what`: for small programs */
#define WEFT_MUST(call) weft_must((call), #call)
WEFT_API const char *weft_version(void);
/* - any: "0.1.0" of the library loaded, to compare with the macros */
WEFT_API const char *weft_features(void);
/* - any: "epoll pwait2 membarrier thread-state guard-install jemalloc ..." as found */
WEFT_END
#endif
