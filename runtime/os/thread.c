/* OS threads and the few pages that belong to them. */
#include "os/os.h"

#include <errno.h>
#ifdef __has_include
#if __has_include(<linux/close_range.h>)
#include <linux/close_range.h>
#endif
#endif
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* It bears its name before this returns: named by its maker, not by itself at some later time. Without a
   name it has that of its maker from its first moment: where user code runs, which may set another. */
int weft__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    int err = pthread_create(out, &attr, fn, arg);
    pthread_attr_destroy(&attr);
    if (err == 0 && name != NULL) {
        char short_name[16]; /* what the system takes */
        snprintf(short_name, sizeof short_name, "%s", name);
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

void weft__thread_own_files(int keep) {
#if defined(SYS_close_range) && defined(CLOSE_RANGE_UNSHARE)
    unsigned first = 3, kept = keep >= 3 ? (unsigned)keep : 2;
    /* What is closed is not even copied to the new table. */
    if (kept > first && syscall(SYS_close_range, first, kept - 1, CLOSE_RANGE_UNSHARE) != 0) {
        return;
    }
    syscall(SYS_close_range, kept + 1, ~0U, CLOSE_RANGE_UNSHARE);
#else
    (void)keep;
#endif
}

char weft__thread_state(long id) {
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", id);
    /* Raw calls: the number may be one that is in use in another table, and TSan knows of one only. */
    int fd = weft__file_open_raw(path);
    if (fd < 0) {
        return 0;
    }
    long n = weft__file_read_raw(fd, text, sizeof text - 1);
    weft__file_close_raw(fd);
    if (n <= 0) {
        return 0;
    }
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* the name before it may hold anything */
    return end != NULL && end[1] == ' ' ? end[2] : 0;
}

/* By the clock's number as the system makes it of a thread's id: a thread that has ended gives an error,
   where pthread_getcpuclockid would be undefined. */
int64_t weft__thread_cpu(long id) {
    struct timespec ts;
    clockid_t clock = (clockid_t)(~(unsigned long)id << 3 | 6);
    if (clock_gettime(clock, &ts) != 0) {
        return -1;
    }
    return ts.tv_sec * WEFT_SECOND + ts.tv_nsec;
}

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
