/* unit/stack.c: stacks, their guards, and the report of an overflow. Whatever a guard is made of, it
   is judged by what it does: the kernel cannot read it, and a program that touches it dies. */
#define _GNU_SOURCE 1
#include "stack/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stack/guard.h"
#include "test.h"

#define KIB ((size_t)1024)
#define STACK (256 * KIB)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0 /* sanitizers reserve address space, which some limits and locks do not suit */
#endif

/* ThreadSanitizer blocks all signals in every handler, so one who jumps out must unblock them. */
#if defined(__SANITIZE_THREAD__)
#define RESTORES_MASK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RESTORES_MASK 1
#endif
#endif
#ifndef RESTORES_MASK
#define RESTORES_MASK 0
#endif

static weft__stacks *new_pool(size_t bytes, size_t max_total) {
    weft__stacks *s = NULL;
    CHECK_EQ(weft__stacks_new(&s, bytes, max_total), 0);
    return s;
}

static weft__stack take(weft__stacks *s) {
    weft__stack st = {0};
    CHECK_EQ(weft__stacks_take(s, &st), 0);
    return st;
}

static bool readable(const void *at) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    ssize_t n = write(fds[1], at, 1);
    bool fault = n == -1 && errno == EFAULT;
    CHECK(n == 1 || fault);
    close(fds[0]);
    close(fds[1]);
    return !fault;
}

static bool writable(void *at) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    bool ok = read(fds[0], at, 1) == 1;
    close(fds[0]);
    close(fds[1]);
    return ok;
}

static void check_guarded(weft__stack st) {
    CHECK(writable(st.low));
    CHECK(writable(st.low + st.bytes - 1));
    CHECK(!readable(st.low - 1));
    CHECK(!writable(st.low - 32 * KIB));
    CHECK(!readable(st.low - 64 * KIB));
}

static long map_lines(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f);
    long lines = 0;
    for (int c; (c = getc(f)) != EOF;) lines += c == '\n';
    fclose(f);
    return lines;
}

/* Pools. */

TEST(stack, sizes) {
    weft__stacks *s;
    size_t page = weft__page_bytes();
    CHECK_EQ(weft__stacks_new(&s, 0, 0), -EINVAL);
    CHECK_EQ(weft__stacks_new(&s, SIZE_MAX, 0), -EINVAL);
    s = new_pool(page + 1, 0);
    weft__stack st = take(s);
    CHECK_EQ(st.bytes, 2 * page);
    CHECK_EQ((uintptr_t)st.low % page, 0);
    CHECK_EQ(weft__stacks_reserved(s), 2 * page);
    weft__stacks_free(s);
    weft__stacks_free(NULL);
}

TEST(stack, bigger_than_the_first_slab) {
    weft__stacks *s = new_pool(8192 * KIB, 0);
    for (int i = 0; i < 5; i++) {
        weft__stack st = take(s);
        CHECK_EQ(st.bytes, 8192 * KIB);
        check_guarded(st);
    }
    weft__stacks_free(s);
}

TEST(stack, unused_is_zero) {
    weft__stacks *s = new_pool(16 * KIB, 0);
    weft__stack st = take(s);
    for (size_t i = 0; i < st.bytes; i++) CHECK_EQ(st.low[i], 0);
    weft__stacks_free(s);
}

TEST(stack, bound) {
    weft__stacks *s = new_pool(STACK, 10 * STACK + STACK / 2);
    weft__stack st;
    for (int i = 0; i < 10; i++) st = take(s);
    weft__stack none = {0};
    CHECK_EQ(weft__stacks_take(s, &none), -ENOMEM);
    CHECK(!none.low);
    CHECK_EQ(weft__stacks_reserved(s), 10 * STACK);
    weft__stacks_put(s, st);
    CHECK(take(s).low == st.low);
    CHECK_EQ(weft__stacks_take(s, &none), -ENOMEM);
    weft__stacks_free(s);
}

