/* What this build and this machine offer, in one line for people and bug reports. */
#include "os/tracer.h"
#include "sched/sched.h"
#include "stack/guard.h"

#include <stdio.h>
#include <string.h>

static char text[160];

static void add(const char *word) {
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? " " : "", word);
}

/* By what a thread is known to be blocked: its state, its clock, or nothing. */
static const char *blocked_rule(void) {
    if (weft__traced) {
        return "traced";
    }
    return weft__thread_state(weft__thread_id()) != 0 ? "thread-state" : "thread-clock";
}

static void look(void) {
    add(weft__poller_name());
    add(weft__guard_works() ? "guard-install" : "guard-mprotect");
    add(weft__fence_asymmetric ? "membarrier" : "full-fences");
    add(blocked_rule());
#if defined(WEFT__SWITCH_UCONTEXT_H)
    add("ucontext");
#else
    add("asm-switch");
#endif
#ifdef WEFT_TARGET_PLAN9
    add("target-plan9");
#endif
#ifdef WEFT__ASAN
    add("asan");
#endif
#ifdef WEFT__TSAN
    add("tsan");
#endif
#ifdef WEFT_DEBUG_CHECKS
    add("debug-checks");
#endif
}

WEFT_API const char *weft_features(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    weft__process_init();
    pthread_once(&once, look);
    return text;
}
