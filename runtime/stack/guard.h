/* stack/guard.h: how guards are made. Inside of this room only.

   Two ways. A *guard region* (MADV_GUARD_INSTALL, Linux 6.13) marks page-table entries and leaves
   the mapping whole, so guards are as good as free. Without it a guard is a stretch without access
   rights, which splits the mapping: two mappings a stack, out of a number the kernel limits for
   the whole process (vm.max_map_count). These are rationed, so that the host's own mmap goes on
   working when our stacks run out. */
#ifndef WEFT_STACK_GUARD_H
#define WEFT_STACK_GUARD_H

#include <stdbool.h>
#include <stddef.h>

size_t weft__page_bytes(void);
size_t weft__guard_bytes(void); /* of one guard: 64 KiB in whole pages */

/* Guard regions work here: proved by what they do, since an emulator may accept advice that it does
   not know. Asked once a process. */
bool weft__guard_works(void);
/* 0 or -errno; -EINVAL in locked memory. Only if weft__guard_works(). */
int weft__guard_install(void *at, size_t bytes);

/* Takes the mappings of one stack out of the process's ration: false if it is used up. */
bool weft__guard_ration_take(void);
void weft__guard_ration_give(size_t stacks);

/* For tests, which run on one kernel and must see both ways. Call it before the first stack. */
enum weft__guard_way { WEFT__GUARD_PROBE, WEFT__GUARD_REGION, WEFT__GUARD_PROTECT };
void weft__guard_choose(enum weft__guard_way way);

#endif
