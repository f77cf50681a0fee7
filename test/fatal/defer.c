/* fatal/defer.c: a deferred call that was left behind in a frame that has gone is said aloud, not
   called. */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft.h>

static void in_a_g(weft_fn fn) {
    int err = weft_run(fn, NULL, NULL, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

static void never(void *arg) {
    (void)arg;
    fprintf(stderr, "a deferred call that was left behind has run\n");
    _exit(9);
}

static void fine(void *arg) { (void)arg; }

static uintptr_t where;

static __attribute__((noinline)) void leaves_one(void) {
    weft_deferred d;
    weft_defer(&d, never, NULL);
    where = (uintptr_t)&d;
}

/* As some call would, sooner or later. */
__attribute__((noinline
#ifdef __SANITIZE_ADDRESS__
               ,
               no_sanitize_address
#endif
               )) static void
write_over(void) {
    volatile unsigned char *gone = (volatile unsigned char *)where;
    for (size_t i = 0; i < sizeof(weft_deferred); i++) {
        gone[i] = (unsigned char)(i * 7 + 1);
    }
}

static int then_defers(void *arg) {
    (void)arg;
    weft_deferred d;
    leaves_one();
    weft_defer(&d, fine, NULL);
    return 0;
}

static int then_runs(void *arg) {
    (void)arg;
    weft_deferred d;
    weft_defer(&d, fine, NULL);
    leaves_one();
    weft_defer_run(&d);
    return 0;
}

static int then_drops(void *arg) {
    (void)arg;
    weft_deferred d;
    weft_defer(&d, fine, NULL);
    leaves_one();
    weft_defer_drop(&d);
    return 0;
}

static int then_exits(void *arg) {
    (void)arg;
    leaves_one();
    weft_exit(0);
}

static int then_returns(void *arg) {
    (void)arg;
    leaves_one();
    write_over();
    return 0;
}

static __attribute__((noinline)) void exits_below(void) {
    volatile char room[4000]; /* so that the node lies above */
    room[0] = room[3999] = 0;
    __asm__ volatile("" : : "r"(room) : "memory"); /* all of it: clang keeps only what is used */
    write_over();
    weft_exit(room[0]);
}

/* From a deeper frame it lies where live ones do; its words give it away. */
static int then_goes_deeper(void *arg) {
    (void)arg;
    leaves_one();
    exits_below();
    return 0;
}

static void starts(void *arg) { in_a_g(*(weft_fn *)arg); }

static void is_said_of(weft_fn fn) {
    CHECK_FAILS(
        SIGABRT,
        "a function returned and left a deferred call behind: run or drop it before, or use "
        "WEFT_DEFER [green thread 1]",
        starts, &fn);
}

TEST(fatal, deferred_left_behind_then_defers) { is_said_of(then_defers); }
TEST(fatal, deferred_left_behind_then_runs) { is_said_of(then_runs); }
TEST(fatal, deferred_left_behind_then_drops) { is_said_of(then_drops); }
TEST(fatal, deferred_left_behind_then_exits) { is_said_of(then_exits); }
TEST(fatal, deferred_left_behind_then_returns) { is_said_of(then_returns); }
TEST(fatal, deferred_left_behind_then_goes_deeper) { is_said_of(then_goes_deeper); }

/* ---- another's ---- */

static weft_deferred others;

static int runs_it(void *arg) {
    (void)arg;
    weft_defer_run(&others);
    return 0;
}

static int drops_it(void *arg) {
    (void)arg;
    weft_defer_drop(&others);
    return 0;
}

static int lends_it(void *arg) {
    weft_fn *fn = arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_defer(&others, fine, NULL);
    WEFT_MUST(weft_waitgroup_go(&wg, *fn, NULL));
    weft_waitgroup_wait(&wg);
    weft_defer_run(&others);
    return 0;
}

static void by_another(void *arg) {
    int err = weft_run(lends_it, arg, NULL, NULL);
    fprintf(stderr, "weft_run: %s\n", weft_strerror(err));
}

TEST(fatal, deferred_by_another) {
    weft_fn run = runs_it, drop = drops_it;
    CHECK_FAILS(SIGABRT,
                "weft_defer_run of a call that was deferred by another green thread or thread",
                by_another, &run);
    CHECK_FAILS(SIGABRT,
                "weft_defer_drop of a call that was deferred by another green thread or thread",
                by_another, &drop);
}
