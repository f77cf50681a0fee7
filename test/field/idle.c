/* field/idle.c: a runtime that has worked and has nothing more to do makes no system call at all. Its
   threads are traced from outside for ten seconds: none may enter the kernel or leave it. */
#include "field/field.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { MOST_THREADS = 64, GS = 50, WATCHED_SECONDS = 10 };

/* ---- the traced: works, then waits for its end ----------------------------------------------- */

static struct {
    weft_chan *chan;
    weft_event never;
    weft_mutex held;
    int pair[2];
} scene;

static int wait_somehow(void *arg) {
    weft_conn c;
    char byte;
    switch ((uintptr_t)arg % 4) {
    case 0:
        return weft_chan_recv(scene.chan, NULL);
    case 1:
        weft_event_wait(&scene.never);
        return 0;
    case 2:
        weft_mutex_lock(&scene.held);
        return 0;
    default:
        if ((uintptr_t)arg != 3) {
            return weft_sleep(WEFT_HOUR);
        }
        WEFT_MUST(weft_conn_from_fd(&c, scene.pair[0]));
        return (int)weft_conn_read(c, &byte, 1);
    }
}

static int block_and_compute(void *arg) {
    (void)arg;
    for (int i = 0; i < 5; i++) {
        thread_sleep(2 * MS); /* hands its P over, most likely */
        busy(MS);
        weft_yield();
    }
    return 0;
}

static int work_then_wait(void *arg) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    weft_mutex_lock(&scene.held);
    for (int i = 0; i < GS; i++) {
        WEFT_MUST(weft_waitgroup_go(&all, block_and_compute, NULL));
    }
    weft_waitgroup_wait(&all);
    for (uintptr_t i = 0; i < GS; i++) {
        WEFT_MUST(weft_go(wait_somehow, (void *)i));
    }
    weft_event_set(arg);
    return 0;
}

/* Tells by one byte that all is still; the thread that tells it then only waits in a read. */
static void live_idle(int in, int out) {
    weft_config cfg = config_of(2);
    weft_runtime *rt;
    weft_event ready = WEFT_EVENT_INIT;
    weft_stats s;
    char byte = 0;
    CHECK_EQ(weft_chan_new(&scene.chan, 1, 0), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, scene.pair), 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, work_then_wait, &ready), 0);
    weft_event_wait(&ready);
    do {
        thread_sleep(10 * MS);
        CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    } while (s.gs_waiting != GS || s.gs_runnable + s.gs_running + s.gs_blocked != 0);
    CHECK_EQ(write(out, "i", 1), 1);
    (void)!read(in, &byte, 1);
    _exit(0);
}

/* ---- the tracer ------------------------------------------------------------------------------ */

static pid_t traced[MOST_THREADS];
static int ntraced;

static int seize_all(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
        if (tid <= 0) {
            continue;
        }
        if (ptrace(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
            closedir(d);
            return errno;
        }
        CHECK_LT(ntraced, MOST_THREADS);
        traced[ntraced++] = tid;
    }
    closedir(d);
    return 0;
}

/* A stop of a system call, on its way in or out. */
static bool is_call(int how) { return WIFSTOPPED(how) && WSTOPSIG(how) == (SIGTRAP | 0x80); }

/* Lets every thread that stops go on. The stops at system calls. */
static int watch_for(int64_t ns) {
    int stops = 0;
    int64_t end = now() + ns;
    while (now() < end) {
        int how;
        pid_t tid = waitpid(-1, &how, __WALL | WNOHANG);
        if (tid <= 0) {
            thread_sleep(MS);
            continue;
        }
        stops += is_call(how);
        CHECK(WIFSTOPPED(how)); /* nobody ends meanwhile */
        CHECK_EQ(ptrace(PTRACE_SYSCALL, tid, 0, 0), 0);
    }
    return stops;
}

/* Each is interrupted in the call that it sleeps in, which it enters again: that much comes from the
   tracer, and is over before the watch begins. */
static void interrupt_all(void) {
    for (int i = 0; i < ntraced; i++) {
        CHECK_EQ(ptrace(PTRACE_INTERRUPT, traced[i], 0, 0), 0);
    }
    watch_for(SEC);
}

static void trace(pid_t pid) {
    int err = seize_all(pid);
    if (err == EPERM) {
        kill(pid, SIGKILL);
        test_skip("the system forbids to trace");
    }
    CHECK_EQ(err, 0);
    interrupt_all();
    int stops = watch_for(WATCHED_SECONDS * SEC);
    printf("%d threads, %d stops at system calls in %d s\n", ntraced, stops, WATCHED_SECONDS);
    CHECK_GE(ntraced, 3);
    CHECK_EQ(stops, 0);
}

TEST_IN(field, idle_makes_no_system_call, 60) {
#if UNDER_TSAN || UNDER_ASAN
    test_skip("the sanitizer has a thread of its own that ticks");
#endif
    int to[2], from[2], how;
    char byte;
    CHECK_EQ(pipe(to), 0);
    CHECK_EQ(pipe(from), 0);
    pid_t pid = fork();
    if (pid == 0) {
        live_idle(to[0], from[1]);
    }
    CHECK_GT(pid, 0);
    CHECK_EQ(read(from[0], &byte, 1), 1);
    thread_sleep(3 * SEC); /* naps, rounds and threads kept for a while come to their end */
    trace(pid);
    kill(pid, SIGKILL);
    while (waitpid(-1, &how, __WALL) > 0) { /* each thread's end is told apart to who traces it */
    }
}
