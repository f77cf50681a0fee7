/* OS threads and the few pages that belong to them. */
#include "os/os.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* It bears its name before this returns: named by its maker, not by itself at some later time. */
int weft__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg) {
    char short_name[16]; /* what the system takes */
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    int err = pthread_create(out, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    if (err == 0) {
        pthread_setname_np(*out, short_name);
    }
    return -err;
}

void weft__thread_exact_timers(void) { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

void weft__thread_nap(int64_t ns) {
    struct timespec ts = {.tv_sec = (time_t)(ns / WEFT_SECOND),
                          .tv_nsec = (long)(ns % WEFT_SECOND)};
    nanosleep(&ts, NULL);
}

long weft__thread_id(void) { return syscall(SYS_gettid); }

void *weft__pages_map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
#ifdef MADV_WIPEONFORK
    madvise(p, bytes, MADV_WIPEONFORK);
#endif
    return p;
}

void weft__pages_unmap(void *p, size_t bytes) { munmap(p, bytes); }
