/* fatal/misuse.c: misuse of the API that no result can report ends the process with a line that
   says what was done. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

#include "sched/sched.h"

/* Runs fn as the first green thread; the process must not live to see the end of this. */
static void in_a_g(weft_fn fn) {
    int err = weft_run(fn, NULL, NULL, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

/* ---- locks ----------------------------------------------------------------------------------- */

static void unlock_never_locked(void *arg) {
    (void)arg;
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_unlock(&m);
}

static int unlock_twice_body(void *arg) {
    (void)arg;
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_lock(&m);
    weft_mutex_unlock(&m);
    weft_mutex_unlock(&m);
    return 0;
}

static void unlock_twice(void *arg) {
    (void)arg;
    in_a_g(unlock_twice_body);
}

/* With waiters gone through it: the slow paths leave the same word behind. */
static weft_mutex contended;

static int lock_and_unlock(void *arg) {
    (void)arg;
    weft_mutex_lock(&contended);
    weft_mutex_unlock(&contended);
    return 0;
}

static int unlock_after_waiters_body(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_mutex_lock(&contended);
    for (int i = 0; i < 4; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, lock_and_unlock, NULL));
    }
    for (int i = 0; i < 10; i++) {
        weft_yield();
    }
    weft_mutex_unlock(&contended);
    weft_waitgroup_wait(&wg);
    weft_mutex_unlock(&contended);
    return 0;
}

static void unlock_after_waiters(void *arg) {
    (void)arg;
    in_a_g(unlock_after_waiters_body);
}

TEST(fatal, unlock_of_unlocked_mutex) {
    CHECK_FAILS(SIGABRT, "weft: fatal: unlock of mutex 0x", unlock_never_locked, NULL);
    CHECK_FAILS(SIGABRT, "which is not locked [green thread 1]", unlock_twice, NULL);
    CHECK_FAILS(SIGABRT, "which is not locked", unlock_after_waiters, NULL);
}

/* ---- waitgroups ------------------------------------------------------------------------------ */

static void done_of_zero(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_done(&wg);
}

static int done_too_often_body(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, 3);
    weft_waitgroup_add(&wg, -4);
    return 0;
}

static void done_too_often(void *arg) {
    (void)arg;
    in_a_g(done_too_often_body);
}

static void add_too_much(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_waitgroup_add(&wg, INT32_MAX);
    weft_waitgroup_add(&wg, 1);
}

TEST(fatal, waitgroup_below_zero) {
    CHECK_FAILS(SIGABRT, "its count would be -1", done_of_zero, NULL);
    CHECK_FAILS(SIGABRT, "its count would be -1 [green thread 1]", done_too_often, NULL);
    CHECK_FAILS(SIGABRT, "its count would be 2147483648", add_too_much, NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void exit_on_a_stranger(void *arg) {
    (void)arg;
    weft_exit(3);
}

/* A plain thread that has used weft before has a stand-in; it is no green thread all the same. */
static void exit_on_a_known_thread(void *arg) {
    (void)arg;
    weft_yield();
    weft_exit(3);
}

TEST(fatal, exit_on_a_plain_thread) {
    CHECK_FAILS(SIGABRT, "weft_exit on a thread that is no green thread", exit_on_a_stranger, NULL);
    CHECK_FAILS(SIGABRT, "weft_exit on a thread that is no green thread", exit_on_a_known_thread,
                NULL);
}

/* ---- the top of a stack ---------------------------------------------------------------------- */

/* What an overrun of the outermost frame's buffers meets first. */
static void run_over_the_top(void) {
    volatile uint64_t *word = weft__g_canary(weft__m_self()->g);
    CHECK_LT((char *)word - (char *)__builtin_frame_address(0), 512); /* not far above the frames */
    CHECK_NE(*word, 0);
    *word ^= 0xff00;
}

static int over_then_return(void *arg) {
    (void)arg;
    run_over_the_top();
    return 0;
}

static int over_then_exit(void *arg) {
    (void)arg;
    run_over_the_top();
    weft_exit(0);
}

static int start_the_overrun(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    WEFT_MUST(weft_waitgroup_go(&wg, over_then_return, NULL));
    weft_waitgroup_wait(&wg);
    return 0;
}

static void overrun_returns(void *arg) {
    (void)arg;
    in_a_g(over_then_return);
}

static void overrun_exits(void *arg) {
    (void)arg;
    in_a_g(over_then_exit);
}

static void overrun_of_another(void *arg) {
    (void)arg;
    in_a_g(start_the_overrun);
}

TEST(fatal, overrun_of_the_top) {
    CHECK_FAILS(SIGABRT, "green thread 1 wrote over the top of its stack", overrun_returns, NULL);
    CHECK_FAILS(SIGABRT, "green thread 1 wrote over the top of its stack", overrun_exits, NULL);
    CHECK_FAILS(SIGABRT, "wrote over the top of its stack", overrun_of_another, NULL);
}

/* ---- channels -------------------------------------------------------------------------------- */

static weft_chan *held_by_its_waiter;

static int receive_for_ever(void *arg) {
    (void)arg;
    return weft_chan_recv(held_by_its_waiter, NULL);
}

/* A parked receiver keeps the memory, so this is no use after free. */
static int unref_once_too_often_body(void *arg) {
    (void)arg;
    WEFT_MUST(weft_chan_new(&held_by_its_waiter, 8, 0));
    WEFT_MUST(weft_go(receive_for_ever, NULL));
    weft_stats s;
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting == 0);
    weft_chan_unref(held_by_its_waiter);
    weft_chan_unref(held_by_its_waiter);
    return 0;
}

static void unref_once_too_often(void *arg) {
    (void)arg;
    in_a_g(unref_once_too_often_body);
}

TEST(fatal, channel_unreferenced_too_often) {
    CHECK_FAILS(SIGABRT, "more references given up than were held", unref_once_too_often, NULL);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void (*call_in_child)(void);

/* What has no result and would have to wait: nobody is left who could end the wait. */
static void wait_for_event(void) {
    weft_event e = WEFT_EVENT_INIT;
    weft_event_wait(&e);
}

static void lock_what_is_locked(void) {
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_lock(&m);
    weft_mutex_lock(&m);
}

static int fork_in_a_g(void *arg) {
    (void)arg;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        call_in_child();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 99);
}

static void forked(void *arg) {
    (void)arg;
    in_a_g(fork_in_a_g);
}

TEST(fatal, wait_without_result_in_a_forked_child) {
    static void (*const calls[])(void) = {wait_for_event, lock_what_is_locked};
    for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
        call_in_child = calls[i];
        CHECK_FAILS(TEST_EXIT(SIGABRT), "a forked child waits", forked, NULL);
    }
}

static int fork_and_return(void *arg) {
    (void)arg;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        return 0;
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 99);
}

static void forked_returns(void *arg) {
    (void)arg;
    in_a_g(fork_and_return);
}

TEST(fatal, return_in_a_forked_child) {
    CHECK_FAILS(TEST_EXIT(SIGABRT), "a green thread returned in a forked child", forked_returns,
                NULL);
}

/* ---- weft_must ------------------------------------------------------------------------------- */

static void must_of_an_error(void *arg) {
    (void)arg;
    weft_chan *c;
    WEFT_MUST(weft_chan_new(&c, SIZE_MAX, 2));
}

TEST(fatal, must_of_an_error) {
    CHECK_FAILS(SIGABRT, "weft_chan_new(&c, SIZE_MAX, 2)", must_of_an_error, NULL);
}
