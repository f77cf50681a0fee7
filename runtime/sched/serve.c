/*
 * A thread that serves as an M must not end under its G: the P would be lost with it, and with weft_run
 * all that waits. pthread_exit and pthread_cancel end it by unwinding; whatever stack they begin on, they
 * come to the thread's own clean-up handlers next, before anything of the thread is taken down.
 */
#include "sched/sched.h"

WEFT__COLD static void thread_ends(void *arg) {
    weft__m *m = arg;
#ifdef WEFT__ASAN
    weft__stack_sanitize_reset((weft__stack){(char *)(uintptr_t)m->g0.asan_low, m->g0.asan_bytes});
#endif
    if (m->g != NULL) {
        weft__fatal(
            "pthread_exit in a green thread, or its thread was cancelled: a green thread ends "
            "by return or weft_exit");
    }
    weft__fatal("a thread of weft was cancelled");
}

#ifdef WEFT__ASAN
__attribute__((no_sanitize_address)) /* the frames jumped over still look alive to it */
#endif
void weft__serve(weft__m *m) {
    pthread_cleanup_push(thread_ends, m);
    weft__schedule(m);
    pthread_cleanup_pop(0);
}
