/* os/cpu.h: how many Ps suit this process, and whether its environment may be believed. */
#ifndef WEFT_OS_CPU_H
#define WEFT_OS_CPU_H

#include <stdbool.h>

/* The lesser of the CPUs that the calling thread may run on and, rounded up, the CPU time that its
   control groups leave it; at least 1. Every file is looked up below `root`: "" but in tests. Nothing
   that a file holds makes it fail. */
int weft__cpu_default_procs(const char *root);

/* The two parts. The quota is INT_MAX where there is none. */
int weft__cpu_allowed(void);
int weft__cpu_quota(const char *root);

/* False in a program that runs with rights its caller does not have (set-user-id and the like): its
   environment is the caller's. */
bool weft__cpu_env_allowed(void);

#endif
