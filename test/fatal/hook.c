/* fatal/hook.c: what a host hears before its process is ended, and what becomes of a program in
   which nobody can go on. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weft.h>

static void say(const char *text) {
    size_t n = strlen(text);
    CHECK_EQ(write(STDERR_FILENO, text, n), n);
}

/* ---- the fatal hook -------------------------------------------------------------------------- */

static char hooks_arg[] = "the host's own";

static void hook(void *arg, const char *text) {
    CHECK(arg == hooks_arg);
    CHECK(strstr(text, "weft: fatal: waitgroup 0x") == text);
    CHECK(strstr(text, "its count would be -1 [green thread 1]"));
    CHECK(!strchr(text, '\n'));
    say("the hook was here\n");
}

static void hook_leaves(void *arg, const char *text) {
    (void)arg, (void)text;
    _exit(42);
}

static int below_zero(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_done(&wg);
    return 0;
}

static void run_with_hook(void *fn) {
    weft_config cfg = weft_config_default();
    cfg.hook_arg = hooks_arg;
    cfg.fatal = fn == hooks_arg ? hook : hook_leaves;
    int err = weft_run(below_zero, NULL, &cfg, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

TEST(fatal, hook_is_called_before_the_abort) {
    CHECK_FAILS(SIGABRT, "the hook was here\n", run_with_hook, hooks_arg);
    CHECK_FAILS(TEST_EXIT(42), "weft: fatal: waitgroup", run_with_hook, NULL);
}

/* ---- deadlock -------------------------------------------------------------------------------- */

static weft_mutex first = WEFT_MUTEX_INIT, second = WEFT_MUTEX_INIT;
static weft_waitgroup both_hold_one = WEFT_WAITGROUP_INIT;

static int lock_both(void *arg) {
    weft_mutex *one = arg, *other = one == &first ? &second : &first;
    weft_mutex_lock(one);
    weft_waitgroup_done(&both_hold_one);
    weft_waitgroup_wait(&both_hold_one);
    weft_mutex_lock(other);
    return 0;
}

static int wait_for_nobody(void *arg) {
    (void)arg;
    weft_chan *c;
    WEFT_MUST(weft_chan_new(&c, 8, 0));
    weft_waitgroup_add(&both_hold_one, 2);
    WEFT_MUST(weft_go(lock_both, &first));
    WEFT_MUST(weft_go(lock_both, &second));
    weft_set_name("waits for nobody");
    return weft_chan_recv(c, NULL);
}

static weft_config stuck_config(unsigned flags, int procs) {
    weft_config cfg = weft_config_default();
    cfg.flags = flags;
    cfg.procs = procs;
    return cfg;
}

static void stuck_is_fatal(void *procs) {
    weft_config cfg = stuck_config(WEFT_STUCK_FATAL, *(int *)procs);
    int err = weft_run(wait_for_nobody, NULL, &cfg, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

/* The first words on stderr are the report's: checked by a log that hands the line on. */
static void expect_report(void *arg, int level, const char *line) {
    CHECK_STR(arg, "log");
    CHECK_EQ(level, WEFT_LOG_ERROR);
    CHECK(strstr(line, "weft: deadlock: 3 green threads wait") == line);
    say("the log was here\n");
}

static void stuck_is_logged(void *procs) {
    weft_config cfg = stuck_config(WEFT_STUCK_FATAL, *(int *)procs);
    cfg.log = expect_report;
    cfg.hook_arg = "log";
    int err = weft_run(wait_for_nobody, NULL, &cfg, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

static void stuck_in_a_start(void *procs) {
    weft_runtime *rt;
    weft_config cfg = stuck_config(WEFT_STUCK_FATAL, *(int *)procs);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, wait_for_nobody, NULL), 0);
    for (;;) {
        pause();
    }
}

TEST(fatal, deadlock_report) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        CHECK_FAILS(SIGABRT, "weft: deadlock: 3 green threads wait", stuck_is_fatal, &procs);
        CHECK_FAILS(SIGABRT, "(waits for nobody): waiting in channel receive", stuck_is_fatal,
                    &procs);
        CHECK_FAILS(SIGABRT, ": waiting in mutex", stuck_is_fatal, &procs);
        CHECK_FAILS(SIGABRT, "the log was here\n", stuck_is_logged, &procs);
        CHECK_FAILS(SIGABRT, "weft: deadlock: 3 green threads wait", stuck_in_a_start, &procs);
    }
}

/* Without the flag it is a result, after the same report. */
static void stuck_returns(void *procs) {
    weft_config cfg = stuck_config(0, *(int *)procs);
    int status = 17;
    CHECK_EQ(weft_run(wait_for_nobody, NULL, &cfg, &status), -EDEADLK);
    CHECK_EQ(status, 17);
    _exit(43);
}

TEST(fatal, deadlock_is_a_result_otherwise) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        CHECK_FAILS(TEST_EXIT(43), "weft: deadlock: 3 green threads wait", stuck_returns, &procs);
    }
}

/* main is gone by weft_exit, the rest runs on, and then waits for nobody. */
static int leave_the_rest(void *arg) {
    WEFT_MUST(weft_go(wait_for_nobody, arg));
    weft_exit(0);
}

static void stuck_without_main(void *arg) {
    (void)arg;
    weft_config cfg = stuck_config(0, 2);
    CHECK_EQ(weft_run(leave_the_rest, NULL, &cfg, NULL), -EDEADLK);
    _exit(44);
}

TEST(fatal, deadlock_after_main_has_left) {
    CHECK_FAILS(TEST_EXIT(44), "weft: deadlock: 3 green threads wait", stuck_without_main, NULL);
}

/* weft_main makes an exit status of it. */
static int stuck_app(int argc, char **argv) {
    (void)argc, (void)argv;
    return wait_for_nobody(NULL);
}

static void stuck_main(void *arg) {
    (void)arg;
    char *argv[] = {(char[]){"app"}, NULL};
    _exit(weft_main(1, argv, stuck_app));
}

TEST(fatal, deadlock_in_weft_main) {
    CHECK_FAILS(TEST_EXIT(255), "weft: deadlock: 3 green threads wait", stuck_main, NULL);
}
