/* unit/task.c: green threads themselves: start, order, yield, exit, numbers, names, what they carry. */
#include "world.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void run_at(int procs, weft_fn fn, void *arg) {
    weft_config c = config_of(procs);
    int status = -1;
    CHECK_EQ(weft_run(fn, arg, &c, &status), 0);
    CHECK_EQ(status, 0);
}

static void run_at_each(weft_fn fn, void *arg) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        run_at(procs, fn, arg);
    }
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

/* ---- start ---- */

static int count_one(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int go_many(void *arg) {
    (void)arg;
    int many = rounds(3000);
    atomic_int count = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < many; i++) {
            CHECK_EQ(weft_go(count_one, &count), 0);
        }
        UNTIL(atomic_load(&count) == many * (round + 1));
    }
    return 0;
}

TEST(task, go_many) { run_at_each(go_many, NULL); }

TEST(task, go_needs_a_green_thread) {
    int x = 0;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_go(nothing, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_go_copy(nothing, &x, sizeof x), WEFT_ENORUNTIME);
    CHECK_EQ(weft_waitgroup_go(&w, nothing, NULL), WEFT_ENORUNTIME);
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_submit(NULL, nothing, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_procs(NULL), WEFT_ENORUNTIME);
    CHECK(weft_current() == NULL);
    CHECK_EQ(weft_self(), 0);
    CHECK_EQ(weft_proc_self(), -1);
}

/* A tree of starters: each P starts from where it is. */
static atomic_int leaves;

static int grow(void *arg) {
    int depth = (int)(intptr_t)arg;
    if (depth == 0) {
        atomic_fetch_add(&leaves, 1);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(grow, (void *)(intptr_t)(depth - 1)), 0);
    }
    return 0;
}

static int grow_tree(void *arg) {
    (void)arg;
    atomic_store(&leaves, 0);
    CHECK_EQ(weft_go(grow, (void *)(intptr_t)6), 0);
    UNTIL(atomic_load(&leaves) == 3 * 3 * 3 * 3 * 3 * 3);
    return 0;
}

TEST(task, go_from_everywhere) { run_at_each(grow_tree, NULL); }

/* ---- copied arguments ---- */

struct copied {
    size_t bytes;
    const char *source;
    weft_event *done;
};

static char source[4097];
static weft_event copy_seen;
static size_t copy_bytes;

static int look_at_copy(void *arg) {
    char local;
    CHECK_EQ((uintptr_t)arg % 16, 0);
    CHECK_MEM(arg, source, copy_bytes);
    CHECK((char *)arg < source || (char *)arg >= source + sizeof source);
    intptr_t away = (char *)arg - &local; /* on this stack, above this frame */
    CHECK(copy_bytes == 0 || (away > 0 && away < 256 * 1024));
    memset(arg, 0, copy_bytes);
    weft_event_set(&copy_seen);
    return 0;
}

static int go_copies(void *arg) {
    (void)arg;
    static const size_t sizes[] = {0, 1, 2, 8, 15, 16, 17, 100, 1000, 4095, 4096};
    for (size_t i = 0; i < sizeof source; i++) {
        source[i] = (char)(i * 7 + 1);
    }
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        copy_bytes = sizes[i];
        weft_event_reset(&copy_seen);
        CHECK_EQ(weft_go_copy(look_at_copy, source, sizes[i]), 0);
        weft_event_wait(&copy_seen);
    }
    CHECK_EQ(source[0], 1); /* it had a copy */
    CHECK_EQ(weft_go_copy(look_at_copy, source, 4097), -E2BIG);
    CHECK_EQ(weft_go_copy(look_at_copy, source, SIZE_MAX), -E2BIG);
    return 0;
}

TEST(task, go_copy) { run_at_each(go_copies, NULL); }

struct pair {
    int a, b;
    atomic_int *sum;
};

static int add_pair(void *arg) {
    struct pair *p = arg;
    atomic_fetch_add(p->sum, p->a * p->b);
    return 0;
}

static int go_copy_macro(void *arg) {
    (void)arg;
    atomic_int sum = 0;
    for (int i = 1; i <= 100; i++) {
        struct pair p = {i, 2, &sum}; /* gone, or other values in it, before it runs */
        CHECK_EQ(WEFT_GO_COPY(add_pair, &p), 0);
    }
    UNTIL(atomic_load(&sum) == 100 * 101);
    return 0;
}

TEST(task, go_copy_macro) { run_at_each(go_copy_macro, NULL); }

/* ---- order at one P ---- */

static char said[64];

static void say(char c) {
    size_t n = strlen(said);
    CHECK_LT(n, sizeof said - 1);
    said[n] = c;
    said[n + 1] = 0;
}

