/* weft/runtime.h: start, stop, embed. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H
#include <weft/base.h>
WEFT_BEGIN
typedef struct weft_runtime weft_runtime;

/* Memory hooks are for the process, since channels outlive and cross runtimes. Never called on a hot path
   nor in a signal handler, but perhaps with a lock of weft held: they must not call weft, nor wait for
   anybody who does. Stacks and guards are address space and do not pass here, nor does what the C library
   allocates for itself. `align` is a power of two of at least 16; NULL: no memory; free is given the
   sizes that alloc was. */
typedef struct weft_allocator {
    size_t size; /* sizeof(weft_allocator) */
    void *(*alloc)(void *ctx, size_t bytes, size_t align);
    void (*free)(void *ctx, void *ptr, size_t bytes, size_t align);
    void *ctx;
} weft_allocator;
WEFT_API int weft_set_allocator(const weft_allocator *a);
/* - any: once, before any other call; -EBUSY after; -EINVAL if either is missing */

enum weft_log_level { WEFT_LOG_ERROR, WEFT_LOG_WARNING, WEFT_LOG_INFO, WEFT_LOG_DEBUG };
enum weft_config_flags {
    /* WEFT_PROCS, WEFT_STACK and WEFT_DEBUG are not read (never read in set-id programs) */
    WEFT_IGNORE_ENV = 1 << 1,
    /* may install SIGSEGV and SIGBUS handlers: a stack overflow is reported in one line (G, name or
       start, size), then the host's handler is called if it had one, then the signal has its
       default effect. weft_main sets it */
    WEFT_CATCH_OVERFLOW = 1 << 2,
    /* a dead program aborts after its report instead of returning -EDEADLK. The report begins
       "weft: deadlock" and goes through log, then the dump to stderr */
    WEFT_STUCK_FATAL = 1 << 3,
    /* never report (default with weft_start: the host can always wake somebody) */
    WEFT_STUCK_IGNORE = 1 << 4,
    /* no handoff: with procs = 1 exactly one G runs at a time, which is then mutual exclusion (without
       this flag it is not: a G that computes or blocks for long runs beside the others). A G that
       blocks then blocks its P */
    WEFT_EXCLUSIVE = 1 << 5
};

/* Zero is the default of every field, and what those called reserved must be (-EINVAL). Get one from
   weft_config_default(), which stores the caller's own sizeof. */
typedef struct weft_config {
    size_t size;
    const char *name; /* in dumps and thread names; default "weft" */
    unsigned flags;   /* enum weft_config_flags */
    /* Ps; 0: WEFT_PROCS, else allowed CPUs and cgroup quota, followed about once a second while there
       is work */
    int procs;
    /* threads that run green threads, those inside blocked calls too; 0: 512. At the bound Gs wait.
       Two more are weft's own. -EINVAL if less than procs + 1 */
    int max_threads;
    size_t max_gs; /* 0: bounded by memory. At the bound spawn says -EAGAIN */
    /* 0: WEFT_STACK, else 256 KiB; rounded up to pages; a guard of 64 KiB lies below, not
       counted */
    size_t stack_size;
    size_t max_stack_bytes; /* 0: no bound. At the bound spawn says -ENOMEM */
    /* weft_run: what main leaves behind gets this long; 0: 5 s; negative: no limit */
    weft_duration stop_limit;
    void *reserved0[2];
    void *hook_arg; /* first argument of the hooks below */
    /* default: stderr. Any thread; may not call weft */
    void (*log)(void *hook_arg, int level, const char *line);
    /* before abort(); perhaps on a signal stack: only async-signal-safe calls */
    void (*fatal)(void *hook_arg, const char *text);
    /* On each new OS thread that will run green threads, before its first, and at its end (attach to a
       virtual machine, affinity). A plain thread there: it may call weft, and wait. Not on the thread of
       weft_run, which is the caller's */
    void (*thread_start)(void *hook_arg);
    void (*thread_stop)(void *hook_arg);
    void *reserved1;
    /* For collectors: a stack comes (live 1), goes (0): its usable bytes, without the guard. It comes once,
       before its first green thread, serves one after another, and goes when the runtime ends. Any thread;
       may not call weft */
    void (*stack_map)(void *hook_arg, void *low, size_t bytes, int live);
    void *reserved[8];
} weft_config;
WEFT_INLINE weft_config weft_config_default(void) {
    weft_config c = WEFT_ZERO;
    c.size = sizeof c;
    return c;
}

/* Whole programs. */
WEFT_API int weft_main(int argc, char **argv, int (*app)(int argc, char **argv));
/* out: runs app as the first G with defaults; returns what main() should: app's result 0..255; 255
   and a line on stderr if the runtime failed or died stuck */
WEFT_API WEFT_CHECK int weft_run(weft_fn app, void *arg, const weft_config *cfg, int *status);
/* out: 0 and app's result in *status; else why not: -EINVAL -ENOMEM ..., -EDEADLK stuck (also for a
   call from a G), -ETIMEDOUT if Gs outlived stop_limit: they are reported, each of their waits ends
   at once, and when the last has ended the runtime is freed (hook_arg must live till then). One that
   sits in a plain call on this very thread has to be waited for. app begins on the calling thread, which keeps its signal mask: Ctrl-C goes on working. When app returns the
   rest is cancelled; after weft_exit in app the rest runs to its end. cfg and status may be NULL */

