/* unit/hooks.c: what a host is told of threads and stacks, and its own allocator. */
#include "world.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- threads ---- */

static struct {
    atomic_int started, stopped, inside, wrong;
    int tag;
} threads;
static __thread bool attached;
static weft_local of_thread;

static void thread_starts(void *arg) {
    if (arg != &threads || attached || weft_current() != NULL) {
        atomic_fetch_add(&threads.wrong, 1);
    }
    attached = true;
    atomic_fetch_add(&threads.started, 1);
    CHECK_EQ(weft_local_set(&of_thread, &threads.tag), 0); /* it may call weft, as a plain thread */
}

static void thread_stops(void *arg) {
    if (arg != &threads || !attached || weft_current() != NULL ||
        weft_local_get(&of_thread) != &threads.tag) {
        atomic_fetch_add(&threads.wrong, 1);
    }
    attached = false;
    atomic_fetch_add(&threads.stopped, 1);
}

static void thread_local_goes(void *value) {
    CHECK(value == &threads.tag);
    atomic_fetch_add(&threads.inside, 1);
}
static weft_local of_thread = WEFT_LOCAL_INIT(thread_local_goes);

static pthread_t thread_of_run;

/* Of the thread we are on now: the compiler may keep what a thread is called over a wait, if it sees it. */
static WEFT__NOINLINE bool is_attached(void) {
    __asm__ volatile("" ::: "memory");
    return attached || pthread_equal(pthread_self(), thread_of_run);
}

static int looks(void *arg) {
    for (int i = 0; i < 20; i++) {
        if (!is_attached()) {
            atomic_fetch_add(&threads.wrong, 1);
        }
        if (weft_local_get(&of_thread) != NULL) { /* the thread's, not the green thread's */
            atomic_fetch_add(&threads.wrong, 1);
        }
        nap();
        weft_yield();
    }
    weft_waitgroup_done(arg);
    return 0;
}

static int many_look(void *arg) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, 40);
    for (int i = 0; i < 40; i++) {
        CHECK_EQ(weft_go(looks, &wg), 0);
    }
    weft_waitgroup_wait(&wg);
    if (arg != NULL) {
        weft_event_set(arg);
    }
    return 0;
}

static weft_config with_thread_hooks(int procs) {
    weft_config c = config_of(procs);
    memset(&threads, 0, sizeof threads);
    c.hook_arg = &threads;
    c.thread_start = thread_starts;
    c.thread_stop = thread_stops;
    return c;
}

TEST(hooks, threads_of_start) {
    for (int i = 0; i < 20; i++) {
        weft_config c = with_thread_hooks(1 + i % 4);
        weft_runtime *rt;
        weft_event seen = WEFT_EVENT_INIT;
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_submit(rt, many_look, &seen), 0);
        weft_event_wait(&seen);
        CHECK_EQ(weft_stop(rt, -1), 0);
        CHECK_GE(atomic_load(&threads.started), 1);
        CHECK_EQ(atomic_load(&threads.started), atomic_load(&threads.stopped));
        CHECK_EQ(atomic_load(&threads.started), atomic_load(&threads.inside));
        CHECK_EQ(atomic_load(&threads.wrong), 0);
    }
}

TEST(hooks, the_thread_of_run_is_the_hosts) {
    thread_of_run = pthread_self();
    for (int i = 0; i < 20; i++) {
        weft_config c = with_thread_hooks(1 + i % 4);
        CHECK_EQ(weft_run(many_look, NULL, &c, NULL), 0);
        CHECK_EQ(atomic_load(&threads.started), atomic_load(&threads.stopped));
        CHECK_EQ(atomic_load(&threads.wrong), 0);
        CHECK(!attached);
    }
}

/* ---- stacks ---- */

enum { MOST_STACKS = 4096 };
static struct {
    pthread_mutex_t lock;
    int n, wrong;
    struct {
        char *low;
        size_t bytes;
    } live[MOST_STACKS];
} stacks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int stack_at(const char *at) {
    int found = -1;
    for (int i = 0; i < stacks.n; i++) {
        if (at >= stacks.live[i].low && at < stacks.live[i].low + stacks.live[i].bytes) {
            stacks.wrong += found >= 0; /* two overlap */
            found = i;
        }
    }
    return found;
}

