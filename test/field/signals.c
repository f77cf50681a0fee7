/* field/signals.c: signals remain the host's. Case C50; C58 but for children that weft spawns; C59. */
#include "field/field.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

/* ---- C50: the host's signal handlers and small stacks ---------------------------------------- */

enum {
    C50_GS = 50,
    C50_STACK = 64 * 1024,
    C50_DEEP = C50_STACK * 9 / 10,
    C50_PAINT = 1024,     /* of the free tenth, from its top down, but for what calls below need */
    C50_CALLS = 3 * 1024, /* left to the calls that are made down there */
    C50_ROOM = 8 * 1024,
    C50_SIGNALS = 1000,
};

static atomic_long alarms;
static atomic_bool c50_over;

static void use_room(int sig) {
    (void)sig;
    volatile char room[C50_ROOM];
    for (size_t i = 0; i < sizeof room; i += 64) {
        room[i] = (char)i;
    }
    atomic_fetch_add(&alarms, 1);
}

static void check_signal_stack(void) {
    stack_t s;
    CHECK_EQ(sigaltstack(NULL, &s), 0);
    CHECK_EQ(s.ss_flags & SS_DISABLE, 0);
    size_t least_size = getauxval(AT_MINSIGSTKSZ);
    CHECK_GE(s.ss_size, least_size + C50_ROOM);
}

/* Far below the caller's frames, where nothing of the test's own reaches: a handler that ran on this
   stack would begin right below the stack pointer and go far past here. */
__attribute__((noinline)) static volatile char *paint_below(void) {
    volatile char below[C50_CALLS + C50_PAINT];
    volatile char *low = below;
    for (size_t i = 0; i < C50_PAINT; i++) {
        low[i] = 0x5a;
    }
    __asm__ volatile("" : "+r"(low)); /* the frame is left on purpose: it is memory of this stack */
    return low;
}

static void check_paint(const volatile char *low) {
    for (size_t i = 0; i < C50_PAINT; i++) {
        CHECK_EQ(low[i], 0x5a);
    }
}

static int stand_deep(void *arg) {
    (void)arg;
    volatile char deep[C50_DEEP];
    deep[0] = 1;
    volatile char *low = paint_below();
    while (!atomic_load(&c50_over)) {
        check_signal_stack();
        busy(20 * US);
        weft_yield();
    }
    check_paint(low);
    CHECK_EQ(deep[0], 1);
    return 0;
}

static int stand_all_deep(void *arg) {
    (void)arg;
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    int64_t start = now();
    for (int i = 0; i < C50_GS; i++) {
        WEFT_MUST(weft_waitgroup_go(&all, stand_deep, NULL));
    }
    while (now() - start < 5 * SEC || atomic_load(&alarms) < C50_SIGNALS) {
        CHECK_EQ(weft_sleep(10 * MS), 0);
    }
    atomic_store(&c50_over, true);
    weft_waitgroup_wait(&all);
    return 0;
}

TEST_IN(field, C50, 60) {
#if UNDER_TSAN || UNDER_ASAN
    test_skip("the sanitizer's frames take more than the tenth that is free");
#endif
    struct sigaction a = {.sa_handler = use_room, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    weft_config cfg = config_of(2);
    int status = -1;
    cfg.stack_size = C50_STACK;
    CHECK_EQ(sigaction(SIGALRM, &a, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
    CHECK_EQ(weft_run(stand_all_deep, NULL, &cfg, &status), 0);
    CHECK_EQ(status, 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    printf("C50: %ld signals\n", atomic_load(&alarms));
}

/* ---- C58a: the host's signal handlers stay the host's ---------------------------------------- */

static atomic_int children, interrupts;

static void on_child(int sig) {
    (void)sig;
    atomic_fetch_add(&children, 1);
}

static void on_interrupt(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info, (void)context;
    atomic_fetch_add(&interrupts, 1);
}

static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)info, (void)context;
    _exit(9);
}

static const struct {
    int sig, flags;
} hosts[] = {
    {SIGCHLD, SA_RESTART | SA_NOCLDSTOP}, {SIGINT, SA_SIGINFO}, {SIGSEGV, SA_SIGINFO | SA_ONSTACK}};

enum { DISPOSITIONS = 65 };
static struct sigaction found[DISPOSITIONS];

static void note_dispositions(void) {
    for (int i = 1; i < DISPOSITIONS; i++) {
        if (sigaction(i, NULL, &found[i]) != 0) {
            memset(&found[i], 0, sizeof found[i]);
        }
    }
}

/* But for the ones that weft was asked to take. */
static void check_dispositions(bool overflow_reports, const char *when) {
    for (int i = 1; i < DISPOSITIONS; i++) {
        struct sigaction is;
        memset(&is, 0, sizeof is);
        if ((overflow_reports && (i == SIGSEGV || i == SIGBUS)) || sigaction(i, NULL, &is) != 0) {
            continue;
        }
        if (!same_disposition(&is, &found[i])) {
            test_fail(__FILE__, __LINE__, "%s: the disposition of signal %d has changed", when, i);
        }
    }
}

static pid_t end_in_child(int status) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(status);
    }
    CHECK_GT(pid, 0);
    return pid;
}

