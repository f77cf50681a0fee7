/* stack/stack.h: memory for the stacks of green threads, the guards below them, and the report when
   one is run over.

   What this room promises:
   - a stack is reserved whole and committed by touching it; below its usable range lies a guard of
     at least 64 KiB, where every access faults;
   - a stack that was put back keeps its contents: the page at its top, where sched keeps the G, is
     neither dropped nor unmapped before weft__stacks_free, so whoever holds an old reference to
     that G reads a G;
   - a stack's address belongs to its pool until weft__stacks_free, so weft__stacks_find may be
     asked from a signal handler, without a lock.

   Locks: each pool has one, the overflow report has one for install and remove. Neither is held
   while another is taken. */
#ifndef WEFT_STACK_STACK_H
#define WEFT_STACK_STACK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct weft__stacks weft__stacks; /* the stacks of one runtime, all of one size */

typedef struct weft__stack {
    char *low;    /* lowest usable byte; the guard ends just below it */
    size_t bytes; /* usable bytes, a whole number of pages; the stack grows down from low + bytes */
} weft__stack;

/* slab.c: where stacks come from. Any thread. */

/* default_bytes is rounded up to whole pages. max_total_bytes bounds the usable bytes that will
   ever be asked of the system, 0: no bound. 0, -EINVAL for a size of 0 or beyond reason, -ENOMEM. */
int weft__stacks_new(weft__stacks **out, size_t default_bytes, size_t max_total_bytes);
/* Unmaps everything. Nobody may run on, look for or hold any of its stacks. NULL is fine. */
void weft__stacks_free(weft__stacks *s);
/* A recycled stack or, if there is none, one never used, its guard in place. -ENOMEM: no address
   space, the bound, or the budget of mappings. Calls the system. */
int weft__stacks_take(weft__stacks *s, weft__stack *out);
/* Back to the pool. Contents stay; last put is first taken. */
void weft__stacks_put(weft__stacks *s, weft__stack st);
/* Every stack that was ever handed out, in use or put back, but perhaps one that is being handed out
   for the first time. No lock is held, so fn may write to a file that is slow. */
void weft__stacks_each(weft__stacks *s, void (*fn)(weft__stack st, void *arg), void *arg);
/* Usable bytes of all stacks ever handed out. */
size_t weft__stacks_reserved(weft__stacks *s);
/* Whose stack, or guard, holds addr? Only stacks that were handed out. Signal-safe, lock-free. */
bool weft__stacks_find(weft__stacks *s, const void *addr, weft__stack *out, bool *in_guard);
/* Tells AddressSanitizer that no frame lives on this stack any more: frames that were left by
   weft_exit never took back what they marked. Nothing in other builds. */
void weft__stack_sanitize_reset(weft__stack st);

/* overflow.c: the report. Process-wide, since signal dispositions are. */

/* Installs handlers for SIGSEGV and SIGBUS at the first call and counts the others. They report a
   fault in a guard of a watched pool, then do what would have been done without them. 0 or -errno. */
int weft__overflow_install(void);
/* The last call puts the former dispositions back, unless the host has replaced ours since. */
void weft__overflow_remove(void);
/* Which pools to look through. 0 or -ENOMEM; unwatch returns when no handler looks at s any more,
   so it comes before weft__stacks_free. */
int weft__overflow_watch(weft__stacks *s);
void weft__overflow_unwatch(weft__stacks *s);
/* To be called in the child of a fork before anything else here. */
void weft__overflow_forked(void);
/* Set by sched before anything is watched: writes who runs on st, as a NUL-terminated text like
   `green thread 17 (name), started at SYMBOL`, without the size. Runs in the signal handler. */
extern void (*_Atomic weft__overflow_describe)(const weft__stack *st, char *buf, size_t n);

/* The calling thread's alternate signal stack, on which the report runs. */
typedef struct weft__sigstack {
    void *map;    /* NULL: the thread had one of its own, nothing to tear down */
    size_t bytes; /* of the mapping, guard page included */
} weft__sigstack;

/* Makes one if the thread has none. 0 or -errno. */
int weft__sigstack_setup(weft__sigstack *out);
/* By the same thread, not on that stack. */
void weft__sigstack_teardown(weft__sigstack *s);

#endif
