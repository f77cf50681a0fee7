/* unit/guest.c: the host's signals stay the host's: dispositions, masks, Ctrl-C, profilers, SIGPIPE. */
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- dispositions ---- */

enum { SA_RESTORER = 0x04000000 }; /* of the C library, once it has set an action */

static struct sigaction before[NSIG];

static void host_handler(int sig) { (void)sig; }

static void host_action(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)info;
    (void)context;
}

static void keep_dispositions(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    memset(before, 0, sizeof before);
    a.sa_handler = host_handler;
    a.sa_flags = SA_RESTART;
    sigaddset(&a.sa_mask, SIGUSR2);
    CHECK_EQ(sigaction(SIGCHLD, &a, NULL), 0);
    CHECK_EQ(sigaction(SIGINT, &a, NULL), 0);
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    a.sa_sigaction = host_action;
    CHECK_EQ(sigaction(SIGSEGV, &a, NULL), 0);
    a.sa_flags = 0;
    a.sa_handler = SIG_IGN;
    CHECK_EQ(sigaction(SIGHUP, &a, NULL), 0);
    for (int s = 1; s < NSIG; s++) {
        sigaction(s, NULL, &before[s]); /* two belong to the C library */
    }
}

static void same_disposition(int s) {
    struct sigaction now;
    memset(&now, 0, sizeof now);
    sigaction(s, NULL, &now);
    CHECK(now.sa_handler == before[s].sa_handler);
    CHECK_EQ(now.sa_flags & ~SA_RESTORER, before[s].sa_flags & ~SA_RESTORER);
    for (int i = 1; i < NSIG; i++) {
        CHECK_EQ(sigismember(&now.sa_mask, i), sigismember(&before[s].sa_mask, i));
    }
}

static void same_dispositions(bool but_faults) {
    for (int s = 1; s < NSIG; s++) {
        if (!but_faults || (s != SIGSEGV && s != SIGBUS)) {
            same_disposition(s);
        }
    }
}

static int works_a_while(void *arg) {
    same_dispositions(arg != NULL);
    for (int i = 0; i < 20; i++) {
        int err = weft_sleep(100 * WEFT_MICROSECOND);
        CHECK(err == 0 || err == -ECANCELED); /* the runtime is being stopped */
    }
    same_dispositions(arg != NULL);
    return 0;
}

TEST(guest, dispositions_are_the_hosts) {
    keep_dispositions();
    for (int i = 0; i < 6; i++) {
        weft_config c = config_of(1 + i % 3);
        weft_runtime *rt;
        bool catches = i >= 3;
        c.flags |= catches ? WEFT_CATCH_OVERFLOW : 0;
        CHECK_EQ(weft_run(works_a_while, catches ? &c : NULL, &c, NULL), 0);
        same_dispositions(false);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_submit(rt, works_a_while, catches ? &c : NULL), 0);
        same_dispositions(catches);
        CHECK_EQ(weft_stop(rt, -1), 0);
        same_dispositions(false);
    }
}

/* ---- masks ---- */

static sigset_t mask;
static atomic_int looked;

static void same_mask(void) {
    sigset_t now;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    for (int s = 1; s < NSIG; s++) {
        CHECK_EQ(sigismember(&now, s), sigismember(&mask, s));
    }
}

static int looks_at_its_mask(void *arg) {
    int64_t end = clock_ns() + 2 * WEFT_MILLISECOND; /* long enough for another thread to come */
    (void)arg;
    while (clock_ns() < end) {
        same_mask();
        weft_yield();
    }
    atomic_fetch_add(&looked, 1);
    return 0;
}

static int looks_everywhere(void *arg) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    (void)arg;
    for (int i = 0; i < 16; i++) {
        CHECK_EQ(weft_waitgroup_go(&wg, looks_at_its_mask, NULL), 0);
    }
    weft_waitgroup_wait(&wg);
    return 0;
}

TEST(guest, masks_are_inherited) {
    static const int blocked[] = {SIGUSR1, SIGTERM, SIGALRM};
    sigemptyset(&mask);
    for (size_t i = 0; i <= WEFT_COUNT(blocked); i++) {
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
        weft_config c = config_of(4);
        atomic_store(&looked, 0);
        CHECK_EQ(weft_run(looks_everywhere, NULL, &c, NULL), 0);
        CHECK_EQ(atomic_load(&looked), 16);
        same_mask();
        if (i < WEFT_COUNT(blocked)) {
            sigaddset(&mask, blocked[i]);
        }
    }
}

/* ---- Ctrl-C ---- */

static int says_so_and_sleeps(void *arg) {
    int *pipe_end = arg;
    CHECK_EQ(write(*pipe_end, "x", 1), 1);
    CHECK_EQ(weft_sleep(WEFT_HOUR), 0);
    return 0;
}

static int computes_for_ever(void *arg) {
    volatile uint64_t n = 0;
    for (;;) {
        n = n + 1;
    }
    (void)arg;
    return 0;
}

static int computes_beside(void *arg) {
    CHECK_EQ(weft_go(computes_for_ever, NULL), 0);
    return says_so_and_sleeps(arg);
}

static void ends_by(int sig, weft_fn app) {
    int ends[2], status;
    char x;
    CHECK_EQ(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
        weft_config c = config_of(2);
        alarm(30);
        signal(sig, SIG_DFL);
        int err = weft_run(app, &ends[1], &c, NULL);
        _exit(err != 0 ? 1 : 2);
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], &x, 1), 1);
    close(ends[0]);
    CHECK_EQ(kill(child, sig), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), sig);
}

