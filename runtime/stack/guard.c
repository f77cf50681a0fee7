/* stack/guard.c: proves guard regions by their effect, and rations mappings where they are missing.

   All state is process-wide and atomic; any thread may call anything here. */
#define _GNU_SOURCE 1
#include "stack/guard.h"

#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum {
    GUARD_BYTES = 64 << 10,    /* wider than what code built without stack probes skips at once */
    DEFAULT_MAP_COUNT = 65530, /* the kernel's own default, if /proc cannot be read */
    MAPS_PER_STACK = 2         /* the stack, and the guard below it */
};

static _Atomic int way;        /* enum weft__guard_way; WEFT__GUARD_PROBE: not known yet */
static _Atomic int64_t ration; /* mappings that stacks may still use; once measured */
static pthread_once_t ration_once = PTHREAD_ONCE_INIT;

size_t weft__page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

size_t weft__guard_bytes(void) {
    size_t page = weft__page_bytes();
    return page > GUARD_BYTES ? page : GUARD_BYTES;
}

/* A guard is one if the kernel itself cannot read it. The write before the install is the control:
   without it a pipe that fails for a reason of its own could pass for a guard. */
static bool unreadable_once_installed(int fd, char *page, size_t bytes) {
    *page = 1;
    if (write(fd, page, 1) != 1) return false;
    if (madvise(page, bytes, MADV_GUARD_INSTALL) != 0) return false;
    return write(fd, page, 1) == -1 && errno == EFAULT;
}

static enum weft__guard_way probe(void) {
    size_t bytes = weft__page_bytes();
    int fds[2];
    /* No descriptor, no proof: say no this time, and ask again for the next pool. */
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) return WEFT__GUARD_PROBE;
    enum weft__guard_way found = WEFT__GUARD_PROBE;
    char *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) {
        bool proved = unreadable_once_installed(fds[1], page, bytes);
        found = proved ? WEFT__GUARD_REGION : WEFT__GUARD_PROTECT;
        munmap(page, bytes);
    }
    close(fds[0]);
    close(fds[1]);
    return found;
}

bool weft__guard_works(void) {
    int known = atomic_load_explicit(&way, memory_order_relaxed);
    if (known == WEFT__GUARD_PROBE) {
        known = probe();
        /* Two threads that probe at once find the same. */
        atomic_store_explicit(&way, known, memory_order_relaxed);
    }
    return known == WEFT__GUARD_REGION;
}

int weft__guard_install(void *at, size_t bytes) {
    return madvise(at, bytes, MADV_GUARD_INSTALL) == 0 ? 0 : -errno;
}

void weft__guard_choose(enum weft__guard_way chosen) {
    atomic_store_explicit(&way, (int)chosen, memory_order_relaxed);
}

/* The number in a one-line file of /proc, or -1. */
static int64_t read_number(const char *path) {
    char text[32];
    int fd = weft__file_open(path);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    return strtoll(text, NULL, 10);
}

static int64_t count_lines(const char *path) {
    char text[4096];
    int64_t lines = 0;
    int fd = weft__file_open(path);
    if (fd < 0) return 0;
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    }
    close(fd);
    return lines;
}

/* Three quarters of what is left now. The rest is the host's, and counting it again for each stack
   would cost more than the stack. */
static void ration_measure(void) {
    int64_t limit = read_number("/proc/sys/vm/max_map_count");
    int64_t left = (limit > 0 ? limit : DEFAULT_MAP_COUNT) - count_lines("/proc/self/maps");
    int64_t ours = left > 0 ? left / 4 * 3 : 0;
    atomic_store_explicit(&ration, ours, memory_order_relaxed);
}

bool weft__guard_ration_take(void) {
    pthread_once(&ration_once, ration_measure);
    int64_t left = atomic_fetch_sub_explicit(&ration, MAPS_PER_STACK, memory_order_relaxed);
    if (left >= MAPS_PER_STACK) return true;
    weft__guard_ration_give(1);
    return false;
}

void weft__guard_ration_give(size_t stacks) {
    int64_t maps = (int64_t)stacks * MAPS_PER_STACK;
    atomic_fetch_add_explicit(&ration, maps, memory_order_relaxed);
}
