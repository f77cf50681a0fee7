/* weft/inspect.h: see what goes on. */
#ifndef WEFT_INSPECT_H
#define WEFT_INSPECT_H
#include <weft/runtime.h>
WEFT_BEGIN
WEFT_API int weft_dump(weft_runtime *rt, int fd);
/* - any: every G and P, and how many threads; rt NULL: the caller's runtime. Blocking writes; 0 or the write's error;
   WEFT_ENORUNTIME */

/* Bucket 0: 0 and 1 ns; bucket i: values of 2^i..2^(i+1)-1 ns; the last one: all longer. Sum and
   max in ns. */
typedef struct weft_hist {
    uint64_t count, sum, max;
    uint64_t bucket[48];
} weft_hist;
/* Grows only at its end. Counts since the start unless said; read without stopping anybody, so
   figures of one moment may be a little apart. */
typedef struct weft_stats {
    uint64_t gs_running, gs_runnable, gs_waiting; /* now */
    uint64_t gs_created, gs_ended;
    uint64_t threads, threads_idle; /* now */
    uint64_t threads_created;
    uint64_t timers_pending; /* now */
    uint64_t timers_fired;
    uint64_t conns_open;                       /* now: conns and listeners */
    uint64_t steals;                           /* Gs moved to another P by stealing */
    uint64_t injections;                       /* Gs readied or started from outside a P */
    uint64_t migrations;                       /* Gs that went on on another thread than before */
    uint64_t wake_work, wake_timer, wake_poll; /* sleeping threads woken, by cause */
    uint64_t polls;                            /* looks at the poller */
    uint64_t stack_bytes_reserved; /* now: address space of stacks, guards not counted */
    weft_hist timer_late;          /* from a timer's time to its firing */
    /* Ps taken from a thread that slept in user code, that computed for long, or given up by
       weft_block_begin; and those of the first two whose G was back within 20 us. */
    uint64_t handoff_blocked, handoff_computing, handoff_hint, handoff_false;
    uint64_t gs_blocked;                      /* now: on a thread without a P; not in gs_running */
    uint64_t offload_queued, offload_running; /* now: weft_offload */
    uint64_t wake_sysmon; /* threads woken or made for a P that was taken from another */
    /* From being runnable to running, of a sample of those that had to wait: per P about one in 64 picks
       of those put in its queue, or left to others while who woke them runs on; and one in 32 of those
       from outside. Of who runs as soon as his waker waits, as most do who are woken, there is none; who
       was next in line for a while counts from when he was displaced; what the poller brings while no P
       is free is not sampled. */
    weft_hist queue_wait;
    /* Of handoff_computing, those that had another cause: a timer was late and no P idle; or the P had
       been asked back, and a call that never parks gave it up. */
    uint64_t handoff_late, handoff_gave_up;
} weft_stats;
WEFT_API int weft_stats_read(weft_runtime *rt, weft_stats *out, size_t bytes);
/* - any: fills the first `bytes` = sizeof(weft_stats) of the caller's build */
WEFT_API int weft_proc_self(void);
/* - any: the index of the P that the caller runs on, 0..procs-1; -1 on a plain thread. May be old
   as soon as it is returned: for counters and pictures, not for decisions */
WEFT_END
#endif
