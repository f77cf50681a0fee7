/* field/fork.c: a program with a runtime forks. Case C55. */
#include "field/field.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { C55_WRITERS = 4, C55_STATUS_RESULT = 10, C55_STATUS_SLOW = 11, C55_STATUS_FRESH = 12 };

static struct {
    int file;
    atomic_bool stop;
    atomic_long lines[C55_WRITERS];
    pid_t child;
    bool by_thread; /* a plain thread forks, not a green one */
    weft_runtime *rt;
} forked;

static int append_pid(void *arg) {
    atomic_long *lines = arg;
    while (!atomic_load(&forked.stop)) {
        char text[32];
        int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
        CHECK_EQ(write(forked.file, text, (size_t)n), n);
        atomic_fetch_add(lines, 1);
        weft_yield();
    }
    return 0;
}

static int do_nothing(void *arg) {
    *(int *)arg = 1;
    return 0;
}

/* A runtime of the child's own, on a thread that weft never saw. */
static void *run_fresh(void *arg) {
    int ran = 0, status = -1;
    weft_config cfg = config_of(2);
    int err = weft_run(do_nothing, &ran, &cfg, &status);
    *(bool *)arg = err == 0 && status == 0 && ran == 1;
    return NULL;
}

/* Only what a child of a program with threads may do, and what weft says of such a child. */
static void be_child(void) {
    bool fresh = false;
    pthread_t thread;
    thread_sleep(100 * MS);
    int64_t start = now();
    int err = weft_sleep(MS);
    if (err != -EPERM && !(forked.by_thread && err == 0)) {
        _exit(C55_STATUS_RESULT);
    }
    if (!within(now() - start, 50 * MS)) {
        _exit(C55_STATUS_SLOW);
    }
    if (pthread_create(&thread, NULL, run_fresh, &fresh) != 0 || pthread_join(thread, NULL) != 0 ||
        !fresh) {
        _exit(C55_STATUS_FRESH);
    }
    _exit(0);
}

static void fork_child(void) {
    forked.child = fork();
    if (forked.child == 0) {
        be_child();
    }
    CHECK_GT(forked.child, 0);
}

static void reap_child(void) {
    int how = 0;
    int64_t start = now();
    pid_t got = 0;
    while ((got = waitpid(forked.child, &how, WNOHANG)) == 0 && within(now() - start, 5 * SEC)) {
        thread_sleep(MS);
    }
    if (got == 0) {
        kill(forked.child, SIGKILL);
        waitpid(forked.child, &how, 0);
        test_fail(__FILE__, __LINE__, "the child hangs");
    }
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    test_clock(within(now() - start, SEC), "the child ended after %.1f ms, bound 1000",
               (double)(now() - start) / MS);
}

static int fork_in_g(void *arg) {
    fork_child();
    weft_event_set(arg);
    return 0;
}

static int start_writers(void *arg) {
    (void)arg;
    for (int i = 0; i < C55_WRITERS; i++) {
        WEFT_MUST(weft_go(append_pid, &forked.lines[i]));
    }
    return 0;
}

static void until_all_write(long more) {
    for (int i = 0; i < C55_WRITERS; i++) {
        long from = atomic_load(&forked.lines[i]);
        while (atomic_load(&forked.lines[i]) < from + more) {
            thread_sleep(MS);
        }
    }
}

static void check_only_own_pid(void) {
    char line[64], mine[32];
    snprintf(mine, sizeof mine, "%d\n", (int)getpid());
    FILE *in = fdopen(forked.file, "r");
    CHECK(in != NULL);
    rewind(in);
    while (fgets(line, sizeof line, in)) {
        CHECK_STR(line, mine);
    }
    fclose(in);
}

static void fork_beside_writers(int procs, bool by_thread) {
    weft_config cfg = config_of(procs);
    weft_event done = WEFT_EVENT_INIT;
    forked.by_thread = by_thread;
    atomic_store(&forked.stop, false);
    forked.file = scratch_file(O_APPEND);
    CHECK_GE(forked.file, 0);
    CHECK_EQ(weft_start(&forked.rt, &cfg), 0);
    CHECK_EQ(weft_submit(forked.rt, start_writers, NULL), 0);
    until_all_write(10);
    if (by_thread) {
        fork_child();
    } else {
        CHECK_EQ(weft_submit(forked.rt, fork_in_g, &done), 0);
        weft_event_wait(&done);
    }
    reap_child();
    until_all_write(10);
    atomic_store(&forked.stop, true);
    CHECK_EQ(weft_stop(forked.rt, 5 * SEC), 0);
    check_only_own_pid();
}

TEST_IN(field, C55, 60) {
#if UNDER_TSAN
    test_skip("the sanitizer ends a child of threads that makes threads");
#endif
    for (int procs = 1; procs <= 2; procs++) {
        fork_beside_writers(procs, false);
        fork_beside_writers(procs, true);
    }
}
