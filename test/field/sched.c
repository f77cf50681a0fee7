/* field/sched.c: what went wrong with schedulers elsewhere. Cases C14, C15, C17, C19 but for
   conditions, and C20. */
#include "field/field.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* ---- C14: yield really gives the processor away ---------------------------------------------- */

static atomic_int together;

static int spin_together(void *arg) {
    (void)arg;
    atomic_fetch_add(&together, 1);
    while (atomic_load(&together) != 4) {
    }
    return 0;
}

static int yield_to_spinners(void *arg) {
    (void)arg;
    atomic_store(&together, 0);
    for (int i = 0; i < 4; i++) {
        WEFT_MUST(weft_go(spin_together, NULL));
    }
    while (atomic_load(&together) != 4) {
        weft_yield();
    }
    return 0;
}

TEST_IN(field, C14, 100) {
    int64_t longest = 0;
    for (int i = 0; i < 50; i++) {
        int64_t start = now();
        run_at(4, yield_to_spinners, NULL);
        longest = most(longest, now() - start);
    }
    test_clock(within(longest, 2 * SEC), "the longest of 50 runs took %.1f ms, bound 2 s",
               (double)longest / MS);
}

/* ---- C15: two talkers must not shut out the rest --------------------------------------------- */

static struct {
    weft_chan *ping, *pong;
    int pipe[2];
    int64_t begin;
    atomic_bool stop;
    long exchanges, yields;
    int64_t slept, read;
    weft_waitgroup all;
} talk;

static int talker_a(void *arg) {
    (void)arg;
    int token = 0;
    while (!atomic_load(&talk.stop)) {
        CHECK_EQ(weft_chan_send(talk.ping, &token), 0);
        CHECK_EQ(weft_chan_recv(talk.pong, &token), 0);
        talk.exchanges++;
    }
    weft_chan_close(talk.ping);
    return 0;
}

static int talker_b(void *arg) {
    (void)arg;
    int token;
    while (weft_chan_recv(talk.ping, &token) == 0) {
        CHECK_EQ(weft_chan_send(talk.pong, &token), 0);
    }
    return 0;
}

static int yielder(void *arg) {
    (void)arg;
    while (!atomic_load(&talk.stop)) {
        talk.yields++;
        weft_yield();
    }
    return 0;
}

static int sleeper(void *arg) {
    (void)arg;
    int64_t start = now();
    CHECK_EQ(weft_sleep(10 * MS), 0);
    CHECK_GE(now() - start, 10 * MS);
    CHECK(!atomic_load(&talk.stop));
    talk.slept = now() - talk.begin;
    return 0;
}

static int pipe_reader(void *arg) {
    (void)arg;
    weft_conn c;
    char byte = 0;
    CHECK_EQ(weft_conn_from_fd(&c, talk.pipe[0]), 0);
    CHECK_EQ(weft_conn_read(c, &byte, 1), 1);
    CHECK_EQ(byte, 'n');
    CHECK(!atomic_load(&talk.stop));
    talk.read = now() - talk.begin;
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}

/* Writes at 10 ms and says stop at 200 ms, which a slow build is given more of. */
static void *clockwork(void *arg) {
    (void)arg;
    thread_sleep(10 * MS);
    CHECK_EQ(write(talk.pipe[1], "n", 1), 1);
    thread_sleep((int64_t)(190 * MS * test_slack()));
    atomic_store(&talk.stop, true);
    return NULL;
}

static int talk_on(void *arg) {
    (void)arg;
    static const weft_fn all[] = {talker_a, talker_b, yielder, sleeper, pipe_reader};
    pthread_t thread;
    CHECK_EQ(weft_chan_new(&talk.ping, sizeof(int), 0), 0);
    CHECK_EQ(weft_chan_new(&talk.pong, sizeof(int), 0), 0);
    CHECK_EQ(pipe(talk.pipe), 0);
    talk.begin = now();
    CHECK_EQ(pthread_create(&thread, NULL, clockwork, NULL), 0);
    for (size_t i = 0; i < WEFT_COUNT(all); i++) {
        WEFT_MUST(weft_waitgroup_go(&talk.all, all[i], NULL));
    }
    weft_waitgroup_wait(&talk.all);
    pthread_join(thread, NULL);
    return 0;
}

TEST_IN(field, C15, 60) {
    run_at(1, talk_on, NULL);
    printf("C15: %ld exchanges, %ld yields\n", talk.exchanges, talk.yields);
    CHECK_GE(talk.yields, 100);
    CHECK_GE(talk.exchanges, 10000);
    test_clock(within(talk.slept, 30 * MS), "the sleep of 10 ms was over at %.2f ms, bound 30",
               (double)talk.slept / MS);
    test_clock(within(talk.read, 40 * MS), "the byte of 10 ms was read at %.2f ms, bound 40",
               (double)talk.read / MS);
}

/* ---- C17: no lost wake-up between "stop looking" and "go to sleep" --------------------------- */

