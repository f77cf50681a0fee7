/* check.c: what a test says while it runs.
 *
 * Everything that may be called on a green thread stays within a few KiB of stack, takes no lock and
 * ends the process by _exit, so that a failing check is heard even when the runtime under test is broken.
 */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLACK_OF_BUILD 4.0
#elif __has_feature(address_sanitizer)
#define SLACK_OF_BUILD 2.0
#endif
#endif
#if !defined(SLACK_OF_BUILD) && defined(__SANITIZE_THREAD__)
#define SLACK_OF_BUILD 4.0
#elif !defined(SLACK_OF_BUILD) && defined(__SANITIZE_ADDRESS__)
#define SLACK_OF_BUILD 2.0
#elif !defined(SLACK_OF_BUILD)
#define SLACK_OF_BUILD 1.0
#endif

static const struct test_case *current;
static atomic_bool clock_missed;

static double from_env(const char *name, double otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return otherwise;
    }
    char *end;
    double value = strtod(text, &end);
    if (*end || !(value > 0)) {
        fprintf(stderr, "%s=%s is not a positive number\n", name, text);
        _exit(2);
    }
    return value;
}

double test_seconds(double otherwise) { return from_env("WEFT_STRESS_SECONDS", otherwise); }

double test_slack(void) { return from_env("WEFT_TEST_SLACK", 1) * SLACK_OF_BUILD; }

bool test_timed(void) {
    const char *text = getenv("WEFT_TEST_TIMED");
    return text && *text && strcmp(text, "0") != 0;
}

double test_limit(const struct test_case *t) {
    return (t->seconds + from_env("WEFT_STRESS_SECONDS", 0)) * test_slack();
}

/* One write, so that lines of several threads and processes do not mix. */
static void write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return;
        }
        text += n;
        bytes -= (size_t)n;
    }
}

static void report(const char *word, const char *text) {
    const char *path = getenv("WEFT_TEST_REPORT");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (fd < 0 || !current) {
        return;
    }
    char line[512];
    int n = snprintf(line, sizeof line, "%s %s/%s%s%.300s\n", word, current->suite, current->name,
                     *text ? ": " : "", text);
    write_all(fd, line, (size_t)n);
    close(fd);
}

void test_fail(const char *file, int line, const char *fmt, ...) {
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%d: ", file, line);
    va_list args;
    va_start(args, fmt);
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, fmt, args);
    va_end(args);
    if (n > (int)sizeof text - 2) {
        n = (int)sizeof text - 2;
    }
    text[n++] = '\n';
    write_all(STDERR_FILENO, text, (size_t)n);
    _exit(1);
}

void test_check_str(const char *file, int line, const char *a_text, const char *b_text,
                    const char *a, const char *b) {
    if (a == b || (a && b && strcmp(a, b) == 0)) {
        return;
    }
    test_fail(file, line, "CHECK_STR(%s, %s): \"%.300s\", \"%.300s\"", a_text, b_text,
              a ? a : "(null)", b ? b : "(null)");
}

void test_check_mem(const char *file, int line, const char *a_text, const char *b_text,
                    const void *a, const void *b, size_t bytes) {
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < bytes; i++) {
        if (x[i] != y[i]) {
            test_fail(file, line, "CHECK_MEM(%s, %s): byte %zu of %zu: 0x%02x, 0x%02x", a_text,
                      b_text, i, bytes, x[i], y[i]);
        }
    }
}

void test_skip(const char *reason) {
    report("skip", reason);
    _exit(0);
}

void test_clock(bool kept, const char *fmt, ...) {
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    report(kept ? "kept" : "missed", text);
    if (!kept) {
        atomic_store(&clock_missed, true);
    }
}

/* Tests crash on purpose, some with gigabytes mapped: nobody wants those cores. */
void test_no_core(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

void test_run(struct test_case *t) {
    current = t;
    test_no_core();
    setvbuf(stdout, NULL, _IOLBF, 0); /* a failing check ends the process without flushing */
    t->body();
    if (test_timed() && atomic_load(&clock_missed)) {
        static const char text[] = "a clock part was missed\n";
        write_all(STDERR_FILENO, text, sizeof text - 1);
        _exit(1);
    }
    report("done", "");
}
