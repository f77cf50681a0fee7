/* field/embed.c: a runtime is an object of its host's. Cases C51, C54 but for its child process,
   and values that go round through two runtimes and the host's own threads. */
#include "field/field.h"
#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- C51: a stuck blocking job cannot hold the exit ------------------------------------------ */

static const char fifo_name[] = "fifo";

static int read_from_nobody(void *arg) {
    char byte;
    int fd = open(fifo_name, O_RDWR); /* its own writer, so that the open does not block first */
    CHECK(fd >= 0);
    weft_event_set(arg);
    ssize_t n = read(fd, &byte, 1);
    test_fail(__FILE__, __LINE__, "the read of an empty FIFO gave %zd", n);
}

/* What the host does, in a process of its own. Status 0: all as it should be. */
static int stop_beside_a_reader(int procs, int64_t *took) {
    weft_config cfg = config_of(procs);
    weft_runtime *rt;
    weft_event reads = WEFT_EVENT_INIT;
    if (weft_start(&rt, &cfg) != 0 || weft_submit(rt, read_from_nobody, &reads) != 0) {
        return 2;
    }
    weft_event_wait(&reads);
    thread_sleep(20 *
                 MS); /* most likely it is in the call by now; if not, it is held up all the same */
    int64_t start = now();
    int err = weft_stop(rt, 500 * MS);
    *took = now() - start;
    return err == -ETIMEDOUT ? 0 : 3;
}

struct c51_result {
    int64_t stop_took, exit_at;
};

static void host_with_a_reader(int procs, int out) {
    struct c51_result r = {0};
    int status = stop_beside_a_reader(procs, &r.stop_took);
    r.exit_at = now();
    if (write(out, &r, sizeof r) != (ssize_t)sizeof r) {
        status = 4;
    }
    exit(status);
}

static void exit_beside_a_reader(int procs) {
    int ends[2], how = 0;
    struct c51_result r;
    CHECK_EQ(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        host_with_a_reader(procs, ends[1]);
    }
    CHECK_GT(pid, 0);
    close(ends[1]);
    CHECK_EQ(waitpid(pid, &how, 0), pid);
    int64_t gone = now();
    CHECK(WIFEXITED(how));
    CHECK_EQ(WEXITSTATUS(how), 0);
    CHECK_EQ(read(ends[0], &r, sizeof r), sizeof r);
    close(ends[0]);
    CHECK_GE(r.stop_took, 450 * MS);
    test_clock(within(r.stop_took, 700 * MS), "P=%d: stop gave up after %.0f ms, bound 700", procs,
               (double)r.stop_took / MS);
    test_clock(within(gone - r.exit_at, SEC), "P=%d: the exit took %.1f ms, bound 1000", procs,
               (double)(gone - r.exit_at) / MS);
}

TEST(field, C51) {
    char dir[SCRATCH_BYTES];
    CHECK(scratch_dir(dir));
    CHECK_EQ(chdir(dir), 0);
    CHECK_EQ(mkfifo(fifo_name, 0600), 0);
    exit_beside_a_reader(1);
    exit_beside_a_reader(2);
    CHECK_EQ(unlink(fifo_name), 0);
    CHECK_EQ(rmdir(dir), 0);
}

/* ---- C54a: start and stop again in one process ----------------------------------------------- */

enum { C54_ROUNDS = UNDER_TSAN ? 60 : 500, C54_FROM = 20, C54_GS = 100, C54_SIGNALS = 65 };

static struct sigaction c54_before[C54_SIGNALS];

static atomic_int timers_fired;

static int count_timer(void *arg) {
    atomic_fetch_add(&timers_fired, 1);
    weft_waitgroup_done(arg);
    return 0;
}

static weft_conn echo_ends[2];

static int echo_once(void *arg) {
    char byte = 0;
    (void)arg;
    CHECK_EQ(weft_conn_read(echo_ends[1], &byte, 1), 1);
    CHECK_EQ(weft_conn_write(echo_ends[1], &byte, 1), 1);
    return 0;
}

static int sleep_and_yield(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(50 * US), 0);
    weft_yield();
    return 0;
}

static int short_life(void *arg) {
    weft_waitgroup all = WEFT_WAITGROUP_INIT, timers = WEFT_WAITGROUP_INIT;
    int pair[2];
    char byte = 'e';
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_conn_from_fd(&echo_ends[i], pair[i]), 0);
    }
    weft_waitgroup_add(&timers, C54_GS / 2);
    for (int i = 0; i < C54_GS / 2; i++) {
        WEFT_MUST(weft_waitgroup_go(&all, sleep_and_yield, NULL));
        WEFT_MUST(weft_after_func(NULL, 20 * US, count_timer, &timers, NULL));
    }
    WEFT_MUST(weft_waitgroup_go(&all, echo_once, NULL));
    CHECK_EQ(weft_conn_write(echo_ends[0], &byte, 1), 1);
    CHECK_EQ(weft_conn_read(echo_ends[0], &byte, 1), 1);
    weft_waitgroup_wait(&all);
    weft_waitgroup_wait(&timers);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_conn_close(echo_ends[i]), 0);
    }
    weft_event_set(arg);
    return 0;
}