static int say_one(void *arg) {
    say((char)(intptr_t)arg);
    return 0;
}

static int say_yield_say(void *arg) {
    char c = (char)(intptr_t)arg;
    say(c);
    weft_yield();
    say((char)(c - 'a' + 'A'));
    return 0;
}

static void go_say(weft_fn fn, char c) { CHECK_EQ(weft_go(fn, (void *)(intptr_t)c), 0); }

static int newest_goes_next(void *arg) {
    (void)arg;
    said[0] = 0;
    go_say(say_one, 'a');
    CHECK_STR(said, ""); /* the caller runs on */
    go_say(say_one, 'b');
    go_say(say_one, 'c');
    CHECK_STR(said, "");
    while (strlen(said) < 3) {
        weft_yield();
    }
    CHECK_STR(said, "cab");
    return 0;
}

TEST(task, a_new_one_goes_next_in_line) { run_at(1, newest_goes_next, NULL); }

static int yield_goes_to_the_tail(void *arg) {
    (void)arg;
    said[0] = 0;
    weft_yield(); /* alone: goes on */
    go_say(say_yield_say, 'a');
    go_say(say_yield_say, 'b');
    go_say(say_yield_say, 'c');
    say('(');
    weft_yield();
    say(')');
    while (strlen(said) < 8) {
        weft_yield();
    }
    CHECK_STR(said, "(cab)CAB");
    return 0;
}

TEST(task, yield_goes_to_the_tail) { run_at(1, yield_goes_to_the_tail, NULL); }

/* Two that yield take turns exactly, however long. */
static int turns, turn_of;

static int take_turns(void *arg) {
    int me = (int)(intptr_t)arg;
    for (int i = 0; i < 10000; i++) {
        CHECK_EQ(turn_of, me);
        turn_of = !me;
        turns++;
        weft_yield();
    }
    return 0;
}

static int start_turns(void *arg) {
    (void)arg;
    turns = turn_of = 0;
    CHECK_EQ(weft_go(take_turns, (void *)(intptr_t)1), 0);
    CHECK_EQ(weft_go(take_turns, (void *)(intptr_t)0), 0); /* first: next in line */
    weft_exit(0);
}

TEST(task, yielders_take_turns) {
    run_at(1, start_turns, NULL);
    CHECK_EQ(turns, 20000);
}

/* Somebody who only ever yields does not keep a sleeper or a newcomer from outside away. */
static atomic_int came;

static int sleep_and_come(void *arg) {
    (void)arg;
    weft_sleep(WEFT_MILLISECOND);
    atomic_fetch_add(&came, 1);
    return 0;
}

static void *submit_one(void *arg) {
    CHECK_EQ(weft_submit(arg, count_one, &came), 0);
    return NULL;
}

static int yield_for_ever(void *arg) {
    (void)arg;
    pthread_t t;
    atomic_store(&came, 0);
    CHECK_EQ(weft_go(sleep_and_come, NULL), 0);
    CHECK_EQ(pthread_create(&t, NULL, submit_one, weft_current()), 0);
    while (atomic_load(&came) < 2) {
        weft_yield();
    }
    pthread_join(t, NULL);
    return 0;
}

TEST(task, a_yielder_keeps_nobody_away) { run_at_each(yield_for_ever, NULL); }

/* A pair that wakes each other for ever holds neither back a third. */
struct ping {
    weft_chan *a, *b;
    atomic_int *stop;
};

static int ping(void *arg) {
    struct ping *p = arg;
    char x = 0;
    while (weft_chan_send(p->a, &x) == 0 && weft_chan_recv(p->b, &x) == 0) {
    }
    return 0;
}

static int pong(void *arg) {
    struct ping *p = arg;
    char x;
    while (weft_chan_recv(p->a, &x) == 0 && weft_chan_send(p->b, &x) == 0) {
    }
    return 0;
}

static int ping_pong_and_a_third(void *arg) {
    (void)arg;
    atomic_int count = 0;
    struct ping p = {0};
    pthread_t t;
    CHECK_EQ(weft_chan_new(&p.a, 1, 0), 0);
    CHECK_EQ(weft_chan_new(&p.b, 1, 0), 0);
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_go(&w, ping, &p), 0);
    CHECK_EQ(weft_waitgroup_go(&w, pong, &p), 0);
    atomic_store(&came, 0);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_go(count_one, &count), 0);
        weft_yield(); /* comes back although the two always have work */
    }
    CHECK_EQ(weft_sleep(2 * WEFT_MILLISECOND), 0); /* and so does a sleeper */
    CHECK_EQ(pthread_create(&t, NULL, submit_one, weft_current()), 0);
    while (atomic_load(&came) < 1 || atomic_load(&count) < 50) {
        weft_sleep(100 * WEFT_MICROSECOND);
    }
    pthread_join(t, NULL);
    CHECK_EQ(weft_chan_close(p.a), 0);
    CHECK_EQ(weft_chan_close(p.b), 0);
    weft_waitgroup_wait(&w);
    weft_chan_unref(p.a);
    weft_chan_unref(p.b);
    return 0;
}