static void wait_for_child(pid_t pid, int status) {
    int how = 0;
    pid_t got;
    while ((got = waitpid(pid, &how, 0)) == -1 && errno == EINTR) {
    }
    CHECK_EQ(got, pid);
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), status);
}

static int live(void *arg) {
    weft_conn a, b;
    int pair[2];
    char byte = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(weft_conn_from_fd(&a, pair[0]), 0);
    CHECK_EQ(weft_conn_from_fd(&b, pair[1]), 0);
    CHECK_EQ(weft_conn_write(a, "x", 1), 1);
    CHECK_EQ(weft_conn_read(b, &byte, 1), 1);
    CHECK_EQ(weft_conn_close(a), 0);
    CHECK_EQ(weft_conn_close(b), 0);
    CHECK_EQ(weft_sleep(MS), 0);
    wait_for_child(end_in_child(4), 4); /* plain C in a green thread: blocks as it likes */
    weft_event_set(arg);
    return 0;
}

static void host_lives(unsigned flags) {
    weft_config cfg = config_of(2);
    weft_runtime *rt;
    weft_event done = WEFT_EVENT_INIT;
    bool asked = (flags & WEFT_CATCH_OVERFLOW) != 0;
    int before = atomic_load(&children);
    cfg.flags = flags;
    note_dispositions();
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    check_dispositions(asked, "started");
    CHECK_EQ(weft_submit(rt, live, &done), 0);
    weft_event_wait(&done);
    check_dispositions(asked, "used");
    wait_for_child(end_in_child(5), 5);
    CHECK_EQ(raise(SIGINT), 0);
    check_dispositions(asked, "with children of the host's own");
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    check_dispositions(false, "stopped");
    CHECK_GE(atomic_load(&children) - before, 2);
}

TEST(field, C58a) {
    for (size_t i = 0; i < WEFT_COUNT(hosts); i++) {
        struct sigaction a = {.sa_flags = hosts[i].flags};
        if (hosts[i].sig == SIGCHLD) {
            a.sa_handler = on_child;
        } else {
            a.sa_sigaction = hosts[i].sig == SIGINT ? on_interrupt : on_fault;
        }
        CHECK_EQ(sigaction(hosts[i].sig, &a, NULL), 0);
    }
    host_lives(0);
    host_lives(WEFT_CATCH_OVERFLOW);
    CHECK_EQ(atomic_load(&interrupts), 2);
}

/* ---- C59: writing to a dead peer ------------------------------------------------------------- */

static void check_pipe_default(void) {
    struct sigaction is;
    CHECK_EQ(sigaction(SIGPIPE, NULL, &is), 0);
    CHECK(is.sa_handler == SIG_DFL);
}

/* Until the error that says so: what the kernel still takes goes nowhere. */
static void write_till_error(weft_conn c) {
    static const char data[4096];
    ssize_t n;
    while ((n = weft_conn_write(c, data, sizeof data)) > 0) {
    }
    if (n == -ECONNRESET) { /* TCP may tell of the reset first, once */
        n = weft_conn_write(c, data, sizeof data);
    }
    CHECK_EQ(n, -EPIPE);
    CHECK_EQ(weft_conn_close(c), 0);
    check_pipe_default();
}

static int write_to_the_dead(void *arg) {
    (void)arg;
    weft_listener l;
    weft_addr at;
    weft_conn client, server;
    char text[64];
    int ends[2];
    WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
    WEFT_MUST(weft_listener_addr(l, &at));
    weft_addr_text(&at, text, sizeof text);
    CHECK_EQ(weft_dial(&client, "tcp", text, NULL), 0);
    CHECK_EQ(weft_accept(&server, l), 0);
    CHECK_EQ(weft_conn_close(server), 0);
    write_till_error(client);
    CHECK_EQ(weft_listener_close(l), 0);

    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    CHECK_EQ(weft_conn_from_fd(&client, ends[1]), 0);
    close(ends[0]);
    write_till_error(client);

    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(weft_conn_from_fd(&client, ends[1]), 0);
    close(ends[0]);
    write_till_error(client);
    return 0;
}

static void *write_raw(void *arg) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    close(ends[0]);
    write(ends[1], "x", 1) == 1 ? _exit(2) : _exit(1); /* neither is reached */
    return arg;
}

static int write_raw_beside(void *arg) {
    pthread_t thread;
    write_to_the_dead(arg);
    CHECK_EQ(pthread_create(&thread, NULL, write_raw, NULL), 0);
    pthread_join(thread, NULL);
    return 0;
}

static void die_of_a_raw_write(void *arg) { run_at(2, write_raw_beside, arg); }

TEST(field, C59) {
    check_pipe_default();
    CHECK_FAILS(SIGPIPE, NULL, die_of_a_raw_write, NULL); /* a host thread dies of it as always */
    run_at(2, write_to_the_dead, NULL);
    check_pipe_default();
}
