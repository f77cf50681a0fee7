/* fixture.c: tests that go wrong in every way, for selftest.py to see what the runners make of them. Built
 * once for each runner. */
#include "../test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

TEST(good, passes) {
    CHECK(1 + 1 == 2);
    CHECK_EQ(2, 2);
    CHECK_NE(2, 3);
    CHECK_LT(-1, 1);
    CHECK_LE(1, 1);
    CHECK_GT(1, -1);
    CHECK_GE(1, 1);
    CHECK_STR("a", "a");
    CHECK_MEM("ab", "ac", 1);
}

TEST(bad, check) {
    printf("printed before\n");
    int a = 1;
    CHECK(a == 2);
}

TEST(bad, eq) { CHECK_EQ(40 + 2, 43); }

TEST(bad, str) { CHECK_STR("left", "right"); }

TEST(bad, mem) { CHECK_MEM("ab", "ac", 2); }

static void *fail_there(void *arg) {
    CHECK(arg != NULL);
    return NULL;
}

TEST(bad, on_a_thread) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, fail_there, NULL), 0);
    pthread_join(t, NULL);
}

TEST(bad, aborts) { abort(); }

TEST(bad, segfaults) { raise(SIGSEGV); }

TEST(bad, exits_early) { exit(0); }

TEST(bad, exits_early_underscore) { _exit(0); }

TEST_IN(bad, hangs, 1) { pause(); }

/* What a test leaves behind must not hold up its runner. */
TEST_IN(good, leaves_a_child, 30) {
    if (fork() == 0) {
        sleep(600);
        _exit(0);
    }
}

TEST(skip, by_itself) { test_skip("nothing to see here"); }

static void *skip_there(void *arg) {
    (void)arg;
    test_skip("skipped from a thread");
}

TEST(skip, on_a_thread) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, skip_there, NULL), 0);
    pthread_join(t, NULL);
}

static void say_and_abort(void *text) {
    fprintf(stderr, "the end: %s\n", (const char *)text);
    abort();
}

static void say_and_exit(void *text) {
    fprintf(stderr, "%s\n", (const char *)text);
    _exit(3);
}

static void segfault(void *arg) {
    (void)arg;
    raise(SIGSEGV);
}

static void do_nothing(void *arg) { (void)arg; }

TEST(good, fails_as_expected) {
    CHECK_FAILS(SIGABRT, "the end: of it", say_and_abort, "of it");
    CHECK_FAILS(TEST_EXIT(3), "words", say_and_exit, "some words");
    CHECK_FAILS(SIGSEGV, NULL, segfault, NULL);
    CHECK_FAILS(TEST_EXIT(0), NULL, do_nothing, NULL);
}

TEST(bad, fails_not_at_all) { CHECK_FAILS(SIGABRT, NULL, do_nothing, NULL); }

TEST(bad, fails_by_another_signal) { CHECK_FAILS(SIGSEGV, NULL, say_and_abort, "x"); }

TEST(bad, fails_by_another_status) { CHECK_FAILS(TEST_EXIT(4), NULL, say_and_exit, "x"); }

TEST(bad, fails_without_the_text) { CHECK_FAILS(SIGABRT, "other words", say_and_abort, "x"); }

TEST(clock, kept) { test_clock(true, "took %d ms", 7); }

TEST(clock, missed) { test_clock(false, "took %d ms", 99); }

TEST(env, seconds) {
    printf("seconds %g\n", test_seconds(2));
    CHECK(test_seconds(2) == 5);
}

TEST(env, slack) { CHECK(test_slack() >= 3); }

/* Longer than its limit, and within it once the slack is counted. */
TEST_IN(env, limit_grows, 1) { sleep(2); }
