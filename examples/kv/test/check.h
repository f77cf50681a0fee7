/* check.h: the least that a test needs: CHECK counts, check_end says how it went. */
#ifndef KV_CHECK_H
#define KV_CHECK_H
#include "bytes.h"
#include <stdio.h>

static int checks_passed, checks_failed;

#define CHECK(condition) check_one((condition), #condition, __FILE__, __LINE__)

static inline bool check_one(bool good, const char *what, const char *file, int line) {
    if (good) {
        checks_passed++;
    } else {
        checks_failed++;
        printf("%s:%d: not so: %s\n", file, line, what);
    }
    return good;
}

static inline bool bytes_equal(struct bytes a, struct bytes b) {
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* Bytes of a literal that may hold zeros. */
#define LITERAL(text) ((struct bytes){(text), sizeof(text) - 1})

/* The status that main returns. A test that checked nothing has failed. */
static inline int check_end(void) {
    printf("%d passed, %d failed\n", checks_passed, checks_failed);
    return checks_failed != 0 || checks_passed == 0;
}
#endif