static void start_and_stop(int round) {
    weft_config cfg = config_of(1 + round % 3);
    weft_runtime *rt;
    weft_event done = WEFT_EVENT_INIT;
    atomic_store(&timers_fired, 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, short_life, &done), 0);
    weft_event_wait(&done);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    CHECK_EQ(atomic_load(&timers_fired), C54_GS / 2);
}

static long long resident(void) { return proc_value("/proc/self/status", "VmRSS:") * 1024; }

TEST_IN(field, C54a, 60) {
    long long rss = 0;
    start_and_stop(0); /* stand-ins, and a sanitizer's own thread, are made once */
    int threads = nthr(), fds = nfd();
    for (int i = 1; i < C54_SIGNALS; i++) {
        (void)sigaction(i, NULL, &c54_before[i]);
    }
    for (int i = 0; i < C54_ROUNDS; i++) {
        start_and_stop(i);
        while (nthr() > threads) { /* one that was joined is listed a moment longer */
            thread_sleep(100 * US);
        }
        threads =
            (int)least(threads, nthr()); /* so it may have been when they were counted first */
        CHECK_EQ(nfd(), fds);
        if (i == C54_FROM) {
            rss = resident();
        }
    }
    long long grown = resident() - rss;
    printf("C54a: %lld KiB more after %d rounds\n", grown / 1024, C54_ROUNDS - C54_FROM);
#if !UNDER_ASAN && !UNDER_TSAN /* they keep memory that was freed */
    CHECK_LE(grown, 1024 * 1024);
#endif
    for (int i = 1; i < C54_SIGNALS; i++) {
        struct sigaction is = {0};
        (void)sigaction(i, NULL, &is);
        CHECK(same_disposition(&is, &c54_before[i]));
    }
}

/* ---- a ring of two runtimes and a pool of plain threads -------------------------------------- */

enum {
    RING_VALUES = UNDER_TSAN ? 30000 : 1000000,
    RING_GS = 4,
    RING_THREADS = 3,
    RING_FLIGHT =
        200, /* values under way; a channel has room for all, so nobody waits in a circle */
};

static struct {
    weft_chan *out, *middle, *back;
    atomic_int next, home;
    atomic_uchar seen[RING_VALUES];
} ring;

struct hop {
    weft_chan *from, *to;
};

static int pass_on(void *arg) {
    struct hop *h = arg;
    int v;
    while (weft_chan_recv(h->from, &v) == 0) {
        CHECK_EQ(weft_chan_send(h->to, &v), 0);
    }
    return 0;
}

static int start_passing(void *arg) {
    for (int i = 0; i < RING_GS; i++) {
        WEFT_MUST(weft_go(pass_on, arg));
    }
    return 0;
}

static void send_next(void) {
    int v = atomic_fetch_add(&ring.next, 1);
    if (v < RING_VALUES) {
        CHECK_EQ(weft_chan_send(ring.out, &v), 0);
    }
}

/* Takes what has come round, and sends another for it. */
static void *take_home(void *arg) {
    int v;
    while (weft_chan_recv(ring.back, &v) == 0) {
        CHECK(v >= 0 && v < RING_VALUES);
        CHECK_EQ(atomic_fetch_add(&ring.seen[v], 1), 0);
        send_next();
        if (atomic_fetch_add(&ring.home, 1) + 1 == RING_VALUES) {
            CHECK_EQ(weft_chan_close(ring.out), 0);
            CHECK_EQ(weft_chan_close(ring.back), 0);
        }
    }
    return arg;
}

TEST_IN(field, ring_of_runtimes_and_threads, 120) {
    weft_config two = config_of(2), one = config_of(1);
    weft_runtime *a, *b;
    pthread_t pool[RING_THREADS];
    CHECK_EQ(weft_chan_new(&ring.out, sizeof(int), RING_FLIGHT), 0);
    CHECK_EQ(weft_chan_new(&ring.middle, sizeof(int), RING_FLIGHT), 0);
    CHECK_EQ(weft_chan_new(&ring.back, sizeof(int), RING_FLIGHT), 0);
    struct hop first = {ring.out, ring.middle}, second = {ring.middle, ring.back};
    CHECK_EQ(weft_start(&a, &two), 0);
    CHECK_EQ(weft_start(&b, &one), 0);
    CHECK_EQ(weft_submit(a, start_passing, &first), 0);
    CHECK_EQ(weft_submit(b, start_passing, &second), 0);
    for (int i = 0; i < RING_THREADS; i++) {
        CHECK_EQ(pthread_create(&pool[i], NULL, take_home, NULL), 0);
    }
    for (int i = 0; i < RING_FLIGHT; i++) {
        send_next();
    }
    for (int i = 0; i < RING_THREADS; i++) {
        pthread_join(pool[i], NULL);
    }
    CHECK_EQ(atomic_load(&ring.home), RING_VALUES);
    CHECK_EQ(weft_chan_close(ring.middle), 0);
    CHECK_EQ(weft_stop(a, 5 * SEC), 0);
    CHECK_EQ(weft_stop(b, 5 * SEC), 0);
    for (int v = 0; v < RING_VALUES; v++) {
        CHECK_EQ(atomic_load(&ring.seen[v]), 1);
    }
    weft_chan_unref(ring.out);
    weft_chan_unref(ring.middle);
    weft_chan_unref(ring.back);
}