enum { C17_ITEMS = 200000 };

/* Without a buffer a lost wake-up stops the sender too: the case hangs, and does not just go on
   late. */
struct flow {
    weft_chan *c;
    long received;
    int64_t longest;
    weft_event done;
};

static int receive_all(void *arg) {
    struct flow *f = arg;
    int64_t sent;
    for (int i = 0; i < C17_ITEMS; i++) {
        CHECK_EQ(weft_chan_recv(f->c, &sent), 0);
        f->received++;
        f->longest = most(f->longest, now() - sent);
    }
    weft_event_set(&f->done);
    return 0;
}

static void *send_all(void *arg) {
    struct flow *f = arg;
    unsigned seed = 17;
    for (int i = 0; i < C17_ITEMS; i++) {
        busy(rand_r(&seed) % 30000);
        int64_t sent = now();
        CHECK_EQ(weft_chan_send(f->c, &sent), 0);
    }
    return NULL;
}

static void send_from_outside(int procs) {
    struct flow f = {.received = 0};
    weft_config cfg = config_of(procs);
    weft_runtime *rt;
    pthread_t thread;
    CHECK_EQ(weft_chan_new(&f.c, sizeof(int64_t), 0), 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, receive_all, &f), 0);
    CHECK_EQ(pthread_create(&thread, NULL, send_all, &f), 0);
    pthread_join(thread, NULL);
    weft_event_wait(&f.done);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    weft_chan_unref(f.c);
    CHECK_EQ(f.received, C17_ITEMS);
    test_clock(within(f.longest, 100 * MS), "P=%d: %.2f ms from send to receive, bound 100", procs,
               (double)f.longest / MS);
}

TEST_IN(field, C17, 180) {
    send_from_outside(2);
    send_from_outside(1);
    send_from_outside(4);
}

/* ---- C19a: idle means idle ------------------------------------------------------------------- */

enum { C19_GS = 100, C19_RESETS = 1000, C19_MOVERS = 4 };

static struct {
    weft_chan *chan;
    weft_event event;
    weft_mutex mutex;
    int sockets[2];
    weft_timer *timer;
    atomic_int resets;
    atomic_uint ps; /* a bit for each P that moved the timer */
    weft_waitgroup parked, movers;
} idle;

static int wait_on_channel(void *arg) {
    (void)arg;
    CHECK_EQ(weft_chan_recv(idle.chan, NULL), -EPIPE);
    weft_waitgroup_done(&idle.parked);
    return 0;
}

static int wait_on_event(void *arg) {
    (void)arg;
    weft_event_wait(&idle.event);
    weft_waitgroup_done(&idle.parked);
    return 0;
}

static int wait_on_mutex(void *arg) {
    (void)arg;
    weft_mutex_lock(&idle.mutex);
    weft_mutex_unlock(&idle.mutex);
    weft_waitgroup_done(&idle.parked);
    return 0;
}

static int wait_on_socket(void *arg) {
    (void)arg;
    weft_conn c;
    char byte;
    CHECK_EQ(weft_conn_from_fd(&c, idle.sockets[0]), 0);
    CHECK_EQ(weft_conn_read(c, &byte, 1), 1);
    CHECK_EQ(weft_conn_close(c), 0);
    weft_waitgroup_done(&idle.parked);
    return 0;
}

static int no_firing(void *arg) {
    (void)arg;
    test_fail(__FILE__, __LINE__, "a timer of ten minutes fired");
}

/* Goes on until the timer was moved often enough, and from two Ps at least. */
static int move_timer(void *arg) {
    (void)arg;
    while (atomic_load(&idle.resets) < C19_RESETS ||
           (atomic_load(&idle.ps) & (atomic_load(&idle.ps) - 1)) == 0) {
        CHECK(weft_timer_reset(idle.timer, 10 * WEFT_MINUTE));
        atomic_fetch_or(&idle.ps, 1u << weft_proc_self());
        atomic_fetch_add(&idle.resets, 1);
        busy(5 * US);
        weft_yield();
    }
    return 0;
}

static int park_everybody(void *arg) {
    static const weft_fn kinds[] = {wait_on_channel, wait_on_event, wait_on_mutex};
    weft_waitgroup_add(&idle.parked, C19_GS);
    weft_mutex_lock(&idle.mutex);
    WEFT_MUST(weft_after_func(&idle.timer, 10 * WEFT_MINUTE, no_firing, NULL, NULL));
    WEFT_MUST(weft_go(wait_on_socket, NULL));
    for (int i = 1; i < C19_GS; i++) {
        WEFT_MUST(weft_go(kinds[i % 3], NULL));
    }
    for (int i = 0; i < C19_MOVERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&idle.movers, move_timer, NULL));
    }
    weft_waitgroup_wait(&idle.movers);
    weft_event_set(arg);
    return 0;
}

