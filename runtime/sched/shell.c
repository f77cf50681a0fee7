/*
 * What is left of a runtime when weft_run has given up waiting for it: a shell.
 *
 * A G in a plain call that does not return cannot be ended. Its thread, its stack and the runtime stay
 * until it comes back; from then on each wait of it ends at once, it returns, and somebody has to free
 * the runtime: its handle is nobody's any more. That is the shell's own thread, made when weft_run gives
 * up. It sleeps until the last G has ended; the passes of the stop are the maker's (outside.c). If no
 * thread can be made, all of it stays for good, and that is said.
 *
 * A runtime of weft_start needs none: weft_stop may be called again.
 */
#include "sched/sched.h"

static void *shell_body(void *arg) {
    weft__r *r = arg;
    while (!atomic_load(&r->dead) && !(weft__no_g_left(r) && atomic_load(&r->externals) == 0)) {
        weft__note_sleep(&r->drained);
        weft__note_clear(&r->drained);
        weft__fence_full(); /* cleared before the books are read */
    }
    weft__teardown(r);
    return NULL;
}

void weft__shell_leave(weft__r *r) {
    weft__note_wake(&r->maker_note); /* it goes on with the stop */
    pthread_t thread;
    int err = weft__thread_start(&thread, r->name, shell_body, r);
    if (err != 0) {
        weft__log(r, WEFT_LOG_ERROR, "no thread could be made to free what is left later (%s)",
                  weft_strerror(err));
        return;
    }
    pthread_detach(thread);
}
