/* weft/task.h: green threads. */
#ifndef WEFT_TASK_H
#define WEFT_TASK_H
#include <weft/runtime.h>
WEFT_BEGIN
/* A new G goes next in line on this P; the caller runs on. It starts with the default
   floating-point environment, whatever its starter's (so does the first G; weft_run gives the
   caller its own back); the environment belongs to the G. On failure nothing was started and arg is
   still the caller's. Gs are not joined: use a waitgroup, or an event from outside. */
WEFT_API WEFT_CHECK int weft_go(weft_fn fn, void *arg);
/* - G: -ENOMEM, -EAGAIN at max_gs, WEFT_ENORUNTIME, WEFT_ESTOPPING */
WEFT_API WEFT_CHECK int weft_go_copy(weft_fn fn, const void *args, size_t bytes);
/* - G: args copied onto the new stack, 16-aligned; fn gets the copy; -E2BIG over 4 KiB */
#define WEFT_GO_COPY(fn, ptr) weft_go_copy((fn), (ptr), sizeof *(ptr))

WEFT_API void weft_yield(void);
/* P any: to the tail of the local queue; sched_yield on a plain thread */
WEFT_API WEFT_NORETURN void weft_exit(int result);
/* G: end this G: runs its deferred calls, not C++ destructors */
WEFT_API weft_id weft_self(void); /* - any sig: 0 on a thread weft never saw */
WEFT_API void weft_set_name(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* - any: for dumps; 63 bytes kept */

/* A green thread may call any C for as long as it likes: a thread that blocks or computes loses its P to
   another within 1 ms or 11 ms. These two say it beforehand, and save that time. They need not pair. */
/* From the first lock to the last unlock the caller stays on its thread, and nobody else runs there: for
   what belongs to threads (graphics contexts, namespaces, masks, names). Its waits and wakes cost two
   thread switches each. Who ends while locked takes the thread along, so that nobody meets what it left
   there; the thread of weft_run then runs nothing more. Such threads do not count for max_threads. A
   green thread locked to the thread of weft_run is waited for by it, past stop_limit too. On a plain
   thread, and for an unlock too many, nothing happens */
WEFT_API void weft_lock_thread(void);   /* - any: nests */
WEFT_API void weft_unlock_thread(void); /* - any */
WEFT_API void weft_block_begin(void);   /* - any: hint: the next call blocks, hand the P off now */
WEFT_API void weft_block_end(void); /* P any: takes a P again, as any call that may park would */

WEFT_API WEFT_CHECK int weft_offload(weft_fn fn, void *arg, int *result);
/* P any ctx: runs fn here, without a P, as one of at most max_threads / 2 at a time; the others wait in
   line. For many calls that block for long: each takes a thread, and with max_threads of them in plain calls
   nobody else runs. 0, and fn's result in *result, which may be NULL; else fn was not run: -EINVAL (NULL),
   -ECANCELED while it waited. A fn that has begun is waited for: arg may be on the stack. Under
   WEFT_EXCLUSIVE others run meanwhile. On a plain thread it is a call */

/* Plain errno does not survive a park: the G may wake on another thread, and the compiler may have
   kept the address. */
WEFT_API int weft_errno(void);       /* - any: errno of the thread we are on now */
WEFT_API void weft_set_errno(int e); /* - any */

/* Deferred calls run at weft_defer_run, at the return of the G's body and in weft_exit, last first; on a
   plain thread at weft_defer_run only. They run as ordinary code of the caller and may park. The node is
   the caller's: no allocation, no failure. It must stay until it has run or was dropped: one in a frame
   is run or dropped before its function returns (WEFT_DEFER does that), but the body's own may stay. A
   node that was left behind in a frame that has gone is a fatal message as soon as it is seen. */
typedef struct weft_deferred {
    struct weft_deferred *next; /* weft's; fn is NULL once it has run or was dropped */
    weft_cb fn;
    void *arg;
} weft_deferred;
WEFT_API void weft_defer(weft_deferred *d, weft_cb fn, void *arg); /* - any: fn NULL: nothing */
WEFT_API void weft_defer_run(weft_deferred *d);
/* - any: runs it now, once; newer ones first. Parks only if one of them does. By the G that deferred it */
WEFT_API void weft_defer_drop(weft_deferred *d); /* - any: forgets it. By the G that deferred it */
#if defined(__GNUC__) && !defined(__cplusplus)
/* Go's defer, at the end of the enclosing block. A declaration and a statement: brace the body of an
   `if`. In C++ use a destructor. */
#define WEFT_DEFER(fn, arg) WEFT__DEFER(__COUNTER__, fn, arg)
#define WEFT__DEFER(id, fn, arg) WEFT__DEFER2(id, fn, arg)
#define WEFT__DEFER2(id, fn, arg)                                                                  \
    weft_deferred weft__d##id __attribute__((cleanup(weft_defer_run))) = {NULL, NULL, NULL};       \
    weft_defer(&weft__d##id, (fn), (arg))
#endif

/* Data local to a G; on a plain thread to the thread. Keys are static objects: nothing to create,
   nothing to run out of. Values are destroyed at the G's end, after its deferred calls, as ordinary code
   that may park (on a plain thread when it ends, other than by the return of main); in no order that one
   could rely on. Each value is gone (NULL) before its destructor runs, those of other keys stay until
   their turn. A destructor may set values again: they are destroyed in another round, of which there are
   4; what is set after those is forgotten. A destructor is not called for NULL, nor for a value that was
   replaced by set. */
typedef struct weft_local {
    weft_cb destroy; /* NULL: none */
    uint32_t slot;   /* weft's */
    uint32_t reserved;
} weft_local;
#define WEFT_LOCAL_INIT(destroy)                                                                   \
    { (destroy), 0, 0 }
enum { WEFT_LOCAL_ROUNDS = 4 };
WEFT_API void *weft_local_get(weft_local *key);                       /* - any: NULL if never set */
WEFT_API WEFT_CHECK int weft_local_set(weft_local *key, void *value); /* - any: -ENOMEM */
WEFT_END
#endif
