/*
 * Tools that run the threads of a process one at a time. Both are known by the environment that they give
 * it: Valgrind loads a part of its own before all others, rr says its name. A child that is not run by the
 * tool any more has neither: Valgrind takes its part out of what a program executes.
 */
#include "os/tracer.h"

#include "os/cpu.h"

#include <stdlib.h>
#include <string.h>

bool weft__traced;

static bool under_valgrind(void) {
    const char *loaded = getenv("LD_PRELOAD");
    return loaded != NULL && strstr(loaded, "/vgpreload_") != NULL;
}

static bool under_rr(void) {
    const char *word = getenv("RUNNING_UNDER_RR");
    return word != NULL && strcmp(word, "1") == 0;
}

void weft__tracer_look(void) {
    weft__traced = weft__cpu_env_allowed() && (under_valgrind() || under_rr());
}
