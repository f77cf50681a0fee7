/* child.c: CHECK_FAILS, a function that must bring its process down, tried in a child. */
#include "runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_SECONDS = 10, KEPT_BYTES = 16 * 1024 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The child meets signals as a plain program does: a sanitizer's handlers would turn a SIGSEGV into an
   exit status. */
static void run_child(int err, void (*fn)(void *), void *arg) {
    static const int plain[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test_no_core();
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        signal(plain[i], SIG_DFL);
    }
    dup2(err, STDERR_FILENO);
    fn(arg);
    _exit(0);
}

/* Reads until the other end is closed: true; or until the deadline: false. Keeps what fits. */
static bool read_until(int fd, double deadline, char *text, size_t *len) {
    char sink[4096];
    for (;;) {
        double left = deadline - now();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        ssize_t got = read(fd, sink, sizeof sink);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return true;
        }
        size_t room = KEPT_BYTES - *len;
        size_t keep = (size_t)got < room ? (size_t)got : room;
        memcpy(text + *len, sink, keep);
        *len += keep;
    }
}

static void describe(char *out, size_t bytes, int status) {
    if (WIFSIGNALED(status)) {
        snprintf(out, bytes, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else {
        snprintf(out, bytes, "exit status %d", WEXITSTATUS(status));
    }
}

static bool ended_as(int how, int status) {
    if (how & 0x100) {
        return WIFEXITED(status) && WEXITSTATUS(status) == (how & 0xff);
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == how;
}

void test_check_fails(const char *file, int line, const char *fn_text, int how, const char *text,
                      void (*fn)(void *), void *arg) {
    int ends[2];
    if (pipe(ends) != 0) {
        test_fail(file, line, "pipe: %s", strerror(errno));
    }
    pid_t child = fork();
    if (child < 0) {
        test_fail(file, line, "fork: %s", strerror(errno));
    }
    if (child == 0) {
        close(ends[0]);
        run_child(ends[1], fn, arg);
    }
    close(ends[1]);

    static char said[KEPT_BYTES + 1];
    size_t len = 0;
    bool over = read_until(ends[0], now() + CHILD_SECONDS * test_slack(), said, &len);
    said[len] = 0;
    close(ends[0]);
    if (!over) {
        kill(child, SIGKILL);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!over) {
        test_fail(file, line, "CHECK_FAILS(%s): still running after its time; it wrote:\n%.600s",
                  fn_text, said);
    }
    if (!ended_as(how, status)) {
        char was[64];
        describe(was, sizeof was, status);
        test_fail(file, line, "CHECK_FAILS(%s): ended by %s; it wrote:\n%.600s", fn_text, was,
                  said);
    }
    if (text && !strstr(said, text)) {
        test_fail(file, line, "CHECK_FAILS(%s): no \"%s\" in what it wrote:\n%.600s", fn_text, text,
                  said);
    }
}
