/*
 * block.c: calls that block where the runtime cannot see it: how long does the next green thread in
 * line wait for the P? Counterparts: go/handoff.go by raw system calls, go/handoff_cgo.go by cgo.
 */
#include "handoff.h"

#include "../scratch.h"

#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, HANDED_ROUNDS = 50, FSYNC_BYTES = 64 * 1024 };
static const int64_t HOG_SLICE = 20 * 1000, HELD = 5 * 1000 * 1000, SLEPT = 20 * 1000 * 1000;

static void plain_sleep(int64_t ns) {
    struct timespec t = {.tv_nsec = ns};
    while (nanosleep(&t, &t) != 0) {
    }
}

/* ---- a plain thread that holds what the call waits for --------------------------------------- */

struct holder {
    void (*take)(void);
    void (*give)(void);
    weft_event held; /* to the green thread: you would wait now */
    sem_t go;        /* from it: I am about to */
    sem_t taken;     /* from it: I have had it and given it back */
    atomic_bool over;
    pthread_t thread;
};
static struct holder holder;

static void *hold_on(void *arg) {
    struct holder *h = arg;
    for (;;) {
        h->take();
        weft_event_set(&h->held);
        while (sem_wait(&h->go) != 0) {
        }
        if (!atomic_load(&h->over)) {
            plain_sleep(HELD);
        }
        h->give();
        if (atomic_load(&h->over)) {
            return NULL;
        }
        while (sem_wait(&h->taken) != 0) {
        }
    }
}

static void holder_begin(void (*take)(void), void (*give)(void)) {
    holder = (struct holder){.take = take, .give = give};
    sem_init(&holder.go, 0, 0);
    sem_init(&holder.taken, 0, 0);
    bench_check(pthread_create(&holder.thread, NULL, hold_on, &holder) == 0, "no thread");
}

static void holder_arm(void) {
    weft_event_wait(&holder.held);
    weft_event_reset(&holder.held);
    sem_post(&holder.go);
}

static void holder_end(void) {
    weft_event_wait(&holder.held);
    atomic_store(&holder.over, true);
    sem_post(&holder.go);
    pthread_join(holder.thread, NULL);
}

/* ---- the kinds ------------------------------------------------------------------------------- */

static void nothing(void) {}

static void call_nanosleep(void) { plain_sleep(SLEPT); }

static int ends[2];
static void pipe_give(void) {
    bench_check(atomic_load(&holder.over) || write(ends[1], "x", 1) == 1, "write to a pipe");
}
static void pipe_begin(void) {
    bench_check(pipe(ends) == 0, "no pipe");
    holder_begin(nothing, pipe_give);
}
static void call_read(void) {
    char byte;
    bench_check(read(ends[0], &byte, 1) == 1, "read of a pipe");
    sem_post(&holder.taken);
}

static int file, other_file;
static char *data;
static void open_files(void) {
    char path[SCRATCH_BYTES];
    file = scratch_named(path, 0);
    other_file = open(path, O_RDWR);
    unlink(path);
    bench_check(file >= 0 && other_file >= 0, "no temporary file");
}
static void close_files(void) {
    close(file);
    close(other_file);
}
static void fsync_begin(void) {
    open_files();
    data = calloc(1, FSYNC_BYTES);
    bench_check(data != NULL, "no memory");
}
static void fsync_arm(void) {
    memset(data, data[0] + 1, FSYNC_BYTES);
    bench_check(pwrite(file, data, FSYNC_BYTES, 0) == FSYNC_BYTES, "write to a file");
}
static void call_fsync(void) { bench_check(fsync(file) == 0, "fsync"); }
static void fsync_end(void) {
    free(data);
    close_files();
}

static void flock_take(void) { bench_check(flock(other_file, LOCK_EX) == 0, "flock"); }
static void flock_give(void) { bench_check(flock(other_file, LOCK_UN) == 0, "flock"); }
static void flock_begin(void) {
    open_files();
    holder_begin(flock_take, flock_give);
}
static void call_flock(void) {
    bench_check(flock(file, LOCK_EX) == 0 && flock(file, LOCK_UN) == 0, "flock");
    sem_post(&holder.taken);
}
static void flock_end(void) {
    holder_end();
    close_files();
}

static void call_getaddrinfo(void) {
    struct addrinfo *found = NULL;
    bench_check(getaddrinfo("localhost", "80", NULL, &found) == 0, "getaddrinfo");
    freeaddrinfo(found);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void mutex_take(void) { pthread_mutex_lock(&mutex); }
static void mutex_give(void) { pthread_mutex_unlock(&mutex); }
static void mutex_begin(void) { holder_begin(mutex_take, mutex_give); }
static void call_mutex(void) {
    mutex_take();
    mutex_give();
    sem_post(&holder.taken);
}

static const struct kind {
    void (*begin)(void);
    void (*arm)(void); /* right before the call */
    void (*call)(void);
    void (*end)(void);
    const char *unhanded; /* the row */
} kinds[BLOCK_KINDS] = {
    [NANOSLEEP] = {nothing, nothing, call_nanosleep, nothing, "UnhandedNanosleep"},
    [PIPE_READ] = {pipe_begin, holder_arm, call_read, holder_end, "UnhandedRead"},
    [FSYNC] = {fsync_begin, fsync_arm, call_fsync, fsync_end, "UnhandedFsync"},
    [FLOCK] = {flock_begin, holder_arm, call_flock, flock_end, "UnhandedFlock"},
    [GETADDRINFO] = {nothing, nothing, call_getaddrinfo, nothing, "UnhandedGetaddrinfo"},
    [MUTEX] = {mutex_begin, holder_arm, call_mutex, holder_end, "UnhandedMutex"},
};

/* ---- the measurement ------------------------------------------------------------------------- */

/* From right before the call to when the green thread behind it runs. */
static int64_t wait_of_the_next(const struct kind *k) {
    struct probe p = {0};
    k->arm();
    probe_start(&p);
    int64_t begun = bench_now();
    k->call();
    while (atomic_load(&p.ran) == 0) {
        weft_yield();
    }
    int64_t waited = atomic_load(&p.ran) - begun;
    return waited > 0 ? waited : 0;
}

/* The handoffs that it took. Nothing is marked: where each call blocks, each should be one. */
static uint64_t measure(const struct kind *k, int64_t *waited, int rounds) {
    struct hogs h;
    k->begin();
    hogs_begin(&h, bench_procs(), HOG_SLICE);
    WEFT_MUST(weft_sleep(20 * WEFT_MILLISECOND));
    weft_stats before = stats_now();
    for (int i = 0; i < rounds; i++) {
        waited[i] = wait_of_the_next(k);
        WEFT_MUST(weft_sleep(100 * WEFT_MICROSECOND));
    }
    weft_stats after = stats_now();
    hogs_end(&h);
    k->end();
    uint64_t handed = after.handoff_blocked - before.handoff_blocked;
    bench_check(after.handoff_hint == 0, "%llu hints", (unsigned long long)after.handoff_hint);
    return handed;
}

void block_measure(enum block_kind kind, const char *p50, const char *p99) {
    static int64_t waited[ROUNDS];
    measure(&kinds[kind], waited, ROUNDS);
    emit_percentiles(p50, p99, waited, ROUNDS);
}

void block_handed(void) {
    int64_t waited[HANDED_ROUNDS];
    for (int i = 0; i < BLOCK_KINDS; i++) {
        uint64_t handed = measure(&kinds[i], waited, HANDED_ROUNDS);
        double off = (double)handed - HANDED_ROUNDS;
        bench_emit(kinds[i].unhanded, off < 0 ? -off : off);
    }
}