/* What sched keeps at the top of a stack outlives its user, and the last one back is the warm one. */
TEST(stack, recycled_last_in_first_out_with_contents) {
    enum { N = 100 };
    weft__stacks *s = new_pool(STACK, 0);
    weft__stack st[N];
    for (int i = 0; i < N; i++) {
        st[i] = take(s);
        memset(st[i].low + st[i].bytes - 4096, i + 1, 4096);
    }
    size_t reserved = weft__stacks_reserved(s);
    for (int i = 0; i < N; i++) weft__stacks_put(s, st[i]);
    for (int i = N - 1; i >= 0; i--) {
        weft__stack again = take(s);
        CHECK(again.low == st[i].low);
        CHECK_EQ(again.bytes, STACK);
        for (size_t b = again.bytes - 4096; b < again.bytes; b++) CHECK_EQ(again.low[b], i + 1);
    }
    CHECK_EQ(weft__stacks_reserved(s), reserved);
    weft__stacks_free(s);
}

/* find. */

static void check_found(weft__stacks *s, const char *at, weft__stack want, bool want_guard) {
    weft__stack got = {0};
    bool in_guard = !want_guard;
    CHECK(weft__stacks_find(s, at, &got, &in_guard));
    CHECK(got.low == want.low);
    CHECK_EQ(got.bytes, want.bytes);
    CHECK_EQ(in_guard, want_guard);
}

TEST(stack, find_at_borders) {
    weft__stacks *s = new_pool(STACK, 0);
    weft__stacks *other = new_pool(STACK, 0);
    weft__stack foreign = take(other), got;
    bool in_guard;
    CHECK(!weft__stacks_find(s, s, &got, &in_guard));
    for (int i = 0; i < 200; i++) {
        weft__stack st = take(s);
        size_t guard = weft__guard_bytes();
        check_found(s, st.low, st, false);
        check_found(s, st.low + st.bytes - 1, st, false);
        check_found(s, st.low - 1, st, true);
        check_found(s, st.low - guard, st, true);
        /* Nothing has been handed out above the newest one. */
        CHECK(!weft__stacks_find(s, st.low + st.bytes, &got, &in_guard) || got.low != st.low);
        CHECK(!weft__stacks_find(s, st.low + st.bytes, &got, &in_guard) || in_guard);
        weft__stacks_put(s, st);
        check_found(s, st.low, st, false);
        CHECK(take(s).low == st.low);
    }
    CHECK(!weft__stacks_find(s, foreign.low, &got, &in_guard));
    CHECK(!weft__stacks_find(s, NULL, &got, &in_guard));
    CHECK(!weft__stacks_find(s, (void *)UINTPTR_MAX, &got, &in_guard));
    weft__stacks_free(other);
    weft__stacks_free(s);
}

static void mark(weft__stack st, void *arg) {
    st.low[st.bytes - 1]++;
    ++*(int *)arg;
}

TEST(stack, each_visits_every_one_once) {
    enum { N = 500 };
    weft__stacks *s = new_pool(64 * KIB, 0);
    weft__stack st[N];
    int visits = 0;
    weft__stacks_each(s, mark, &visits);
    CHECK_EQ(visits, 0);
    for (int i = 0; i < N; i++) st[i] = take(s);
    for (int i = 0; i < N; i += 2) weft__stacks_put(s, st[i]);
    weft__stacks_each(s, mark, &visits);
    CHECK_EQ(visits, N);
    for (int i = 0; i < N; i++) CHECK_EQ(st[i].low[st[i].bytes - 1], 1);
    weft__stacks_free(s);
}

/* Guards. */

static void guards_everywhere(enum weft__guard_way way) {
    weft__guard_choose(way);
    weft__stacks *s = new_pool(STACK, 0);
    weft__stack first = take(s);
    for (int i = 0; i < 100; i++) check_guarded(take(s));
    check_guarded(first);
    weft__stacks_put(s, first);
    check_guarded(take(s));
    weft__stacks_free(s);
}

TEST(stack, guards_as_found) { guards_everywhere(WEFT__GUARD_PROBE); }

TEST(stack, guards_by_mprotect) { guards_everywhere(WEFT__GUARD_PROTECT); }

/* Told to use guard regions, whether the kernel has them or not, every guard must still be one. */
TEST(stack, guards_that_may_be_refused) { guards_everywhere(WEFT__GUARD_REGION); }