static void map(void *arg, void *low, size_t bytes, int live) {
    pthread_mutex_lock(&stacks.lock);
    int i = stack_at(low);
    if (arg != &stacks || (live != 0 && live != 1)) {
        stacks.wrong++;
    } else if (live) {
        if (i >= 0 || stacks.n == MOST_STACKS) {
            stacks.wrong++;
        } else {
            ((volatile char *)low)[0] = 1; /* from its lowest byte to its highest it is there */
            (void)((volatile char *)low)[bytes - 1];
            stacks.live[stacks.n].low = low;
            stacks.live[stacks.n++].bytes = bytes;
        }
    } else if (i < 0 || stacks.live[i].low != low || stacks.live[i].bytes != bytes) {
        stacks.wrong++;
    } else {
        (void)((volatile char *)low)[0]; /* it goes, but has not gone */
        stacks.live[i] = stacks.live[--stacks.n];
    }
    pthread_mutex_unlock(&stacks.lock);
}

static int looks_at_its_stack(void *arg) {
    char here;
    pthread_mutex_lock(&stacks.lock);
    int i = stack_at(&here);
    if (i < 0 || stacks.live[i].bytes != *(size_t *)arg) {
        stacks.wrong++;
    }
    pthread_mutex_unlock(&stacks.lock);
    weft_yield();
    return 0;
}

static int many_look_at_their_stacks(void *arg) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    looks_at_its_stack(arg);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            CHECK_EQ(weft_waitgroup_go(&wg, looks_at_its_stack, arg), 0);
        }
        weft_waitgroup_wait(&wg);
    }
    CHECK_GE(stacks.n, 2);
    CHECK_LE(stacks.n, 201); /* one that has told us that it is done may not be free yet */
    return 0;
}

TEST(hooks, stacks_come_and_go) {
    for (int i = 0; i < 8; i++) {
        weft_config c = config_of(1 + i % 4);
        size_t bytes = c.stack_size = 64 * 1024;
        c.hook_arg = &stacks;
        c.stack_map = map;
        CHECK_EQ(weft_run(many_look_at_their_stacks, &bytes, &c, NULL), 0);
        CHECK_EQ(stacks.n, 0);
        CHECK_EQ(stacks.wrong, 0);
    }
}

/* ---- configuration ---- */

TEST(hooks, reserved_fields_are_zero) {
    weft_runtime *rt;
    void **fields[] = {NULL, NULL, NULL, NULL};
    weft_config c = config_of(1);
    fields[0] = &c.reserved0[1];
    fields[1] = &c.reserved1;
    fields[2] = &c.reserved[0];
    fields[3] = &c.reserved[7];
    for (int i = 0; i < 4; i++) {
        *fields[i] = &c;
        CHECK_EQ(weft_start(&rt, &c), -EINVAL);
        *fields[i] = NULL;
    }
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_stop(rt, -1), 0);
    c.size = offsetof(weft_config, thread_start); /* a caller that did not know of them */
    c.thread_start = (void (*)(void *))(uintptr_t)1;
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- the allocator ---- */

/* Each block says what it was asked for, in front of itself. */
struct head {
    size_t bytes, align;
    void *block;
    uint64_t mark;
};
static struct {
    _Atomic int64_t blocks, bytes;
    atomic_int wrong, allocs, fail;
    int tag;
} ledger;

static void *alloc(void *ctx, size_t bytes, size_t align) {
    if (ctx != &ledger.tag || bytes == 0 || align < 16 || (align & (align - 1)) != 0) {
        atomic_fetch_add(&ledger.wrong, 1);
    }
    atomic_fetch_add(&ledger.allocs, 1);
    if (atomic_load(&ledger.fail)) {
        return NULL;
    }
    char *block = malloc(bytes + align + sizeof(struct head));
    CHECK(block != NULL);
    uintptr_t at = ((uintptr_t)block + sizeof(struct head) + align - 1) & ~(uintptr_t)(align - 1);
    memset((void *)at, 0xa5, bytes);
    *(struct head *)(at - sizeof(struct head)) = (struct head){bytes, align, block, 0x5157};
    atomic_fetch_add(&ledger.blocks, 1);
    atomic_fetch_add(&ledger.bytes, (int64_t)bytes);
    return (void *)at;
}

