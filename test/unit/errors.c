/* unit/errors.c: every code has a name and a text of its own, the names are the system's, and what
   has none says so. */
#define _GNU_SOURCE 1
#include <weft/base.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "test.h"

/* What the C library knows is what there is on this system. */
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 32)
#define SYSTEM_NAME(err) strerrorname_np(err)
#endif
#endif

enum { LAST_SYSTEM = 2000 }; /* larger than any system's own numbers */

static const int own_codes[] = {
    WEFT_EOF,        WEFT_EAI_AGAIN,  WEFT_EAI_FAIL,   WEFT_EAI_FAMILY,
    WEFT_EAI_MEMORY, WEFT_EAI_NODATA, WEFT_EAI_NONAME, WEFT_EAI_SERVICE,
    WEFT_ENORUNTIME, WEFT_ESTOPPING,  WEFT_EPEERDEAD,
};

TEST(errors, names) {
    CHECK_STR(weft_errname(-ETIMEDOUT), "ETIMEDOUT");
    CHECK_STR(weft_errname(-EAGAIN), "EAGAIN");
    CHECK_STR(weft_errname(-EWOULDBLOCK), "EAGAIN");
    CHECK_STR(weft_errname(-EOPNOTSUPP), "EOPNOTSUPP");
    CHECK_STR(weft_errname(WEFT_EOF), "WEFT_EOF");
    CHECK_STR(weft_errname(WEFT_EAI_NONAME), "EAI_NONAME");
    CHECK_STR(weft_errname(WEFT_EAI_SERVICE), "EAI_SERVICE");
    CHECK_STR(weft_errname(WEFT_ENORUNTIME), "WEFT_ENORUNTIME");
    CHECK_STR(weft_errname(WEFT_ESTOPPING), "WEFT_ESTOPPING");
    CHECK_STR(weft_errname(WEFT_EPEERDEAD), "WEFT_EPEERDEAD");
}

TEST(errors, all_that_the_system_names) {
#ifdef SYSTEM_NAME
    int named = 0;
    for (int err = 1; err <= LAST_SYSTEM; err++) {
        const char *name = SYSTEM_NAME(err);
        CHECK_STR(weft_errname(-err), name ? name : "E?");
        CHECK_EQ(strcmp(weft_strerror(-err), "unknown error") == 0, name == NULL);
        named += name != NULL;
    }
    CHECK_GT(named, 100);
#else
    test_skip("this C library has no strerrorname_np");
#endif
}

TEST(errors, unknown) {
    static const int unknown[] = {INT_MIN, INT_MAX, -100000, -4096, 1, EAGAIN, 4095, -5000};
    for (size_t i = 0; i < WEFT_COUNT(unknown); i++) {
        CHECK_STR(weft_errname(unknown[i]), "E?");
        CHECK_STR(weft_strerror(unknown[i]), "unknown error");
    }
    CHECK_STR(weft_errname(0), "E?");
    CHECK_STR(weft_strerror(0), "no error");
}

static void check_text(int err) {
    const char *text = weft_strerror(err);
    size_t n = strlen(text);
    CHECK_GT(n, 0);
    CHECK_LT(n, 80);
    CHECK(text[n - 1] != '.' && text[n - 1] != '\n');
    CHECK(weft_strerror(err) == text);
}

TEST(errors, no_two_texts_are_the_same) {
    static int codes[LAST_SYSTEM + WEFT_COUNT(own_codes)];
    size_t n = 0;
    for (int err = 1; err <= LAST_SYSTEM; err++) {
        if (strcmp(weft_errname(-err), "E?") != 0) codes[n++] = -err;
    }
    for (size_t i = 0; i < WEFT_COUNT(own_codes); i++) codes[n++] = own_codes[i];
    for (size_t i = 0; i < n; i++) {
        check_text(codes[i]);
        for (size_t j = 0; j < i; j++) {
            CHECK_NE(codes[i], codes[j]);
            CHECK(strcmp(weft_strerror(codes[i]), weft_strerror(codes[j])) != 0);
            CHECK(strcmp(weft_errname(codes[i]), weft_errname(codes[j])) != 0);
        }
    }
}

/* errno is the caller's: a handler that prints an error does not change it. */
TEST(errors, errno_is_left_alone) {
    errno = 77;
    weft_strerror(-EPIPE);
    weft_errname(INT_MIN);
    CHECK_EQ(errno, 77);
}

static int fails(void) { return -ECONNREFUSED; }

static void must_fail(void *arg) {
    (void)arg;
    WEFT_MUST(fails());
}

TEST(errors, must) {
    CHECK_EQ(weft_must(0, "zero"), 0);
    CHECK_EQ(WEFT_MUST(INT_MAX), INT_MAX);
    CHECK_FAILS(SIGABRT, "fails(): connection refused (ECONNREFUSED", must_fail, NULL);
}

TEST(errors, version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    CHECK_STR(weft_version(), text);
}
