/* unit/shell.c: what outlives weft_run frees itself when it ends. */
#include "test.h"
#include "unit/world.h"

#include <unistd.h>

static int pipe_ends[2];
static atomic_int begun, ended, stacks;
static atomic_bool let_go;

static int nobody(void *arg) {
    (void)arg;
    return 0;
}

/* Once it is back: cancelled wherever it waits. */
static void is_cancelled(void) {
    CHECK_EQ(weft_sleep(WEFT_SECOND), -ECANCELED);
    weft_chan *c;
    int v;
    WEFT_MUST(weft_chan_new(&c, sizeof(int), 0));
    CHECK_EQ(weft_chan_recv(c, &v), -ECANCELED);
    weft_chan_unref(c);
    CHECK_EQ(weft_go(nobody, NULL), WEFT_ESTOPPING);
    atomic_fetch_add(&ended, 1);
}

static int reads(void *arg) {
    char byte;
    (void)arg;
    atomic_fetch_add(&begun, 1);
    CHECK_EQ(read(pipe_ends[0], &byte, 1), 1);
    is_cancelled();
    return 0;
}

static int computes(void *arg) {
    (void)arg;
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&let_go)) {
    }
    is_cancelled();
    return 0;
}

static int yields(void *arg) {
    (void)arg;
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&let_go)) {
        weft_yield();
    }
    is_cancelled();
    return 0;
}

static int reads_locked(void *arg) {
    weft_lock_thread();
    return reads(arg);
}

struct leaving {
    weft_fn fn;
    int n;
};

static int leave(void *arg) {
    struct leaving *l = arg;
    weft_lock_thread(); /* else one of them may sit on the thread of weft_run, which could not return */
    for (int i = 0; i < l->n; i++) {
        CHECK_EQ(weft_go(l->fn, NULL), 0);
    }
    UNTIL(atomic_load(&begun) == l->n);
    return 0;
}

static void count_stacks(void *arg, void *low, size_t bytes, int live) {
    (void)arg;
    (void)low;
    (void)bytes;
    atomic_fetch_add(&stacks, live ? 1 : -1);
}

static void quiet(void *arg, int level, const char *line) {
    (void)arg;
    (void)level;
    (void)line;
}

static void outlived_by(weft_fn fn, int n) {
    CHECK_EQ(weft_run(nobody, NULL, NULL, NULL),
             0); /* a sanitizer makes its own thread with the first */
    for (int procs = 1; procs <= 2; procs++) {
        struct leaving l = {fn, n};
        weft_config c = config_of(procs);
        c.stop_limit = 5 * WEFT_MILLISECOND;
        c.log = quiet;
        c.stack_map = count_stacks;
        atomic_store(&begun, 0);
        atomic_store(&ended, 0);
        atomic_store(&stacks, 0);
        atomic_store(&let_go, false);
        CHECK_EQ(pipe(pipe_ends), 0);
        int threads_before = threads_now(), files_before = fds_now();
        CHECK_EQ(weft_run(leave, &l, &c, NULL), -ETIMEDOUT);
        CHECK_EQ(atomic_load(&ended), 0);
        CHECK_GT(threads_now(), threads_before);
        CHECK_GT(atomic_load(&stacks), 0);
        atomic_store(&let_go, true);
        for (int i = 0; i < n; i++) {
            CHECK_EQ(write(pipe_ends[1], "x", 1), 1);
        }
        UNTIL(atomic_load(&ended) == n);
        /* `before` may have counted one that had been joined already, and was listed still */
        UNTIL(threads_now() <= threads_before);
        UNTIL(fds_now() == files_before);
        UNTIL(atomic_load(&stacks) == 0);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
    }
}

TEST(shell, of_who_reads) { outlived_by(reads, 1); }
TEST(shell, of_many) { outlived_by(reads, 20); }
TEST(shell, of_who_computes) { outlived_by(computes, 1); }
TEST(shell, of_who_yields) { outlived_by(yields, 3); }
TEST(shell, of_who_is_locked) { outlived_by(reads_locked, 2); }

/* The last to end takes its thread along: who waits for it is told all the same. */
static int ends_locked(void *arg) {
    (void)arg;
    weft_lock_thread();
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int exits_first(void *arg) {
    for (int i = 0; i < *(int *)arg; i++) {
        CHECK_EQ(weft_go(ends_locked, NULL), 0);
    }
    weft_exit(6);
}

TEST(shell, the_last_may_end_locked) {
    for (int i = 0; i < 30; i++) {
        int status = 0, n = 1 + i % 3;
        weft_config c = config_of(1 + i % 2);
        atomic_store(&ended, 0);
        CHECK_EQ(weft_run(exits_first, &n, &c, &status), 0);
        CHECK_EQ(status, 6);
        CHECK_EQ(atomic_load(&ended), n);
    }
}
