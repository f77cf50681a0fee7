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
WEFT_API WEFT_NORETURN void weft_exit(int result); /* G: end this G; not C++ destructors */
WEFT_API weft_id weft_self(void);                  /* - any sig: 0 on a thread weft never saw */
WEFT_API void weft_set_name(const char *fmt, ...) WEFT_PRINTF(1, 2);
/* - any: for dumps; 63 bytes kept */

/* A green thread may call any C for as long as it likes: a thread that blocks or computes loses its P to
   another within 1 ms or 11 ms. These two say it beforehand, and save that time. They need not pair. */
WEFT_API void weft_block_begin(void); /* - any: hint: the next call blocks, hand the P off now */
WEFT_API void weft_block_end(void);   /* P any: takes a P again, as any call that may park would */

/* Plain errno does not survive a park: the G may wake on another thread, and the compiler may have
   kept the address. */
WEFT_API int weft_errno(void);       /* - any: errno of the thread we are on now */
WEFT_API void weft_set_errno(int e); /* - any */
WEFT_END
#endif
