/* registry.c: which tests this program has, and which of them were asked for. */
#include "runner.h"

#include <fnmatch.h>

static struct test_case *first;
static struct test_case **last = &first;

/* Runs before main, from the constructor that each TEST leaves behind. */
void test_enrol(struct test_case *t) {
    *last = t;
    last = &t->next;
}

struct test_case *test_first(void) {
    return first;
}

bool test_chosen(const struct test_case *t, int argc, char **argv) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", t->suite, t->name);
    bool any = false, match = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            any = true;
            match = match || fnmatch(argv[i], full, 0) == 0;
        }
    }
    return match || !any;
}

int test_list(int argc, char **argv) {
    for (struct test_case *t = first; t; t = t->next) {
        if (test_chosen(t, argc, argv)) {
            printf("%s/%s\n", t->suite, t->name);
        }
    }
    return 0;
}
