/*
 * process.c: child processes, line by line, with a time limit on everything.
 */
#include "drive.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int64_t deadline_in(int seconds) { return bench_now() + seconds * INT64_C(1000000000); }

static int spawn(pid_t *pid, char *const argv[], int in, int out, bool quiet) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (quiet) {
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    }

    posix_spawnattr_t attributes; /* the orchestrator ignores SIGPIPE, its children are not to */
    sigset_t pipe_signal;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &pipe_signal);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

    int err = posix_spawnp(pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

static bool start(struct process *p, char *const argv[], bool quiet) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        close(to[1]);
        return false;
    }
    *p = (struct process){.in = to[1], .out = from[0]};
    int err = spawn(&p->pid, argv, to[0], from[1], quiet);
    close(to[0]);
    close(from[1]);
    if (err != 0) {
        close(p->in);
        close(p->out);
    }
    return err == 0;
}

bool process_start(struct process *p, char *const argv[]) { return start(p, argv, false); }

bool process_start_quiet(struct process *p, char *const argv[]) { return start(p, argv, true); }

/* Milliseconds for poll, rounded up. */
static int until(int64_t deadline) {
    int64_t left = deadline - bench_now();
    return left <= 0 ? 0 : (int)((left + 999999) / 1000000);
}

/* True when there is more in the buffer. */
static bool fill(struct process *p, int64_t deadline) {
    struct pollfd waits = {.fd = p->out, .events = POLLIN};
    if (p->have == sizeof p->buffer || poll(&waits, 1, until(deadline)) <= 0) {
        return false;
    }
    ssize_t got = read(p->out, p->buffer + p->have, sizeof p->buffer - p->have);
    p->have += got > 0 ? (size_t)got : 0;
    return got > 0;
}

bool process_line(struct process *p, char *line, size_t bytes, int64_t deadline) {
    char *end;
    while (!(end = memchr(p->buffer, '\n', p->have))) {
        if (!fill(p, deadline)) {
            return false;
        }
    }
    size_t length = (size_t)(end - p->buffer);
    size_t copied = length < bytes ? length : bytes - 1;
    memcpy(line, p->buffer, copied);
    line[copied] = '\0';
    p->have -= length + 1;
    memmove(p->buffer, end + 1, p->have);
    return true;
}

/* A child that is gone already shows at the next line. */
void process_say(struct process *p, const char *line) {
    ssize_t written = write(p->in, line, strlen(line));
    (void)written;
}

int process_end(struct process *p, int64_t deadline) {
    close(p->in);
    int watch = (int)syscall(SYS_pidfd_open, p->pid, 0);
    struct pollfd ends = {.fd = watch, .events = POLLIN};
    if (watch >= 0 && poll(&ends, 1, until(deadline)) <= 0) {
        kill(p->pid, SIGKILL);
    }
    int status = -1;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (watch >= 0) {
        close(watch);
    }
    close(p->out);
    return status;
}
