/* test.h: the words tests are written in.
 *
 *     TEST(heap, keeps_order) {
 *         CHECK_EQ(weft__heap_min(&h), 7);
 *     }
 *
 * Every test runs in a process of its own with a time limit. Two runners know these words: Criterion,
 * and our own (test/runner/own.c) where Criterion is missing or cannot serve: under TSan, where it does
 * not run, and under ASan, where it loses the leak checker's verdict. The build picks one with
 * WEFT_OWN_RUNNER; a test cannot tell which.
 *
 * A CHECK may stand in any function and on any thread, green or not: it reports with one write(2) and
 * ends the process. It never jumps, so it never leaves a green thread's stack by the wrong door.
 */
#ifndef WEFT_TEST_H
#define WEFT_TEST_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct test_case {
    const char *suite;
    const char *name;
    double seconds; /* time limit before slack and stress time */
    void (*body)(void);
    struct test_case *next; /* in the order of the file */
};

/* One test; 20 seconds are its limit. */
#define TEST(suite, name) TEST_IN(suite, name, 20)

/* One test with a limit of its own. WEFT_TEST_SLACK multiplies it, WEFT_STRESS_SECONDS is added. */
#define TEST_IN(suite, name, limit)                                                                \
    static void suite##_##name##_body(void);                                                       \
    static struct test_case suite##_##name##_case = {#suite, #name, limit, suite##_##name##_body,  \
                                                     NULL};                                        \
    TEST__ENROL(suite, name)                                                                       \
    static void suite##_##name##_body(void)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            test_fail(__FILE__, __LINE__, "CHECK(%s)", #cond);                                     \
        }                                                                                          \
    } while (0)

/* Integers, compared and printed as long long. Pointers fit too. */
#define CHECK_EQ(a, b) TEST__COMPARE("CHECK_EQ", ==, a, b)
#define CHECK_NE(a, b) TEST__COMPARE("CHECK_NE", !=, a, b)
#define CHECK_LT(a, b) TEST__COMPARE("CHECK_LT", <, a, b)
#define CHECK_LE(a, b) TEST__COMPARE("CHECK_LE", <=, a, b)
#define CHECK_GT(a, b) TEST__COMPARE("CHECK_GT", >, a, b)
#define CHECK_GE(a, b) TEST__COMPARE("CHECK_GE", >=, a, b)

#define CHECK_STR(a, b) test_check_str(__FILE__, __LINE__, #a, #b, a, b)
#define CHECK_MEM(a, b, bytes) test_check_mem(__FILE__, __LINE__, #a, #b, a, b, bytes)

/* fn(arg), run in a forked child, must end it by signal `how` (SIGABRT) or with exit status
   `TEST_EXIT(status)`, and `text` (NULL: any) must stand in what it wrote to stderr. Call it before the
   process has other threads: the child has only the one that forked. */
#define CHECK_FAILS(how, text, fn, arg)                                                            \
    test_check_fails(__FILE__, __LINE__, #fn, how, text, fn, arg)
#define TEST_EXIT(status) (0x100 | (status))

/* Ends the test as skipped. Counted and named in the summary. */
void test_skip(const char *reason) __attribute__((noreturn));

/* How long a stress test runs: WEFT_STRESS_SECONDS, or what the test thinks enough. Once a test. */
double test_seconds(double otherwise);

/* What bounds in real time are multiplied by on this machine: WEFT_TEST_SLACK, or 1; more under a
   sanitizer. */
double test_slack(void);

/* True under `./dev test --timed`: only then do clock parts count. */
bool test_timed(void);

/* A clock part: always printed; a miss fails the test in timed mode only, when its body is over. */
void test_clock(bool kept, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the macros stand on. */
void test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
void test_check_str(const char *file, int line, const char *a_text, const char *b_text,
                    const char *a, const char *b);
void test_check_mem(const char *file, int line, const char *a_text, const char *b_text,
                    const void *a, const void *b, size_t bytes);
void test_check_fails(const char *file, int line, const char *fn_text, int how, const char *text,
                      void (*fn)(void *), void *arg);

#define TEST__COMPARE(word, op, a, b)                                                              \
    do {                                                                                           \
        long long test__a = (long long)(a), test__b = (long long)(b);                              \
        if (!(test__a op test__b)) {                                                               \
            test_fail(__FILE__, __LINE__, "%s(%s, %s): %lld, %lld", word, #a, #b, test__a,         \
                      test__b);                                                                    \
        }                                                                                          \
    } while (0)

void test_enrol(struct test_case *t);

#ifdef WEFT_OWN_RUNNER
#define TEST__ENROL(suite, name)                                                                   \
    __attribute__((constructor)) static void suite##_##name##_enrol(void) {                        \
        test_enrol(&suite##_##name##_case);                                                        \
    }
#else
#include <criterion/criterion.h>
void test_run(struct test_case *t);
double test_limit(const struct test_case *t);
/* Criterion takes its time limit from a constant, ours depends on the environment: it is put in before
   main, in the parent, which is who watches the clock. */
#define TEST__ENROL(suite, name)                                                                   \
    Test(suite, name) { test_run(&suite##_##name##_case); }                                        \
    __attribute__((constructor)) static void suite##_##name##_enrol(void) {                        \
        test_enrol(&suite##_##name##_case);                                                        \
        suite##_##name##_extra.timeout = test_limit(&suite##_##name##_case);                       \
    }
#endif

#endif
