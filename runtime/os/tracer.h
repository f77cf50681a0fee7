/* os/tracer.h: whether a tool runs this process in which only one thread goes on at a time. */
#ifndef WEFT_OS_TRACER_H
#define WEFT_OS_TRACER_H

#include <stdbool.h>

/* True under Valgrind and rr. What a thread seems to do says nothing there: it waits for the tool's one
   lock nearly always, so it sleeps in the system's eyes while it computes. */
extern bool weft__traced;

/* Once a process, before the first runtime. */
void weft__tracer_look(void);

#endif
