/* own.c: our own runner. One process a test, a time limit, output kept and shown when it failed.
 *
 * It stays single-threaded, so that a forked child may start threads and is an ordinary process to the
 * sanitizers. The child leads a process group: what it leaves behind is ended with it.
 */
#include "runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct tally tally;

struct result {
    int status; /* as waitpid gives it */
    bool in_time;
    double seconds;
    char *text; /* all it wrote to stdout and stderr */
    size_t len;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_child(struct test_case *t, int out) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the terminal's interrupt reaches the runner only */
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    close(out);
    test_run(t);
    exit(0); /* not _exit: the sanitizers give their last verdicts at exit */
}

static void keep(struct result *r, const char *text, size_t bytes) {
    char *grown = realloc(r->text, r->len + bytes + 1);
    if (!grown) {
        return;
    }
    r->text = grown;
    memcpy(r->text + r->len, text, bytes);
    r->len += bytes;
    r->text[r->len] = 0;
}

/* One read if there is something; false at end of file. */
static bool read_some(struct result *r, int fd, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0) {
        return true;
    }
    char buf[8192];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n > 0) {
        keep(r, buf, (size_t)n);
    }
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Looks without reaping, so that the number of its group stays taken until the group has been ended. */
static bool has_ended(pid_t child) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == child;
}

/* Follows the child to its end. The pipe may outlive it in a grandchild and may be closed before it
   ends, so both are watched. */
static void follow(struct result *r, pid_t child, int fd, double limit) {
    double start = now(), deadline = start + limit;
    bool open = true;
    r->in_time = true;
    while (!has_ended(child)) {
        if (now() > deadline) {
            r->in_time = false;
            break;
        }
        if (open) {
            open = read_some(r, fd, 20);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
        }
    }
    r->seconds = now() - start;
    kill(-child, SIGKILL);
    while (waitpid(child, &r->status, 0) < 0 && errno == EINTR) {
    }
    size_t before;
    do {
        before = r->len;
        open = open && read_some(r, fd, 0);
    } while (open && r->len > before);
}

static void verdict(char *out, size_t bytes, const struct result *r, bool done) {
    if (!r->in_time) {
        snprintf(out, bytes, "timed out after %.1f s", r->seconds);
    } else if (WIFSIGNALED(r->status)) {
        snprintf(out, bytes, "crashed: signal %d, %s", WTERMSIG(r->status),
                 strsignal(WTERMSIG(r->status)));
    } else if (WEXITSTATUS(r->status) != 0) {
        snprintf(out, bytes, "exit status %d", WEXITSTATUS(r->status));
    } else if (!done) {
        snprintf(out, bytes, "its process ended before the test did");
    } else {
        out[0] = 0;
    }
}

static void run_one(struct test_case *t) {
    char full[512], why[128];
    snprintf(full, sizeof full, "%s/%s", t->suite, t->name);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        perror("pipe2");
        exit(2);
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    if (child == 0) {
        close(ends[0]);
        run_child(t, ends[1]);
    }
    setpgid(child, child); /* in both: whoever comes first */
    close(ends[1]);
    struct result r = {0};
    follow(&r, child, ends[0], test_limit(t));
    close(ends[0]);

    bool skipped = report_has("skip", full);
    verdict(why, sizeof why, &r, skipped || report_has("done", full));
    if (why[0]) {
        tally.failed++;
        printf("FAIL %s: %s\n%s%s", full, why, r.text ? r.text : "",
               r.text && r.len && r.text[r.len - 1] != '\n' ? "\n" : "");
    } else if (skipped) {
        tally.skipped++;
    } else {
        tally.passed++;
        printf("ok   %s (%.2f s)\n", full, r.seconds);
    }
    free(r.text);
}

static int usage(const char *program) {
    printf("usage: %s [--list] [SUITE/NAME glob...]\n"
           "environment: WEFT_TEST_SLACK, WEFT_STRESS_SECONDS, WEFT_TEST_TIMED\n",
           program);
    return 2;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            return test_list(argc, argv);
        }
        if (argv[i][0] == '-') {
            return usage(argv[0]);
        }
    }
    report_open();
    for (struct test_case *t = test_first(); t; t = t->next) {
        if (test_chosen(t, argc, argv)) {
            run_one(t);
        }
    }
    return report_finish(&tally);
}