TEST(task, a_busy_pair_starves_nobody) { run_at_each(ping_pong_and_a_third, NULL); }

TEST(task, yield_on_a_plain_thread) {
    for (int i = 0; i < 10; i++) {
        weft_yield();
    }
    CHECK_EQ(weft_self(), 0);
}

/* ---- exit ---- */

/* Comes back only with too deep a stack, which it must never have. */
static int exit_deep(int depth) {
    volatile char frame[64];
    frame[0] = (char)depth;
    if (depth == 20) {
        weft_exit(3);
    }
    return depth < 100 ? exit_deep(depth + 1) + frame[0] : 0;
}

static int exit_from_depth(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    exit_deep(0);
    atomic_fetch_add((atomic_int *)arg, 1000);
    return 0;
}

/* weft_exit ends its G only, wherever it is called from; the stack serves the next one. */
static int exits(void *arg) {
    (void)arg;
    atomic_int count = 0;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_go(exit_from_depth, &count), 0);
        if (i % 10 == 0) {
            weft_yield();
        }
    }
    UNTIL(atomic_load(&count) == 200);
    return 0;
}

TEST(task, exit) { run_at_each(exits, NULL); }

static void exit_plain(void *arg) {
    (void)arg;
    weft_exit(0);
}

TEST(task, exit_on_a_plain_thread_is_fatal) {
    CHECK_FAILS(SIGABRT, "weft: fatal: weft_exit", exit_plain, NULL);
}

/* ---- numbers ---- */

static weft_id ids[1000];
static atomic_int next_slot, kept;

static int keep_id(void *arg) {
    (void)arg;
    weft_id id = weft_self();
    weft_yield();
    CHECK_EQ(weft_self(), id);
    ids[atomic_fetch_add(&next_slot, 1)] = id;
    atomic_fetch_add(&kept, 1);
    return 0;
}

static int by_value(const void *a, const void *b) {
    weft_id x = *(const weft_id *)a, y = *(const weft_id *)b;
    return (x > y) - (x < y);
}

static int number_all(void *arg) {
    (void)arg;
    CHECK_EQ(weft_self(), 1);
    atomic_store(&next_slot, 0);
    atomic_store(&kept, 0);
    for (int i = 0; i < 1000; i++) {
        CHECK_EQ(i % 2 ? weft_go(keep_id, NULL) : weft_submit(NULL, keep_id, NULL), 0);
        if (i % 50 == 0) {
            weft_yield(); /* let some end, so that their memory is used again */
        }
    }
    UNTIL(atomic_load(&kept) == 1000);
    qsort(ids, 1000, sizeof ids[0], by_value);
    CHECK_GT(ids[0], 1);
    for (int i = 1; i < 1000; i++) {
        CHECK_NE(ids[i], ids[i - 1]);
    }
    CHECK_EQ(weft_self(), 1);
    return 0;
}

TEST(task, numbers_are_never_used_again) { run_at_each(number_all, NULL); }

/* ---- which P ---- */

static int proc_in_range(void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) {
        int p = weft_proc_self();
        CHECK_GE(p, 0);
        CHECK_LT(p, weft_procs(NULL));
        weft_yield();
    }
    return 0;
}

static int procs_in_range(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, proc_in_range, arg), 0);
    }
    weft_waitgroup_wait(&w);
    return 0;
}

TEST(task, proc_self) { run_at_each(procs_in_range, NULL); }

/* ---- floating point ---- */

static int fp_is_default(void *arg) {
    CHECK_EQ(fegetround(), FE_TONEAREST);
    volatile double one = 1, ten = 10, tenth = one / ten;
    CHECK(tenth == 0.1);
    fesetround(FE_DOWNWARD);
    for (int i = 0; i < 20; i++) {
        weft_yield();
        CHECK_EQ(fegetround(), FE_DOWNWARD); /* it belongs to the G */
    }
    weft_sleep(WEFT_MILLISECOND);
    CHECK_EQ(fegetround(), FE_DOWNWARD);
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int fp_main(void *arg) {
    (void)arg;
    CHECK_EQ(fegetround(), FE_TONEAREST);
    fesetround(FE_TOWARDZERO);
    atomic_int count = 0;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_go(fp_is_default, &count), 0);
    }
    for (int i = 0; i < 50; i++) {
        weft_yield();
        CHECK_EQ(fegetround(), FE_TOWARDZERO);
    }
    UNTIL(atomic_load(&count) == 20);
    CHECK_EQ(fegetround(), FE_TOWARDZERO);
    fesetround(FE_DOWNWARD);
    return 0;
}