static void give_back(void *ctx, void *ptr, size_t bytes, size_t align) {
    struct head *h = (struct head *)ptr - 1;
    if (ctx != &ledger.tag || h->mark != 0x5157 || h->bytes != bytes || h->align != align) {
        atomic_fetch_add(&ledger.wrong, 1);
    }
    h->mark = 0;
    atomic_fetch_sub(&ledger.blocks, 1);
    atomic_fetch_sub(&ledger.bytes, (int64_t)bytes);
    free(h->block);
}

static weft_allocator ours(void) {
    return (weft_allocator){sizeof(weft_allocator), alloc, give_back, &ledger.tag};
}

static int of_each_kind(void *arg) {
    (void)arg;
    weft_chan *c;
    weft_timer *t[40];
    weft_conn left, right;
    int fds[2];
    static weft_local local = WEFT_LOCAL_INIT(NULL);
    CHECK_EQ(weft_chan_new(&c, 8, 100), 0);
    for (int i = 0; i < 40; i++) { /* so that a heap grows */
        CHECK_EQ(weft_timer_new(&t[i], WEFT_HOUR + i, NULL), 0);
    }
    weft_set_name("one with a name");
    CHECK_EQ(weft_local_set(&local, c), 0);
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(weft_conn_from_fd(&left, fds[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&right, fds[1]), 0);
    CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    CHECK_EQ(weft_conn_close(left), 0);
    CHECK_EQ(weft_conn_close(right), 0);
    for (int i = 0; i < 40; i++) {
        weft_timer_free(t[i]);
    }
    weft_chan_unref(c);
    return 0;
}

TEST(hooks, allocator_serves_all) {
    weft_allocator a = ours(), bad;
    CHECK_EQ(weft_set_allocator(NULL), -EINVAL);
    bad = a, bad.alloc = NULL;
    CHECK_EQ(weft_set_allocator(&bad), -EINVAL);
    bad = a, bad.free = NULL;
    CHECK_EQ(weft_set_allocator(&bad), -EINVAL);
    bad = a, bad.size = 8;
    CHECK_EQ(weft_set_allocator(&bad), -EINVAL);
    CHECK_EQ(weft_set_allocator(&a), 0);
    CHECK_EQ(weft_set_allocator(&a), -EBUSY);
    int64_t kept[2] = {0, 0};
    for (int i = 0; i < 20; i++) {
        weft_config c = config_of(1 + i % 4);
        CHECK_EQ(weft_run(of_each_kind, NULL, &c, NULL), 0);
        CHECK_EQ(atomic_load(&ledger.wrong), 0);
        kept[i / 10] = atomic_load(&ledger.blocks); /* stand-ins, heaps' sets, conns' records */
    }
    CHECK_GT(atomic_load(&ledger.allocs), 100);
    CHECK_EQ(kept[0], kept[1]);
}

TEST(hooks, allocator_comes_first_or_not_at_all) {
    weft_allocator a = ours();
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, 1, 1), 0);
    CHECK_EQ(weft_set_allocator(&a), -EBUSY);
    weft_chan_unref(c);
    CHECK_EQ(atomic_load(&ledger.allocs), 0);
}

TEST(hooks, allocator_has_no_memory) {
    weft_allocator a = ours();
    weft_runtime *rt;
    weft_chan *c;
    weft_local key = WEFT_LOCAL_INIT(NULL);
    CHECK_EQ(weft_set_allocator(&a), 0);
    weft_yield(); /* a stand-in */
    atomic_store(&ledger.fail, 1);
    CHECK_EQ(weft_start(&rt, NULL), -ENOMEM);
    CHECK_EQ(weft_chan_new(&c, 8, 8), -ENOMEM);
    CHECK_EQ(weft_local_set(&key, &key), -ENOMEM);
    CHECK(weft_local_get(&key) == NULL);
    atomic_store(&ledger.fail, 0);
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_stop(rt, -1), 0);
    CHECK_EQ(atomic_load(&ledger.wrong), 0);
}