/* Contents of neighbours are not touched by making a guard. */
TEST(stack, guards_leave_neighbours_alone) {
    enum { N = 60 };
    weft__stacks *s = new_pool(16 * KIB, 0);
    weft__stack st[N];
    for (int i = 0; i < N; i++) {
        st[i] = take(s);
        memset(st[i].low, i + 1, st[i].bytes);
    }
    for (int i = 0; i < N; i++) {
        for (size_t b = 0; b < st[i].bytes; b++) CHECK_EQ(st[i].low[b], i + 1);
    }
    weft__stacks_free(s);
}

/* After C46: the host's own mappings work on, whatever became of our stacks. */
static long take_many(weft__stacks *s, long n) {
    weft__stack st;
    for (long i = 0; i < n; i++) {
        int err = weft__stacks_take(s, &st);
        if (err) {
            CHECK_EQ(err, -ENOMEM);
            return i;
        }
        if (i % 1000 == 0) check_guarded(st);
    }
    return n;
}

static void host_maps_100_pages(void) {
    size_t page = weft__page_bytes();
    for (int i = 0; i < 100; i++) {
        /* By turns of two kinds, so that they do not merge. */
        int prot = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
        CHECK(mmap(NULL, page, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
}

TEST_IN(stack, a_hundred_thousand, 60) {
    long before = map_lines();
    weft__stacks *s = new_pool(STACK, 0);
    long got = take_many(s, 100000);
    if (weft__guard_works()) {
        CHECK_EQ(got, 100000);
        CHECK_LT(map_lines() - before, 1000);
    }
    host_maps_100_pages();
    weft__stacks_free(s);
    CHECK_LT(map_lines() - before, 1000);
}

TEST_IN(stack, a_hundred_thousand_by_mprotect, 60) {
    weft__guard_choose(WEFT__GUARD_PROTECT);
    long before = map_lines();
    weft__stacks *s = new_pool(STACK, 0);
    long got = take_many(s, 100000);
    CHECK_GT(got, 1000);
    long maps = map_lines();
    host_maps_100_pages();
    /* One back is one to take, and another pool has no ration of its own. */
    weft__stack st;
    if (got < 100000) {
        weft__stacks *second = new_pool(STACK, 0);
        CHECK_EQ(weft__stacks_take(second, &st), -ENOMEM);
        weft__stacks_free(s);
        CHECK_EQ(weft__stacks_take(second, &st), 0);
        weft__stacks_free(second);
        CHECK_GE(maps - before, 2 * got - 2);
        CHECK_LE(maps - before, 2 * got + 100);
    } else {
        weft__stacks_free(s);
    }
    CHECK_LT(map_lines() - before, 1000);
}

/* All of the process's memory is locked before or after the slab was reserved: a guard region cannot
   be made, so a guard must come from access rights. */
static void locked_memory(int first, int second) {
    if (SANITIZED) test_skip("sanitizers do not go with locked memory");
    if (first && syscall(SYS_mlockall, first) != 0) test_skip("may not lock memory");
    weft__stacks *s = new_pool(STACK, 0);
    check_guarded(take(s));
    if (second && syscall(SYS_mlockall, second) != 0) test_skip("may not lock memory");
    for (int i = 0; i < 20; i++) check_guarded(take(s));
    weft__stacks_free(s);
}

TEST(stack, locked_from_the_start) { locked_memory(MCL_CURRENT | MCL_FUTURE, 0); }

TEST(stack, locked_later) { locked_memory(0, MCL_CURRENT); }

/* Little address space: as many stacks as fit, then -ENOMEM, and malloc is not starved. */
TEST(stack, limited_address_space) {
    if (SANITIZED) test_skip("sanitizers do not go with limited address space");
    struct rlimit limit = {.rlim_cur = 512 << 20, .rlim_max = 512 << 20};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    weft__stacks *s = new_pool(STACK, 0);
    for (int i = 0; i < 200; i++) check_guarded(take(s));
    void *volatile p = malloc(300 << 20);
    CHECK(p);
    long got = take_many(s, 10000);
    CHECK_LT(got, 10000);
    free(p);
    CHECK_EQ(take_many(s, 500), 500);
    weft__stacks_free(s);
}

/* Several threads. */

enum { THREADS = 4, ROUNDS = 2000, HELD = 20 };
static _Atomic int overlaps;
static _Atomic bool finders_end;

static void *churn(void *arg) {
    weft__stacks *s = arg;
    weft__stack held[HELD] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        weft__stack *h = &held[i * 7 % HELD];
        if (h->low) {
            char *top = h->low + h->bytes - sizeof(int);
            if (--*(int *)top != 0) atomic_fetch_add(&overlaps, 1);
            weft__stacks_put(s, *h);
            h->low = NULL;
        } else if (weft__stacks_take(s, h) == 0) {
            char *top = h->low + h->bytes - sizeof(int);
            if ((*(int *)top)++ != 0) atomic_fetch_add(&overlaps, 1);
        }
    }
    return NULL;
}

static void *finder(void *arg) {
    weft__stacks *s = arg;
    weft__stack first = take(s), got;
    bool in_guard;
    while (!atomic_load(&finders_end)) {
        CHECK(weft__stacks_find(s, first.low - 1, &got, &in_guard) && in_guard);
        /* Whatever has been handed out above the first one can be found and read. */
        if (weft__stacks_find(s, first.low + 20 * STACK, &got, &in_guard)) CHECK(readable(got.low));
    }
    return NULL;
}

TEST(stack, threads) {
    weft__stacks *s = new_pool(STACK, 0);
    pthread_t finds, churns[THREADS];
    CHECK_EQ(pthread_create(&finds, NULL, finder, s), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&churns[i], NULL, churn, s), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(churns[i], NULL);
    atomic_store(&finders_end, true);
    pthread_join(finds, NULL);
    CHECK_EQ(atomic_load(&overlaps), 0);
    CHECK_LE(weft__stacks_reserved(s), (THREADS * HELD + 1) * STACK);
    weft__stacks_free(s);
}

/* The report. Each of these runs in a child whose stderr is kept. */

struct outcome {
    int status;
    char text[2048];
};

static struct outcome in_child(void (*fn)(void)) {
    struct outcome o = {0};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        struct rlimit no_core = {0};
        setrlimit(RLIMIT_CORE, &no_core);
        /* As in a program without a sanitizer, whose own handler would change the outcome. */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        fn();
        _exit(0);
    }
    close(fds[1]);
    size_t have = 0;
    for (ssize_t n; (n = read(fds[0], o.text + have, sizeof o.text - 1 - have)) > 0;) {
        have += (size_t)n;
    }
    close(fds[0]);
    CHECK_EQ(waitpid(pid, &o.status, 0), pid);
    return o;
}

static void check_died(struct outcome o, int sig, const char *text) {
    CHECK_STR(o.text, text);
    CHECK(WIFSIGNALED(o.status));
    CHECK_EQ(WTERMSIG(o.status), sig);
}

static void check_exit(struct outcome o, int status, const char *text) {
    CHECK_STR(o.text, text);
    CHECK_EQ(WIFSIGNALED(o.status) ? WTERMSIG(o.status) : 0, 0);
    CHECK_EQ(WEXITSTATUS(o.status), status);
}

#define REPORT_17 "weft: stack overflow in green thread 17 (walker), stack of 256 KiB\n"
#define REPORT_DEEP "weft: stack overflow in green thread 17 (walker), stack of 2048 KiB\n"
#define REPORT_NOBODY "weft: stack overflow in a green thread, stack of 256 KiB\n"

static weft__stack described;

static void describe_17(const weft__stack *st, char *buf, size_t n) {
    described = *st;
    snprintf(buf, n, "green thread 17 (walker)");
}

static weft__stack watched_stack_of(size_t bytes) {
    weft__sigstack ss;
    weft__stacks *s = new_pool(bytes, 0);
    weft__stack st = take(s);
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    CHECK_EQ(weft__overflow_watch(s), 0);
    CHECK_EQ(weft__overflow_install(), 0);
    return st;
}

static weft__stack watched_stack(void) { return watched_stack_of(STACK); }

static void poke(char *at) { *(volatile char *)at = 1; }

static void poke_first_guard_byte(void) {
    weft__overflow_describe = describe_17;
    poke(watched_stack().low - 1);
}

static void poke_last_guard_byte(void) {
    weft__overflow_describe = describe_17;
    poke(watched_stack().low - 64 * KIB);
}

static void poke_by_mprotect(void) {
    weft__guard_choose(WEFT__GUARD_PROTECT);
    poke(watched_stack().low - 1);
}

static void poke_elsewhere(void) {
    watched_stack();
    poke((char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void poke_stack(void) { poke(watched_stack().low); }

TEST(stack, report_names_the_stack) {
    check_died(in_child(poke_first_guard_byte), SIGSEGV, REPORT_17);
    check_died(in_child(poke_last_guard_byte), SIGSEGV, REPORT_17);
    check_died(in_child(poke_by_mprotect), SIGSEGV, REPORT_NOBODY);
    check_died(in_child(poke_elsewhere), SIGSEGV, "");
    check_exit(in_child(poke_stack), 0, "");
}

/* After C45: a thread that runs on the stack and recurses with small frames. */
static int recurse(int depth) {
    volatile char frame[256];
    frame[0] = (char)depth;
    int below = depth < 0 ? 0 : recurse(depth + 1);
    return below + frame[0];
}

static void *run_over(void *arg) {
    weft__sigstack ss;
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    (void)arg;
    return (void *)(intptr_t)recurse(0);
}

static void run_over_in_thread(void) {
    weft__overflow_describe = describe_17;
    weft__stack st = watched_stack_of(2048 * KIB); /* what a sanitizer wants of a thread's stack */
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    CHECK_EQ(pthread_attr_setstack(&attr, st.low, st.bytes), 0);
    CHECK_EQ(pthread_create(&thread, &attr, run_over, NULL), 0);
    pthread_join(thread, NULL);
}

TEST(stack, report_on_the_signal_stack) {
    for (int i = 0; i < 10; i++) check_died(in_child(run_over_in_thread), SIGSEGV, REPORT_DEEP);
}

static void poke_unwatched(void) {
    weft__sigstack ss;
    weft__stacks *first = new_pool(STACK, 0), *second = new_pool(STACK, 0);
    weft__stack st = take(first);
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    CHECK_EQ(weft__overflow_watch(first), 0);
    CHECK_EQ(weft__overflow_watch(second), 0);
    CHECK_EQ(weft__overflow_install(), 0);
    weft__overflow_unwatch(first);
    weft__overflow_unwatch(first); /* not watched: nothing */
    poke(st.low - 1);
}

static void poke_second_pool(void) {
    weft__stacks *first = new_pool(STACK, 0), *second = new_pool(STACK, 0);
    take(first);
    weft__stack st = take(second);
    CHECK_EQ(weft__overflow_watch(first), 0);
    CHECK_EQ(weft__overflow_watch(second), 0);
    weft__overflow_unwatch(first);
    CHECK_EQ(weft__overflow_watch(first), 0);
    CHECK_EQ(weft__overflow_install(), 0);
    poke(st.low - 1);
}

TEST(stack, report_watches_pools) {
    check_died(in_child(poke_unwatched), SIGSEGV, "");
    check_died(in_child(poke_second_pool), SIGSEGV, REPORT_NOBODY);
}

/* The host's handlers. */

static volatile sig_atomic_t host_calls;
static void *volatile host_address;
static sigjmp_buf host_jump;

static void host_info(int sig, siginfo_t *info, void *context) {
    (void)context;
    host_calls++;
    host_address = info->si_addr;
    (void)!write(STDERR_FILENO, sig == SIGSEGV ? "host\n" : "host?\n", 5);
    _exit(7);
}

static void host_plain(int sig) {
    (void)!write(STDERR_FILENO, sig == SIGSEGV ? "host\n" : "host?\n", 5);
    _exit(8);
}

static void host_jumps(int sig) {
    (void)sig;
    host_calls++;
    siglongjmp(host_jump, 1);
}

static void host_sigaction(void (*plain)(int), void (*info)(int, siginfo_t *, void *), int flags) {
    struct sigaction a = {.sa_flags = flags};
    if (info) {
        a.sa_sigaction = info;
        a.sa_flags |= SA_SIGINFO;
    } else {
        a.sa_handler = plain;
    }
    CHECK_EQ(sigaction(SIGSEGV, &a, NULL), 0);
}

static void host_info_then_poke(void) {
    host_sigaction(NULL, host_info, SA_ONSTACK);
    poke(watched_stack().low - 1);
}

static void host_plain_then_poke(void) {
    host_sigaction(host_plain, NULL, 0);
    poke(watched_stack().low - 1);
}

static void host_plain_then_poke_elsewhere(void) {
    host_sigaction(host_plain, NULL, 0);
    poke_elsewhere();
}

/* A host that lives on after faults, as a collector or a JIT does. Neither flag nor mask is lost. */
static void host_jumps_often(void) {
    host_sigaction(host_jumps, NULL, SA_NODEFER);
    watched_stack();
    char *volatile none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile int i = 0; i < 100; i++) {
        if (sigsetjmp(host_jump, RESTORES_MASK) == 0) poke(none);
    }
    CHECK_EQ(host_calls, 100);
}

static void host_once(void) {
    host_sigaction(host_jumps, NULL, (int)SA_RESETHAND | SA_NODEFER);
    watched_stack();
    char *volatile none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile int i = 0; i < 2; i++) {
        if (sigsetjmp(host_jump, RESTORES_MASK) == 0) poke(none);
    }
}

static void host_ignores(void) {
    host_sigaction(SIG_IGN, NULL, 0);
    watched_stack();
    raise(SIGSEGV);
    kill(getpid(), SIGSEGV);
    (void)!write(STDERR_FILENO, "alive\n", 6);
    poke((char *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void host_sends_itself_one(void) {
    watched_stack();
    raise(SIGSEGV);
}

static void bus_error(void) {
    watched_stack();
    int fd = memfd_create("empty", 0);
    poke((char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

TEST(stack, report_then_what_the_host_wanted) {
    check_exit(in_child(host_info_then_poke), 7, REPORT_NOBODY "host\n");
    check_exit(in_child(host_plain_then_poke), 8, REPORT_NOBODY "host\n");
    check_exit(in_child(host_plain_then_poke_elsewhere), 8, "host\n");
    check_exit(in_child(host_jumps_often), 0, "");
    check_died(in_child(host_once), SIGSEGV, "");
    check_died(in_child(host_ignores), SIGSEGV, "alive\n");
    check_died(in_child(host_sends_itself_one), SIGSEGV, "");
    check_died(in_child(bus_error), SIGBUS, "");
}

static bool has_handler(int sig, void (*handler)(int)) {
    struct sigaction a;
    CHECK_EQ(sigaction(sig, NULL, &a), 0);
    return a.sa_handler == handler;
}

static void install_counts(void) {
    host_sigaction(host_plain, NULL, 0);
    CHECK_EQ(weft__overflow_install(), 0);
    CHECK(!has_handler(SIGSEGV, host_plain));
    CHECK(!has_handler(SIGBUS, SIG_DFL));
    CHECK_EQ(weft__overflow_install(), 0);
    weft__overflow_remove();
    CHECK(!has_handler(SIGSEGV, host_plain));
    weft__overflow_remove();
    CHECK(has_handler(SIGSEGV, host_plain));
    CHECK(has_handler(SIGBUS, SIG_DFL));
    weft__overflow_remove(); /* one too many: nothing */
    CHECK(has_handler(SIGSEGV, host_plain));
}

static struct sigaction under_host;

static void host_over_ours(int sig, siginfo_t *info, void *context) {
    if (++host_calls > 3) _exit(9); /* a ring */
    under_host.sa_sigaction(sig, info, context);
}

/* The host puts a handler over ours, which calls ours: that one is not taken away from it, and
   another install does not make a ring. */
static void host_chains_over_ours(void) {
    weft__stack st = watched_stack();
    struct sigaction a = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    a.sa_sigaction = host_over_ours;
    CHECK_EQ(sigaction(SIGSEGV, &a, &under_host), 0);
    weft__overflow_remove();
    CHECK(!has_handler(SIGSEGV, SIG_DFL));
    CHECK(has_handler(SIGBUS, SIG_DFL));
    CHECK_EQ(weft__overflow_install(), 0);
    poke(st.low - 1);
}

/* Or it has dropped ours for good: then an install is a new one. */
static void host_dropped_ours(void) {
    weft__stack st = watched_stack();
    host_sigaction(host_plain, NULL, 0);
    weft__overflow_remove();
    CHECK(has_handler(SIGSEGV, host_plain));
    host_sigaction(SIG_DFL, NULL, 0);
    CHECK_EQ(weft__overflow_install(), 0);
    poke(st.low - 1);
}

TEST(stack, report_install_and_remove) {
    check_exit(in_child(install_counts), 0, "");
    check_died(in_child(host_chains_over_ours), SIGSEGV, REPORT_NOBODY);
    check_died(in_child(host_dropped_ours), SIGSEGV, REPORT_NOBODY);
}

static void forked_child_reports(void) {
    weft__stack st = watched_stack();
    pid_t pid = fork();
    if (pid == 0) {
        weft__overflow_forked();
        weft__stacks *s = new_pool(STACK, 0);
        CHECK_EQ(weft__overflow_watch(s), 0);
        weft__overflow_unwatch(s);
        weft__stacks_free(s);
        poke(st.low - 1);
    }
    int status;
    waitpid(pid, &status, 0);
    _exit(WTERMSIG(status));
}

TEST(stack, report_in_a_forked_child) {
    check_exit(in_child(forked_child_reports), SIGSEGV, REPORT_NOBODY);
}

/* A pool is unwatched and freed while handlers of faults that have nothing to do with it look
   through the pools. Freed too early, it is read after its end: ASan and TSan see that. */
static _Atomic bool faults_end;

static void *pools_come_and_go(void *arg) {
    (void)arg;
    while (!atomic_load(&faults_end)) {
        weft__stacks *s = new_pool(STACK, 0);
        CHECK_EQ(weft__overflow_watch(s), 0);
        take(s);
        weft__overflow_unwatch(s);
        weft__stacks_free(s);
    }
    return NULL;
}

static void watch_churn(void) {
    host_sigaction(host_jumps, NULL, SA_NODEFER);
    watched_stack();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, pools_come_and_go, NULL), 0);
    }
    char *volatile none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (volatile int i = 0; i < 20000; i++) {
        if (sigsetjmp(host_jump, RESTORES_MASK) == 0) poke(none);
    }
    atomic_store(&faults_end, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(host_calls, 20000);
}

TEST(stack, report_while_pools_come_and_go) { check_exit(in_child(watch_churn), 0, ""); }

/* Signal stacks. */

static void *sigstack_of_a_thread(void *arg) {
    stack_t now, off = {.ss_flags = SS_DISABLE};
    weft__sigstack ss;
    (void)arg;
    CHECK_EQ(sigaltstack(&off, NULL), 0); /* a sanitizer may have set one */
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK_EQ(now.ss_flags & SS_DISABLE, 0);
    CHECK_GE(now.ss_size, 64 * KIB);
    CHECK_GE(now.ss_size, getauxval(AT_MINSIGSTKSZ) + 8 * KIB);
    CHECK(writable(now.ss_sp));
    CHECK(!readable((char *)now.ss_sp - 1));
    char *gone = now.ss_sp;
    weft__sigstack_teardown(&ss);
    CHECK(!readable(gone));
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK(now.ss_flags & SS_DISABLE);
    weft__sigstack_teardown(&ss); /* again: nothing */
    return NULL;
}

static void in_thread(void *(*fn)(void *)) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fn, NULL), 0);
    pthread_join(thread, NULL);
}

TEST(stack, sigstack) { in_thread(sigstack_of_a_thread); }

static char hosts_own[128 << 10];

static void *sigstack_of_the_host(void *arg) {
    stack_t own = {.ss_sp = hosts_own, .ss_size = sizeof hosts_own}, now;
    stack_t off = {.ss_flags = SS_DISABLE};
    weft__sigstack ss;
    (void)arg;
    /* It had one before. */
    CHECK_EQ(sigaltstack(&own, NULL), 0);
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    CHECK(!ss.map);
    weft__sigstack_teardown(&ss);
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK(now.ss_sp == hosts_own);
    /* It sets one while ours is there. */
    CHECK_EQ(sigaltstack(&off, NULL), 0);
    CHECK_EQ(weft__sigstack_setup(&ss), 0);
    CHECK_EQ(sigaltstack(&own, NULL), 0);
    weft__sigstack_teardown(&ss);
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK(now.ss_sp == hosts_own);
    sigaltstack(&off, NULL);
    return NULL;
}

TEST(stack, sigstack_of_the_host_stays) { in_thread(sigstack_of_the_host); }
