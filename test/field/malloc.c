/* field/malloc.c: a thread that holds the allocator's lock stops nobody who does not allocate.
   The allocator's lock is one of ours, around the C library's functions: this program's own malloc
   goes before the library's. Not under a sanitizer, which has a malloc of its own. */
#include "field/field.h"

#include <errno.h>
#include <pthread.h>

#if defined(__GLIBC__) && !UNDER_ASAN && !UNDER_TSAN
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *p);

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool
    wrapped; /* while the test runs: the runner's own forks know nothing of this lock */

static bool heap_enter(void) {
    bool locked = atomic_load(&wrapped);
    if (locked) {
        pthread_mutex_lock(&heap_lock);
    }
    return locked;
}

static void heap_leave(bool locked) {
    if (locked) {
        pthread_mutex_unlock(&heap_lock);
    }
}

#define LOCKED(type, call)                                                                         \
    bool locked = heap_enter();                                                                    \
    type result = (call);                                                                          \
    heap_leave(locked);                                                                            \
    return result

void *malloc(size_t bytes) { LOCKED(void *, __libc_malloc(bytes)); }
void *calloc(size_t n, size_t bytes) { LOCKED(void *, __libc_calloc(n, bytes)); }
void *realloc(void *p, size_t bytes) { LOCKED(void *, __libc_realloc(p, bytes)); }
void *aligned_alloc(size_t align, size_t bytes) { LOCKED(void *, __libc_memalign(align, bytes)); }
int posix_memalign(void **out, size_t align, size_t bytes) {
    void *p = aligned_alloc(align, bytes);
    if (p) {
        *out = p;
    }
    return p ? 0 : ENOMEM;
}
void free(void *p) {
    int kept = errno;
    bool locked = heap_enter();
    __libc_free(p);
    heap_leave(locked);
    errno = kept;
}

enum { ROUNDS = 20, ALLOCATORS = 4 };
static const int64_t HELD = 50 * MS, STALLED = 2 * SEC;

static struct {
    weft_chan *ping, *pong;
    atomic_bool held, stop;
    atomic_long exchanges;
    atomic_int stuck; /* allocators that wait for the lock, as far as they know */
    weft_event round, done;
    weft_waitgroup all;
    pthread_barrier_t met;
} heap;

/* Who will allocate, and one for each P besides, meet first, each blocking its thread, so that there are
   threads enough: to make one is to allocate, in any C library, and with the lock held nobody could. */
static int only_meet(void *arg) {
    (void)arg;
    pthread_barrier_wait(&heap.met);
    return 0;
}

static int allocate_on(void *arg) {
    only_meet(arg);
    while (!atomic_load(&heap.stop)) {
        atomic_fetch_add(&heap.stuck, 1);
        void *volatile p = malloc(100); /* plain C of some library: waits for as long as it takes */
        atomic_fetch_sub(&heap.stuck, 1);
        free(p);
        CHECK_EQ(weft_sleep(MS), 0);
    }
    return 0;
}

static int serve(void *arg) {
    (void)arg;
    int v;
    while (weft_chan_recv(heap.ping, &v) == 0) {
        CHECK_EQ(weft_chan_send(heap.pong, &v), 0);
    }
    return 0;
}

static int talk(void *arg) {
    (void)arg;
    for (int v = 0; !atomic_load(&heap.stop); v++) {
        int back;
        CHECK_EQ(weft_chan_send(heap.ping, &v), 0);
        CHECK_EQ(weft_chan_recv(heap.pong, &back), 0);
        CHECK_EQ(back, v);
        atomic_fetch_add(&heap.exchanges, 1);
        CHECK_EQ(weft_sleep(100 * US), 0);
    }
    weft_chan_close(heap.ping);
    return 0;
}

static int scene(void *arg) {
    (void)arg;
    for (int i = 0; i < weft_procs(NULL); i++) {
        WEFT_MUST(weft_waitgroup_go(&heap.all, only_meet, NULL));
    }
    for (int i = 0; i < ALLOCATORS; i++) {
        WEFT_MUST(weft_waitgroup_go(&heap.all, allocate_on, NULL));
    }
    WEFT_MUST(weft_waitgroup_go(&heap.all, serve, NULL));
    WEFT_MUST(weft_waitgroup_go(&heap.all, talk, NULL));
    weft_waitgroup_wait(&heap.all);
    weft_event_set(&heap.done);
    return 0;
}

/* Holds the lock for the time that the case names, or until the two who talk have gone on while all who
   allocate wait for it: 2 s without that, and it is the lock that stops them. */
static int64_t hold_once(void) {
    int64_t start = now();
    pthread_mutex_lock(&heap_lock);
    while (atomic_load(&heap.stuck) < ALLOCATORS && now() - start < STALLED) {
        thread_sleep(US * 100);
    }
    long before = atomic_load(&heap.exchanges);
    int64_t all_stuck = now(), first = 0;
    while (now() - start < HELD || (first == 0 && now() - all_stuck < STALLED)) {
        if (first == 0 && atomic_load(&heap.exchanges) > before + 1) {
            first = now();
        }
        thread_sleep(US * 100);
    }
    pthread_mutex_unlock(&heap_lock);
    CHECK_GT(first, 0);
    return first - all_stuck;
}

static void held_at(int procs) {
    weft_config cfg = config_of(procs);
    weft_runtime *rt;
    static int64_t took[ROUNDS];
    atomic_store(&heap.stop, false);
    weft_event_reset(&heap.done);
    CHECK_EQ(weft_chan_new(&heap.ping, sizeof(int), 0), 0);
    CHECK_EQ(weft_chan_new(&heap.pong, sizeof(int), 0), 0);
    CHECK_EQ(pthread_barrier_init(&heap.met, NULL, (unsigned)(ALLOCATORS + procs + 1)), 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, scene, NULL), 0);
    pthread_barrier_wait(&heap.met);
    for (int i = 0; i < ROUNDS; i++) {
        thread_sleep(5 * MS);
        took[i] = hold_once();
    }
    atomic_store(&heap.stop, true);
    weft_event_wait(&heap.done);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    weft_chan_unref(heap.ping);
    weft_chan_unref(heap.pong);
    int64_t mid = median(took, ROUNDS);
    test_clock(within(mid, 5 * MS),
               "P=%d: two exchanges while malloc's lock is held took %.2f ms"
               " (median), bound 5",
               procs, (double)mid / MS);
}

TEST_IN(field, allocator_lock_held, 60) {
    atomic_store(&wrapped, true);
    held_at(1);
    held_at(2);
    atomic_store(&wrapped, false);
}
#else
TEST(field, allocator_lock_held) { test_skip("the malloc here is not ours to wrap"); }
#endif
