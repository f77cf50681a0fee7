/* The host's hooks of weft_config that are about threads and stacks. No lock is held. */
#include "sched/sched.h"

void weft__hook_thread(weft__r *r, bool starts) {
    void (*hook)(void *) = starts ? r->cfg.thread_start : r->cfg.thread_stop;
    if (hook != NULL) {
        hook(r->cfg.hook_arg);
    }
}

void weft__hook_stack(weft__r *r, const weft__stack *st, bool live) {
    if (weft__unlikely(r->cfg.stack_map != NULL)) {
        r->cfg.stack_map(r->cfg.hook_arg, st->low, st->bytes, live);
    }
}

static void goes(weft__stack st, void *r) { weft__hook_stack(r, &st, false); }

/* Before they do. */
void weft__hook_stacks_go(weft__r *r) {
    if (r->cfg.stack_map != NULL) {
        weft__stacks_each(r->stacks, goes, r);
    }
}
