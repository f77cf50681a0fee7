/*
 * Asymmetric fences by membarrier(2). Registration is free in a process with one thread and costs a
 * grace period (10 ms) in one with more; it is done once, at the start of the first runtime.
 */
#include "os/os.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool weft__fence_asymmetric;

void weft__fence_init(void) {
#ifndef WEFT__TSAN
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {
        weft__fence_asymmetric = true;
    }
#endif
}

void weft__fence_heavy(void) {
    weft__fence_full();
#ifndef WEFT_CANARY_NO_HEAVY_FENCE
    if (weft__fence_asymmetric) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
#endif
}
