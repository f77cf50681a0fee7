/* runner.h: what the checks (in the test's process) and the two runners (in its parent) share.
 *
 * A test's process speaks to its runner through the report, a file named by WEFT_TEST_REPORT to which
 * whole lines are appended:
 *
 *     done SUITE/NAME              the body came to its end
 *     skip SUITE/NAME: REASON      it ended itself by test_skip
 *     kept SUITE/NAME: TEXT        a clock part
 *     missed SUITE/NAME: TEXT      a clock part
 *
 * A test has passed when its process ended with status 0 *and* it said "done": a library that calls
 * exit(0) in the middle of a test must not make it pass.
 */
#ifndef WEFT_TEST_RUNNER_H
#define WEFT_TEST_RUNNER_H
#include "../test.h"

#include <stdio.h>

struct tally {
    int passed;
    int failed;
    int skipped;
};

/* In the test's process. */
void test_run(struct test_case *t);
void test_no_core(void);

/* In the runner. Arguments that do not begin with - are globs for SUITE/NAME; none of them: all tests. */
struct test_case *test_first(void);
bool test_chosen(const struct test_case *t, int argc, char **argv);
int test_list(int argc, char **argv); /* names those chosen; the program's exit status */
double test_limit(const struct test_case *t);
void report_open(void); /* makes the file and names it in the environment */
bool report_has(const char *word,
                const char *full_name); /* "done" or "skip" was said of this test */
int report_finish(
    struct tally *t); /* skips, clock parts, the last line; the program's exit status */
#endif
