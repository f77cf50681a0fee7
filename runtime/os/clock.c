/* Clocks. Monotonic time is the runtime's only base; the wall clock is for people. */
#include "os/os.h"

#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * WEFT_SECOND + ts.tv_nsec;
}

int64_t weft__clock_now(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t weft__clock_wall(void) { return read_clock(CLOCK_REALTIME); }
