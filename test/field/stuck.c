/* field/stuck.c: a program that is dead says so. Case C78 but for a trace and a ticker. */
#include "field/field.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>

enum { C78_CYCLE = 3, C78_BYTES = 16384 };

static weft_mutex cycle[C78_CYCLE];
static weft_waitgroup locked;

static int no_firing(void *arg) {
    (void)arg;
    test_fail(__FILE__, __LINE__, "a timer that was stopped fired");
}

/* Each holds its own and wants the next one's. */
static int lock_in_cycle(void *arg) {
    size_t mine = (size_t)(uintptr_t)arg;
    weft_mutex_lock(&cycle[mine]);
    weft_waitgroup_done(&locked);
    weft_waitgroup_wait(&locked);
    weft_mutex_lock(&cycle[(mine + 1) % C78_CYCLE]);
    test_fail(__FILE__, __LINE__, "a cycle of locks let somebody through");
}

static int die_slowly(void *arg) {
    weft_listener l;
    weft_timer *t;
    weft_chan *nobody = arg;
    WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
    WEFT_MUST(weft_listener_close(l));
    WEFT_MUST(weft_after_func(&t, WEFT_HOUR, no_firing, NULL, NULL));
    CHECK(weft_timer_stop(t));
    weft_timer_free(t);
    weft_waitgroup_add(&locked, C78_CYCLE);
    for (uintptr_t i = 0; i < C78_CYCLE; i++) {
        WEFT_MUST(weft_go(lock_in_cycle, (void *)i));
    }
    weft_waitgroup_wait(&locked);
    return weft_chan_recv(nobody, NULL);
}

static int times(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) {
        n++;
    }
    return n;
}

/* What app's end says: its result, and what came out at stderr meanwhile. */
static int run_dead(weft_chan *nobody, int procs, char *said) {
    weft_config cfg = config_of(procs);
    int kept = dup(STDERR_FILENO), file = scratch_file(0);
    CHECK(kept >= 0 && file >= 0);
    CHECK_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
    int err = weft_run(die_slowly, nobody, &cfg, NULL);
    CHECK_EQ(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    ssize_t n = pread(file, said, C78_BYTES - 1, 0);
    CHECK_GT(n, 0);
    said[n] = 0;
    close(file);
    close(kept);
    return err;
}

static void die_at(int procs) {
    static char said[C78_BYTES];
    static weft_chan *kept[5] __attribute__((used)); /* what the stuck hold stays with them */
    weft_chan *nobody;
    memset(cycle, 0, sizeof cycle);
    CHECK_EQ(weft_chan_new(&nobody, 1, 0), 0);
    kept[procs] = nobody;
    int64_t start = now();
    int err = run_dead(nobody, procs, said);
    int64_t took = now() - start;
    if (err != -EDEADLK || times(said, "deadlock") != 1 || times(said, "waiting in") != 4 ||
        times(said, "waiting in mutex") != 3 || times(said, "waiting in channel receive") != 1) {
        test_fail(__FILE__, __LINE__, "P=%d: weft_run gave %d and said:\n%s", procs, err, said);
    }
    test_clock(within(took, SEC), "P=%d: the deadlock was told after %.1f ms, bound 1 s", procs,
               (double)took / MS);
}

TEST(field, C78a) {
    die_at(1);
    die_at(2);
    die_at(4);
}