TEST(guest, an_interrupt_ends_a_sleeping_program) {
    ends_by(SIGINT, says_so_and_sleeps);
    ends_by(SIGTERM, says_so_and_sleeps);
    ends_by(SIGINT, computes_beside);
}

static atomic_int caught;

static void on_interrupt(int sig) {
    (void)sig;
    atomic_fetch_add(&caught, 1);
}

/* The host's handler runs while its main sleeps in weft, and the sleep goes on. */
static int sleeps_through(void *arg) {
    (void)arg;
    int64_t begin = clock_ns();
    CHECK_EQ(kill(getpid(), SIGINT), 0);
    CHECK_EQ(weft_sleep(5 * WEFT_MILLISECOND), 0);
    CHECK_GE(clock_ns() - begin, 5 * WEFT_MILLISECOND);
    UNTIL(atomic_load(&caught) == 1);
    return 0;
}

TEST(guest, a_handler_ends_no_sleep) {
    weft_config c = config_of(2);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_interrupt; /* without SA_RESTART */
    CHECK_EQ(sigaction(SIGINT, &a, NULL), 0);
    CHECK_EQ(weft_run(sleeps_through, NULL, &c, NULL), 0);
    CHECK_EQ(atomic_load(&caught), 1);
}

/* ---- profilers ---- */

static __thread volatile int samples;
static atomic_int all_samples;

static void on_sample(int sig) {
    (void)sig;
    samples = samples + 1;
    atomic_fetch_add(&all_samples, 1);
}

/* Until its thread has been seen; it holds its thread: no call of weft in between. */
static int computes_until_seen(void *arg) {
    atomic_int *inside = arg;
    samples = 0;
    atomic_fetch_add(inside, 1);
    while (atomic_load(inside) < 2) { /* so that it is two threads that compute */
    }
    while (samples < 5) {
        (void)clock_ns(); /* where a sanitizer delivers */
    }
    return 0;
}

static int two_compute(void *arg) {
    static atomic_int inside;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    (void)arg;
    CHECK_EQ(weft_waitgroup_go(&wg, computes_until_seen, &inside), 0);
    CHECK_EQ(weft_waitgroup_go(&wg, computes_until_seen, &inside), 0);
    weft_waitgroup_wait(&wg);
    return 0;
}

TEST(guest, profiler_sees_every_thread) {
    weft_config c = config_of(2);
    struct sigaction a;
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    memset(&a, 0, sizeof a);
    a.sa_handler = on_sample;
    a.sa_flags = SA_RESTART | SA_ONSTACK;
    CHECK_EQ(sigaction(SIGPROF, &a, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_PROF, &often, NULL), 0);
    CHECK_EQ(weft_run(two_compute, NULL, &c, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_PROF, &never, NULL), 0);
    CHECK_GE(atomic_load(&all_samples), 10);
}

/* ---- writing to who has gone ---- */

static void writes_until_told(weft_conn conn) {
    static const char much[4096];
    ssize_t n;
    for (int i = 0; i < 10000; i++) {
        n = weft_conn_write(conn, much, sizeof much);
        if (n < 0) {
            break;
        }
        nap();
    }
    CHECK(n == -EPIPE || n == -ECONNRESET);
    n = weft_conn_write(conn, much, sizeof much);
    CHECK_EQ(n, -EPIPE);
    CHECK_EQ(weft_conn_close(conn), 0);
}

static void dead_pipe(void) {
    int ends[2];
    weft_conn conn;
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(weft_conn_from_fd(&conn, ends[1]), 0);
    close(ends[0]);
    writes_until_told(conn);
}

static void dead_socket(int family) {
    int ends[2];
    weft_conn conn;
    if (family == AF_UNIX) {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    } else {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof at;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_EQ(bind(listener, (struct sockaddr *)&at, bytes), 0);
        CHECK_EQ(listen(listener, 1), 0);
        CHECK_EQ(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
        ends[1] = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_EQ(connect(ends[1], (struct sockaddr *)&at, bytes), 0);
        ends[0] = accept(listener, NULL, NULL);
        CHECK_GE(ends[0], 0);
        close(listener);
    }
    CHECK_EQ(weft_conn_from_fd(&conn, ends[1]), 0);
    close(ends[0]);
    writes_until_told(conn);
}

static int writes_to_the_dead(void *arg) {
    (void)arg;
    same_disposition(SIGPIPE);
    dead_pipe();
    dead_socket(AF_UNIX);
    dead_socket(AF_INET);
    same_disposition(SIGPIPE);
    same_mask();
    return 0;
}

TEST(guest, a_dead_peer_raises_no_signal) {
    weft_config c = config_of(2);
    int ends[2], status;
    sigset_t pending;
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&mask);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
    memset(before, 0, sizeof before);
    sigaction(SIGPIPE, NULL, &before[SIGPIPE]);
    CHECK_EQ(weft_run(writes_to_the_dead, NULL, &c, NULL), 0);
    CHECK_EQ(sigpending(&pending), 0);
    CHECK_EQ(sigismember(&pending, SIGPIPE), 0);
    pid_t child = fork(); /* and it kills as always whoever writes by himself */
    if (child == 0) {
        CHECK_EQ(pipe(ends), 0);
        close(ends[0]);
        _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), SIGPIPE);
}
