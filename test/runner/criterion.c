/* criterion.c: the main program of a test built on Criterion. Takes the same arguments as our own runner
 * (SUITE/NAME globs, --list), and closes with the same last line; Criterion's options work too. */
#include "runner.h"

#include <criterion/hooks.h>
#include <stdlib.h>

static struct tally tally;

/* Criterion's word is not enough: the test must have said that it came to its end. */
static void judge(const struct criterion_test_stats *t, const char *suite) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", suite, t->test->name);
    if (t->test_status == CR_STATUS_SKIPPED) {
        return; /* not chosen by the filter; our skips look like passes to Criterion */
    }
    if (t->test_status == CR_STATUS_FAILED || t->crashed || t->timed_out) {
        tally.failed++;
        printf("FAIL %s\n", full);
    } else if (report_has("skip", full)) {
        tally.skipped++;
    } else if (report_has("done", full)) {
        tally.passed++;
    } else {
        tally.failed++;
        printf("FAIL %s: its process ended before the test did\n", full);
    }
}

ReportHook(POST_ALL)(struct criterion_global_stats *all) {
    for (struct criterion_suite_stats *s = all->suites; s; s = s->next) {
        for (struct criterion_test_stats *t = s->tests; t; t = t->next) {
            judge(t, s->suite->name);
        }
    }
}

/* The globs "A" and "B" become one "--filter=@(A|B)", which takes the place of the first. */
static int translate(int argc, char **argv) {
    static char filter[64 * 1024];
    size_t len = (size_t)snprintf(filter, sizeof filter, "--filter=@(");
    int kept = 1;
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            argv[kept++] = argv[i];
            continue;
        }
        len += (size_t)snprintf(filter + len, sizeof filter - len, "%s%s", any ? "|" : "", argv[i]);
        if (len >= sizeof filter - 2) {
            fprintf(stderr, "too many names\n");
            exit(2);
        }
        if (!any) argv[kept++] = filter;
        any = true;
    }
    snprintf(filter + len, sizeof filter - len, ")");
    argv[kept] = NULL;
    return kept;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            return test_list(argc, argv);
        }
    }
    argc = translate(argc, argv);
    struct criterion_test_set *tests = criterion_initialize();
    criterion_options.jobs = 1; /* whoever runs many programs decides what runs side by side */
    if (!criterion_handle_args(argc, argv, true)) {
        criterion_finalize(tests);
        return 0;
    }
    report_open();
    int ok = criterion_run_all_tests(tests);
    criterion_finalize(tests);
    fflush(stderr);
    if (!ok && tally.failed == 0) {
        tally.failed++;
        printf("FAIL (Criterion reports an error of its own)\n");
    }
    return report_finish(&tally);
}