/* Embedding. rt == NULL means the runtime of the calling G or attached thread. */
WEFT_API WEFT_CHECK int weft_start(weft_runtime **out, const weft_config *cfg);
/* - any: on return it accepts work */
WEFT_API WEFT_CHECK int weft_stop(weft_runtime *rt, weft_duration limit);
/* P out: cancels what may be cancelled, waits for the Gs, frees everything, rt too: 0. A negative
   limit: no limit. -ETIMEDOUT: nothing freed, report logged, may be called again, by one thread at a time. -EDEADLK
   from a G of rt. Gs in plain weft_mutex_lock and the like end when their holder does */
WEFT_API int weft_request_stop(weft_runtime *rt);
/* - any: the first half of weft_stop, and from a G too: spawns are refused, what may be cancelled is,
   the caller's own waits as well. 0, also the second time; WEFT_ENORUNTIME. weft_run then returns as
   soon as app does; a runtime of weft_start still wants its weft_stop, which waits and frees */
WEFT_API WEFT_CHECK int weft_submit(weft_runtime *rt, weft_fn fn, void *arg);
/* - any: start a G from any thread; -ENOMEM -EAGAIN WEFT_ESTOPPING */
WEFT_API WEFT_CHECK int weft_call(weft_runtime *rt, weft_fn fn, void *arg, weft_time until,
                                  int *result);
/* P any: runs fn as a G of rt and waits for it: 0, and its result in *result, which may be NULL; else
   fn was not run: -EINVAL -ENOMEM -EAGAIN WEFT_ESTOPPING WEFT_ENORUNTIME. From plain threads, and from Gs of any runtime.
   From `until` on, or once rt is being stopped, each wait of fn that has tag ctx says -ECANCELED; the
   call returns only after fn has, so arg may live on the caller's stack. Not ended by what ends the
   caller's own waits */
WEFT_API weft_runtime *weft_current(void);
/* - any: borrowed; that of the calling G, else what the thread is attached to; NULL on a foreign thread */
WEFT_API WEFT_CHECK int weft_attach(weft_runtime *rt);
/* - any: this plain thread has rt from here on: it may make timers, conns, listeners and Gs of it. It
   stays a plain thread, and no hold: once rt has been stopped it has none, and such calls say
   WEFT_ENORUNTIME. Nests, with other runtimes too: the innermost counts. NULL: the one it has, once
   more. -ENOMEM, WEFT_ESTOPPING, WEFT_ENORUNTIME. From a G of rt 0 and nothing changes, nor does it at
   weft_detach: what may be called from everywhere need not ask. From a G of another runtime -EBUSY */
WEFT_API void
weft_detach(void); /* - any: also done at thread exit. Without an attach nothing happens */

WEFT_API int weft_debug(weft_runtime *rt, const char *directives);
/* - any: as WEFT_DEBUG, at any time: words with commas between them. The lines go to the log hook, or to
   stderr, from a thread of weft's own. -EINVAL and nothing has changed if one is not understood;
   WEFT_ENORUNTIME.
     schedtrace=MS  a line about the scheduler every MS milliseconds (WEFT_LOG_INFO); 0: off
     scheddetail    with it a line for each P, and for each thread without one: whom it runs, since
                    when (up to 10 ms); =0: off
     watchdog=MS    who has kept a thread for longer without a wait, from when it is switched on:
                    blocked, or computing by CPU time; a line a stay (WEFT_LOG_WARNING), up to 10 ms
                    late, of a blocked one up to 30; 0: off */

/* Whom weft cannot see: a thread or a handler outside that may still wake a G of rt. While there is one
   the program is not taken for dead, and a stop waits for the end within its limit: so the one who
   wakes may well be the one who says that he is done. Counted. */
WEFT_API void weft_external_begin(weft_runtime *rt); /* - any */
WEFT_API void weft_external_end(weft_runtime *rt);
/* - any: the last one has a deadlock looked for at once */

/* A function that may be started from a signal handler, as a G of rt. It runs in one G at a time; fires
   that come meanwhile start it once more when that has ended. While a trigger lives its runtime is not
   taken for dead. It outlives a stop of its runtime, and does nothing any more. */
typedef struct weft_trigger weft_trigger;
WEFT_API WEFT_CHECK int weft_trigger_new(weft_trigger **out, weft_runtime *rt, weft_fn fn,
                                         void *arg);
/* - any: -EINVAL -ENOMEM WEFT_ESTOPPING WEFT_ENORUNTIME */
WEFT_API void weft_trigger_fire(weft_trigger *t);
/* - any sig: fn is started once for any number of fires not yet seen; what comes when a stop has begun is
   dropped. While there is no room for another G (max_gs, memory) the start is put off. errno is kept */
WEFT_API void weft_trigger_free(weft_trigger *t);
/* P any: waits for a running fn, unless called by it; what was fired and not begun is dropped. Not in a
   handler. A fire by a handler that was still running is dropped too, or taken for one of a trigger
   that has been made since. NULL is fine */
WEFT_API int weft_procs(weft_runtime *rt); /* - any: how many Ps; WEFT_ENORUNTIME */
WEFT_API int weft_set_procs(weft_runtime *rt, int n);
/* P any: n Ps from here on; 0: the default again, as in weft_config. 0, also if nothing changes. On return no P that goes runs
   a green thread: who computes or blocks there keeps its thread and loses the P, as ever. What was queued
   runs on the others; timers and sockets do not notice. -EINVAL (negative, over 1024, or not below
   max_threads), -ENOMEM and nothing has changed, WEFT_ENORUNTIME. With WEFT_EXCLUSIVE, where no P is
   taken from anybody, it waits until the green threads on those Ps wait or yield */
WEFT_END
#endif