TEST(task, floating_point_environment) {
    fesetround(FE_UPWARD);
    run_at_each(fp_main, NULL);
    CHECK_EQ(fegetround(), FE_UPWARD);
}

/* ---- errno ---- */

static int errno_stays_with_its_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        char byte;
        weft_yield();
        weft_set_errno(i + 1);
        CHECK_EQ(weft_errno(), i + 1);
        CHECK_EQ(read(-1, &byte, 1), -1);
        CHECK_EQ(weft_errno(), EBADF);
    }
    return 0;
}

static int errnos(void *arg) {
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, errno_stays_with_its_thread, arg), 0);
    }
    weft_waitgroup_wait(&w);
    return 0;
}

TEST(task, errno_of_this_thread) {
    run_at_each(errnos, NULL);
    weft_set_errno(E2BIG);
    CHECK_EQ(errno, E2BIG);
    CHECK_EQ(weft_errno(), E2BIG);
}

/* ---- stacks ---- */

static int use_stack(int depth) {
    volatile char frame[1024];
    memset((char *)frame, depth, sizeof frame);
    int sum = depth > 0 ? use_stack(depth - 1) : 0;
    return sum + frame[512];
}

static int deep(void *arg) {
#ifdef WEFT__ASAN
    int levels = 60; /* its frames are several times as large */
#else
    int levels = 200;
#endif
    int expect = 0;
    for (int i = 0; i <= levels; i++) {
        expect += (signed char)i;
    }
    CHECK_EQ(use_stack(levels), expect);
    weft_yield();
    CHECK_EQ(use_stack(levels), expect);
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int deep_ones(void *arg) {
    (void)arg;
    atomic_int count = 0;
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(weft_go(deep, &count), 0);
    }
    UNTIL(atomic_load(&count) == 50);
    return 0;
}

TEST(task, stacks_are_as_large_as_promised) { run_at_each(deep_ones, NULL); }

/* ---- names, in the dump ---- */

static int dump_fd;

static const char *dump_text(weft_runtime *rt) {
    static char text[65536];
    CHECK_EQ(ftruncate(dump_fd, 0), 0);
    CHECK_EQ(lseek(dump_fd, 0, SEEK_SET), 0);
    CHECK_EQ(weft_dump(rt, dump_fd), 0);
    ssize_t n = pread(dump_fd, text, sizeof text - 1, 0);
    CHECK_GT(n, 0);
    text[n] = 0;
    return text;
}

static int named_waiter(void *arg) {
    weft_set_name("waiter %d of %s", 7, "nine");
    weft_event_wait(arg);
    return 0;
}

static int long_named_waiter(void *arg) {
    weft_set_name("%070d", 0);
    weft_event_wait(arg);
    return 0;
}

static int dump_all(void *arg) {
    (void)arg;
    weft_event e = WEFT_EVENT_INIT;
    party a, b;
    world.parties = PARTIES_GREEN;
    party_start(&a, named_waiter, &e);
    party_start(&b, long_named_waiter, &e);
    party_parked(&a);
    party_parked(&b);
    const char *text = dump_text(NULL);
    char zeros[65] = "";
    memset(zeros, '0', 64);
    CHECK(strstr(text, "(waiter 7 of nine): waiting in event") != NULL);
    CHECK(strstr(text, "green thread 1: running") != NULL);
    CHECK(strstr(text, zeros + 1) != NULL); /* 63 bytes are kept */
    CHECK(strstr(text, zeros) == NULL);
    for (int i = 0; i < weft_procs(NULL); i++) {
        char p[16];
        snprintf(p, sizeof p, "P %d: ", i);
        CHECK(strstr(text, p) != NULL);
    }
    CHECK_EQ(weft_dump(NULL, -1), -EBADF);
    weft_event_set(&e);
    party_end(&a);
    party_end(&b);
    UNTIL(strstr(dump_text(NULL), "waiter 7") == NULL);
    return 0;
}

TEST(task, names_in_the_dump) {
    dump_fd = scratch_file(0);
    CHECK_GE(dump_fd, 0);
    weft_set_name("nobody"); /* on a plain thread: harmless */
    run_at_each(dump_all, NULL);
    CHECK_EQ(weft_dump(NULL, dump_fd), WEFT_ENORUNTIME);
    weft_runtime *r;
    weft_config c = config_of(3);
    c.name = "dumped";
    CHECK_EQ(weft_start(&r, &c), 0);
    CHECK(strstr(dump_text(r), "dumped") != NULL);
    CHECK_EQ(weft_stop(r, -1), 0);
}
