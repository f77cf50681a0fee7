/* field/field.h: the helpers that the field cases share. Each reads the system directly, not
   through weft, so that a fault in weft cannot hide itself. */
#ifndef WEFT_FIELD_H
#define WEFT_FIELD_H
#include "test.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <weft.h>

/* There a green thread costs a fiber of the sanitizer's: 0.2 ms, and at most 8128 at a time. */
#define UNDER_TSAN 0
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef UNDER_TSAN
#define UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#undef UNDER_TSAN
#define UNDER_TSAN 1
#endif

#define UNDER_ASAN 0
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#undef UNDER_ASAN
#define UNDER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#undef UNDER_ASAN
#define UNDER_ASAN 1
#endif

#define US WEFT_MICROSECOND
#define MS WEFT_MILLISECOND
#define SEC WEFT_SECOND
#define HELPER static inline __attribute__((unused))

HELPER int64_t clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * SEC + t.tv_nsec;
}

HELPER int64_t now(void) { return clock_ns(CLOCK_MONOTONIC); }

/* User and system time of the whole process. */
HELPER int64_t cpu(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

/* Computes for so long without any call of weft. */
HELPER void busy(int64_t ns) {
    int64_t end = now() + ns;
    while (now() < end) {
    }
}

/* A plain thread's wait; green threads use weft_sleep. */
HELPER void thread_sleep(int64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / SEC), .tv_nsec = (long)(ns % SEC)};
    while (nanosleep(&t, &t) != 0) {
    }
}

HELPER int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

HELPER int nthr(void) { return entries("/proc/self/task"); }
HELPER int nfd(void) { return entries("/proc/self/fd") - 1; /* the one it is read by */ }

/* The number behind a word in a file of /proc, -1 if there is no such line. */
HELPER long long proc_value(const char *path, const char *word) {
    char line[256];
    long long value = -1;
    FILE *in = fopen(path, "re");
    if (!in) {
        return -1; /* a thread that has just ended */
    }
    while (value < 0 && fgets(line, sizeof line, in)) {
        if (strncmp(line, word, strlen(word)) == 0) {
            value = strtoll(line + strlen(word), NULL, 10);
        }
    }
    fclose(in);
    return value;
}

/* As the host set them: the kernel adds a flag for the return from a handler when one was put back. */
HELPER bool same_disposition(const struct sigaction *a, const struct sigaction *b) {
    const int sa_restorer = 0x04000000;
    return a->sa_handler == b->sa_handler &&
           (a->sa_flags & ~sa_restorer) == (b->sa_flags & ~sa_restorer);
}

static long strangers[8]; /* threads of a sanitizer, not of ours */

/* The threads that are there by now, but for the first, are not counted by switches(). */
HELPER void note_strangers(void) {
    size_t n = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        long tid = strtol(e->d_name, NULL, 10);
        if (tid > 0 && tid != getpid()) {
            CHECK_LT(n, WEFT_COUNT(strangers));
            strangers[n++] = tid;
        }
    }
    closedir(d);
}

HELPER bool is_counted(long tid) {
    for (size_t i = 0; i < WEFT_COUNT(strangers); i++) {
        if (strangers[i] == tid) {
            return false;
        }
    }
    return tid > 0;
}

/* Voluntary context switches of all threads together. */
HELPER long long switches(void) {
    char path[64];
    long long sum = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        long tid = strtol(e->d_name, NULL, 10);
        if (is_counted(tid)) {
            snprintf(path, sizeof path, "/proc/self/task/%ld/status", tid);
            long long n = proc_value(path, "voluntary_ctxt_switches:");
            sum += n > 0 ? n : 0;
        }
    }
    closedir(d);
    return sum;
}

HELPER weft_config config_of(int procs) {
    weft_config cfg = weft_config_default();
    cfg.procs = procs;
    return cfg;
}

/* Runs app as the first green thread of a runtime of so many Ps. */
HELPER void run_at(int procs, weft_fn app, void *arg) {
    weft_config cfg = config_of(procs);
    int status = -1;
    CHECK_EQ(weft_run(app, arg, &cfg, &status), 0);
    CHECK_EQ(status, 0);
}

/* Where a test counts on one at a time: a P's thread is not passed over for another. */
HELPER void run_exclusive(weft_fn app, void *arg) {
    weft_config cfg = config_of(1);
    int status = -1;
    cfg.flags = WEFT_EXCLUSIVE;
    CHECK_EQ(weft_run(app, arg, &cfg, &status), 0);
    CHECK_EQ(status, 0);
}

HELPER int compare_ns(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
HELPER int64_t median(int64_t *v, size_t n) {
    qsort(v, n, sizeof *v, compare_ns);
    return v[n / 2];
}

HELPER int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
HELPER int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* True for a bound in real time that this build and machine are given more of. */
HELPER bool within(int64_t ns, int64_t bound) { return (double)ns <= (double)bound * test_slack(); }
#endif