static int wake_everybody(void *arg) {
    CHECK(weft_timer_stop(idle.timer));
    weft_timer_free(idle.timer);
    weft_chan_close(idle.chan);
    weft_event_set(&idle.event);
    weft_mutex_unlock(&idle.mutex);
    CHECK_EQ(write(idle.sockets[1], "x", 1), 1);
    weft_waitgroup_wait(&idle.parked);
    weft_event_set(arg);
    return 0;
}

static void wait_until_all_wait(weft_runtime *rt) {
    weft_stats s;
    do {
        thread_sleep(MS);
        CHECK_EQ(weft_stats_read(rt, &s, sizeof s), 0);
    } while (s.gs_waiting != C19_GS || s.gs_runnable + s.gs_running + s.gs_blocked != 0);
}

TEST_IN(field, C19a, 60) {
    weft_config cfg = config_of(4);
    weft_runtime *rt;
    weft_event ready = WEFT_EVENT_INIT, over = WEFT_EVENT_INIT;
    note_strangers();
    CHECK_EQ(weft_chan_new(&idle.chan, 0, 0), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, idle.sockets), 0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    CHECK_EQ(weft_submit(rt, park_everybody, &ready), 0);
    weft_event_wait(&ready);
    wait_until_all_wait(rt);

    long long switches_before = switches();
    int64_t cpu_before = cpu();
    thread_sleep(2 * SEC);
    int64_t used = cpu() - cpu_before;
    long long switched = switches() - switches_before;
    printf("C19a: %.2f ms of CPU, %lld voluntary switches in 2 s; %d resets\n", (double)used / MS,
           switched, atomic_load(&idle.resets));
    CHECK_LE(used, (int64_t)(10 * MS * test_slack()));
    CHECK_LE(switched, 40);

    CHECK_EQ(weft_submit(rt, wake_everybody, &over), 0);
    weft_event_wait(&over);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    weft_chan_unref(idle.chan);
}

/* ---- C20: a thread left locked dies with its green thread ------------------------------------------- */

enum { C20_LOCKERS = 100, C20_LOOKERS = UNDER_TSAN ? 800 : 5000 };

static struct {
    weft_waitgroup all;
    atomic_int seen;
    int threads; /* before the runtime */
} c20;

static void look_at_thread(void) {
    char name[32] = "";
    sigset_t mask;
    prctl(PR_GET_NAME, name);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    atomic_fetch_add(&c20.seen, strcmp(name, "tainted") == 0 || sigismember(&mask, SIGUSR1) == 1);
}

static int taints(void *arg) {
    (void)arg;
    weft_lock_thread();
    look_at_thread();
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK_EQ(prctl(PR_SET_NAME, "tainted"), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &usr1, NULL), 0);
    weft_waitgroup_done(&c20.all);
    return 0;
}

static int looks(void *arg) {
    (void)arg;
    look_at_thread();
    weft_yield();
    look_at_thread();
    weft_waitgroup_done(&c20.all);
    return 0;
}

static int looks_locked(void *arg) {
    weft_lock_thread();
    looks(arg);
    weft_unlock_thread();
    return 0;
}

static int leave_threads_locked(void *arg) {
    bool here = *(bool *)arg;
    int before = nthr();
    weft_waitgroup_add(&c20.all, C20_LOCKERS + C20_LOOKERS);
    if (here) { /* on the thread that called weft_run */
        CHECK_EQ(gettid(), getpid());
        CHECK_EQ(weft_go(taints, NULL), 0);
        weft_yield();
    }
    for (int i = here; i < C20_LOCKERS; i++) {
        CHECK_EQ(weft_go(taints, NULL), 0);
    }
    for (int i = 0; i < C20_LOOKERS; i++) {
        CHECK_EQ(weft_go(i % 50 == 0 ? looks_locked : looks, NULL), 0);
    }
    weft_waitgroup_wait(&c20.all);
    CHECK_EQ(atomic_load(&c20.seen), 0);
    CHECK_EQ(weft_sleep(200 * MS), 0);
    int after = nthr();
    printf("C20: %d threads, %d behind\n", before, after);
    return 0;
}

/* Threads of Ps and a spare are made as they are needed: so the start value is that of all of them. */
static int leave_twice(void *arg) {
    int start = c20.threads + weft_procs(NULL) + 1 + 2; /* Ps, a spare, maker and sysmon */
    leave_threads_locked(arg);
    CHECK_LE(nthr(), start + 2);
    *(bool *)arg = false;
    leave_threads_locked(arg);
    CHECK_LE(nthr(), start + 2);
    return 0;
}

TEST_IN(field, C20, 60) {
    char name[32];
    sigset_t mask;
    prctl(PR_GET_NAME, name);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    c20.threads = nthr();
    for (int procs = 4; procs > 0; procs -= 3) {
        bool here = procs == 1;
        run_at(procs, leave_twice, &here);
        prctl(PR_SET_NAME, name); /* this thread is tainted by now, and starts the next ones */
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
    }
}
