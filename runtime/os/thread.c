/* OS threads and the few pages that belong to them. */
#include "os/os.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct starter {
    void *(*fn)(void *);
    void *arg;
    char name[16];
};

static void *thread_body(void *p) {
    struct starter s = *(struct starter *)p;
    weft__mem_free(p, sizeof s);
    prctl(PR_SET_NAME, s.name, 0, 0, 0);
    return s.fn(s.arg);
}

int weft__thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg) {
    struct starter *s = weft__mem_alloc(sizeof *s);
    if (s == NULL) {
        return -ENOMEM;
    }
    s->fn = fn;
    s->arg = arg;
    size_t n = 0;
    for (; name[n] != '\0' && n < sizeof s->name - 1; n++) {
        s->name[n] = name[n];
    }
    s->name[n] = '\0';
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    int err = pthread_create(out, &attr, thread_body, s);
    pthread_attr_destroy(&attr);
    if (err != 0) {
        weft__mem_free(s, sizeof *s);
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
