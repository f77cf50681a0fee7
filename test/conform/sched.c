/* conform/sched.c: the scheduler. A test is named by the line of the list that it comes from
   (README.md). */
#include "field/field.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "sched/sched.h"

static weft_chan *new_ints(size_t capacity) {
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), capacity), 0);
    return c;
}

static weft_stats stats(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s;
}

/* ---- 48: a loop of tries and yields lets others run ------------------------------------------ */

static int send_one(void *chan) { return weft_chan_send(chan, &(int){1}); }

static int try_and_yield(void *arg) {
    (void)arg;
    weft_chan *c = new_ints(0);
    int value = 0;
    WEFT_MUST(weft_go(send_one, c));
    while (weft_chan_try_recv(c, &value) == -EAGAIN) {
        weft_yield();
    }
    CHECK_EQ(value, 1);
    weft_chan_unref(c);
    return 0;
}

TEST(conform, conform_048a) {
    run_at(1, try_and_yield, NULL);
    run_at(2, try_and_yield, NULL);
}

/* ---- 50, 51: as many as there are Ps run side by side ---------------------------------------- */

static atomic_uint turn;
static weft_event all_turns;

/* Each spins until it is its turn, without a call: they end only if all run at once. */
static int spin_for_turn(void *arg) {
    unsigned mine = (unsigned)(uintptr_t)arg, ps = mine >> 16;
    mine &= 0xffff;
    for (int round = 0; round < 3; round++) {
        while (atomic_load(&turn) % ps != mine) {
        }
        atomic_fetch_add(&turn, 1);
    }
    if (mine == ps - 1) {
        weft_event_set(&all_turns);
    }
    return 0;
}

static void spin_in_turns(unsigned ps) {
    atomic_store(&turn, 0);
    weft_event_reset(&all_turns);
    for (unsigned i = 0; i < ps; i++) {
        WEFT_MUST(weft_go(spin_for_turn, (void *)(uintptr_t)(ps << 16 | i)));
    }
    weft_event_wait(&all_turns);
}

static int run_in_parallel(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) {
        spin_in_turns(3);
    }
    return 0;
}

TEST_IN(conform, conform_050, 60) {
    run_at(4, run_in_parallel, NULL);
    run_at(3, run_in_parallel, NULL);
}

static int some_work(void *arg) {
    weft_yield();
    return arg != NULL;
}

static int parallel_after_load(void *arg) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_listener l;
    for (int i = 0; i < 1000; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, some_work, NULL));
    }
    weft_waitgroup_wait(&wg);
    if (arg) { /* with the poller in use */
        WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
        CHECK_EQ(weft_sleep(MS), 0);
    }
    run_in_parallel(NULL);
    if (arg) {
        WEFT_MUST(weft_listener_close(l));
    }
    return 0;
}

/* Each starts the next one before it spins: the chain of wakes must reach every P. */
static int spin_nested(void *arg) {
    unsigned mine = (unsigned)(uintptr_t)arg & 0xffff, ps = (unsigned)(uintptr_t)arg >> 16;
    if (mine + 1 < ps) {
        WEFT_MUST(weft_go(spin_nested, (void *)(uintptr_t)(ps << 16 | (mine + 1))));
    }
    return spin_for_turn(arg);
}

static int parallel_nested(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) {
        atomic_store(&turn, 0);
        weft_event_reset(&all_turns);
        WEFT_MUST(weft_go(spin_nested, (void *)(uintptr_t)(4u << 16)));
        weft_event_wait(&all_turns);
    }
    return 0;
}

TEST_IN(conform, conform_051, 60) {
    run_at(4, parallel_after_load, NULL);
    run_at(4, parallel_after_load, "net");
    run_at(4, parallel_nested, NULL);
}

/* ---- 53, 54: talk, with and without system calls, does not hold up a timer ------------------- */

static struct {
    weft_chan *c;
    atomic_bool stop;
    bool calls; /* quick system calls in the loop */
} talk;

static int talk_body(void *sends) {
    int v = 0;
    while (!atomic_load(&talk.stop)) {
        if (talk.calls) {
            syscall(SYS_getppid);
        }
        if ((sends ? weft_chan_send(talk.c, &v) : weft_chan_recv(talk.c, &v)) != 0) {
            break;
        }
    }
    weft_chan_close(talk.c);
    return 0;
}

static int timer_beside_talk(void *calls) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_timer *t;
    talk.c = new_ints(0);
    talk.calls = calls != NULL;
    atomic_store(&talk.stop, false);
    for (int i = 0; i < 2; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, talk_body, NULL));
        WEFT_MUST(weft_waitgroup_go(&wg, talk_body, &talk));
    }
    int64_t start = now();
    WEFT_MUST(weft_timer_new(&t, 20 * MS, NULL));
    CHECK_EQ(weft_timer_wait(t, NULL), 0);
    int64_t took = now() - start;
    CHECK_GE(took, 20 * MS);
    atomic_store(&talk.stop, true);
    weft_waitgroup_wait(&wg);
    weft_timer_free(t);
    weft_chan_unref(talk.c);
    test_clock(within(took, 100 * MS), "20 ms took %.2f at %d Ps, bound 100", (double)took / MS,
               weft_procs(NULL));
    return 0;
}

TEST(conform, conform_053) {
    run_at(1, timer_beside_talk, NULL);
    run_at(2, timer_beside_talk, NULL);
}

TEST(conform, conform_054) {
    run_at(1, timer_beside_talk, "calls");
    run_at(2, timer_beside_talk, "calls");
}

/* ---- 58, 77, 78: how many there are, and who is first ---------------------------------------- */

static uint64_t live(void) {
    weft_stats s = stats();
    return s.gs_running + s.gs_blocked + s.gs_runnable + s.gs_waiting;
}

/* Lines about green threads in a dump. */
static uint64_t in_dump(void) {
    FILE *file = tmpfile();
    char line[512];
    uint64_t n = 0;
    CHECK(file != NULL);
    CHECK_EQ(weft_dump(NULL, fileno(file)), 0);
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        n += strncmp(line, "green thread ", 13) == 0;
    }
    fclose(file);
    return n;
}

static int wait_for_close(void *chan) {
    CHECK_EQ(weft_chan_recv(chan, NULL), -EPIPE);
    return 0;
}

static int count_live(void *arg) {
    (void)arg;
    weft_chan *c = new_ints(0);
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_self(), 1);
    CHECK_EQ(live(), 1); /* no helpers */
    CHECK_EQ(in_dump(), 1);
    for (uint64_t n = 1; n <= 100; n++) {
        WEFT_MUST(weft_waitgroup_go(&wg, wait_for_close, c));
        if (n % 10 == 0) {
            while (stats().gs_waiting != n) {
                weft_yield();
            }
            CHECK_EQ(live(), n + 1);
            CHECK_EQ(in_dump(), n + 1);
        }
    }
    weft_chan_close(c);
    weft_waitgroup_wait(&wg);
    while (live() != 1) { /* `done` comes a moment before the end */
        weft_yield();
    }
    CHECK_EQ(in_dump(), 1);
    CHECK_EQ(stats().gs_created, 101);
    CHECK_EQ(stats().gs_ended, 100);
    weft_chan_unref(c);
    return 0;
}

TEST(conform, conform_058) { run_at(2, count_live, NULL); }

static int first_has_number_one(void *arg) {
    (void)arg;
    CHECK_EQ(weft_self(), 1);
    return 0;
}

TEST(conform, conform_077) {
    run_at(1, first_has_number_one, NULL);
    run_at(4, first_has_number_one, NULL);
}

/* ---- 59: a heavy pair and a light pair ------------------------------------------------------- */

static struct hog {
    weft_chan *to, *fro;
    atomic_long hops; /* read beside the pair: a computing G's P goes to others */
    int work;
} heavy, light;

static atomic_bool hogs_stop;

static long work(int n) {
    volatile long sum = 0;
    for (int i = 0; i < n; i++) {
        sum += i;
    }
    return sum;
}

static int hog_ping(void *arg) {
    struct hog *h = arg;
    int v = 0;
    while (!atomic_load(&hogs_stop)) {
        work(h->work);
        CHECK_EQ(weft_chan_send(h->to, &v), 0);
        CHECK_EQ(weft_chan_recv(h->fro, &v), 0);
        atomic_fetch_add(&h->hops, 1);
    }
    weft_chan_close(h->to);
    return 0;
}

static int hog_pong(void *arg) {
    struct hog *h = arg;
    int v;
    while (weft_chan_recv(h->to, &v) == 0) {
        work(h->work);
        CHECK_EQ(weft_chan_send(h->fro, &v), 0);
    }
    return 0;
}

static void start_pair(weft_waitgroup *wg, struct hog *h, int amount) {
    h->to = new_ints(0);
    h->fro = new_ints(0);
    h->work = amount;
    WEFT_MUST(weft_waitgroup_go(wg, hog_pong, h));
    WEFT_MUST(weft_waitgroup_go(wg, hog_ping, h));
}

static int hogs(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    start_pair(&wg, &heavy, 1000000);
    start_pair(&wg, &light, 1000);
    while (atomic_load(&heavy.hops) < 30 || atomic_load(&light.hops) < 30) {
        CHECK_EQ(weft_sleep(MS), 0);
    }
    atomic_store(&hogs_stop, true);
    weft_waitgroup_wait(&wg);
    long heavy_hops = atomic_load(&heavy.hops), light_hops = atomic_load(&light.hops);
    double heavy_cpu = (double)heavy_hops * heavy.work, light_cpu = (double)light_hops * light.work;
    printf("59: heavy %ld hops, light %ld: %.0f to 1\n", heavy_hops, light_hops,
           heavy_cpu / light_cpu);
    CHECK_GE(2 * light_hops,
             heavy_hops); /* turns are shared; CPU time cannot be without preemption */
    return 0;
}

TEST_IN(conform, conform_059a, 60) { run_at(1, hogs, NULL); }

/* ---- 69: who I am does not change with the thread -------------------------------------------- */

static atomic_long moves;

static int ask_who_i_am(void *arg) {
    (void)arg;
    weft_id me = weft_self();
    pthread_t (*volatile thread)(void) = pthread_self;
    CHECK_NE(me, 0);
    for (int i = 0; i < 500; i++) {
        pthread_t before = thread();
        if (i % 4 == 0) {
            CHECK_EQ(weft_sleep(50 * US), 0);
        } else {
            weft_yield();
        }
        CHECK_EQ(weft_self(), me);
        atomic_fetch_add(&moves, before != thread());
    }
    return 0;
}

static int ask_all(void *arg) {
    (void)arg;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    do {
        for (int i = 0; i < 50; i++) {
            WEFT_MUST(weft_waitgroup_go(&wg, ask_who_i_am, NULL));
        }
        weft_waitgroup_wait(&wg);
    } while (atomic_load(&moves) < 100);
    return 0;
}

TEST_IN(conform, conform_069, 60) { run_at(4, ask_all, NULL); }

/* ---- 70, 82: the poller ---------------------------------------------------------------------- */

/* A plain thread sleeps in a poller of its own for ten seconds; two breaks end it. */
static void *poll_long(void *arg) {
    weft__poller *p = arg;
    weft__poller_poll(p, weft__clock_now() + 10 * SEC, NULL, NULL);
    return NULL;
}

TEST(conform, conform_070) {
    weft__poller *p;
    pthread_t thread;
    int64_t longest = 0;
    CHECK_EQ(weft__poller_open(&p), 0);
    for (int i = 0; i < 20; i++) {
        int64_t start = now();
        CHECK_EQ(pthread_create(&thread, NULL, poll_long, p), 0);
        if (i % 2) {
            thread_sleep(
                2 * MS); /* it sleeps by now, most likely; without, it may not even have begun */
        }
        weft__poller_break(p);
        weft__poller_break(p);
        pthread_join(thread, NULL);
        longest = most(longest, now() - start);
    }
    weft__poller_close(p);
    CHECK_LT(longest, 10 * SEC);
    test_clock(within(longest, 5 * SEC), "a broken poll took at most %.2f ms, bound 5 s",
               (double)longest / MS);
}

static int read_byte(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    char byte;
    CHECK_EQ(weft_conn_read(c, &byte, 1), 1);
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}

static int count_poll_waiters(void *arg) {
    (void)arg;
    weft__r *r = weft_current();
    static weft_conn conns[20];
    int ends[20];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    CHECK_EQ(atomic_load(&r->poll_waiters), 0);
    for (int i = 0; i < 20; i++) {
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        CHECK_EQ(weft_conn_from_fd(&conns[i], pair[0]), 0);
        ends[i] = pair[1];
        WEFT_MUST(weft_waitgroup_go(&wg, read_byte, &conns[i]));
    }
    while (atomic_load(&r->poll_waiters) != 20) {
        weft_yield();
    }
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(write(ends[i], "x", 1), 1);
    }
    weft_waitgroup_wait(&wg);
    CHECK_EQ(atomic_load(&r->poll_waiters), 0);
    CHECK_EQ(stats().conns_open, 0);
    for (int i = 0; i < 20; i++) {
        close(ends[i]);
    }
    return 0;
}

TEST(conform, conform_082) { run_at(2, count_poll_waiters, NULL); }

/* ---- 71: many Ps ----------------------------------------------------------------------------- */

/* Threads of the runtime bear its name. */
static int threads_named(const char *name) {
    char path[64], comm[32];
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", e->d_name);
        FILE *in = fopen(path, "re");
        n += in && fgets(comm, sizeof comm, in) && strcmp(comm, name) == 0;
        if (in) {
            fclose(in);
        }
    }
    closedir(d);
    return n;
}

static int start_at_many(void *arg) {
    CHECK_EQ(weft_procs(NULL), 1024);
    while (threads_named("weft\n") == 0) { /* one gives itself its name once it runs */
        weft_yield();
    }
    return try_and_yield(arg);
}

TEST_IN(conform, conform_071, 60) {
    run_at(1024, start_at_many, NULL);
    while (threads_named("weft\n") !=
           0) { /* a joined thread is listed until the kernel buries it */
        thread_sleep(MS);
    }
}

/* ---- 75: the first one leaves, the others go on ---------------------------------------------- */

static atomic_int left_behind;

static int end_late(void *arg) {
    (void)arg;
    CHECK_EQ(weft_sleep(20 * MS), 0);
    atomic_fetch_add(&left_behind, 1);
    return 0;
}

static int leave_first(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) {
        WEFT_MUST(weft_go(end_late, NULL));
    }
    weft_exit(7);
}

TEST(conform, conform_075a) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config cfg = config_of(procs);
        int status = -1;
        atomic_store(&left_behind, 0);
        CHECK_EQ(weft_run(leave_first, NULL, &cfg, &status), 0);
        CHECK_EQ(status, 7);
        CHECK_EQ(atomic_load(&left_behind), 10);
    }
}

/* ---- 86: plain threads come and go ----------------------------------------------------------- */

enum { CALLERS = 8, GENERATIONS = 20, CALLS = 50 };

static weft_chan *questions, *answers;

static int answer_all(void *arg) {
    (void)arg;
    int v;
    while (weft_chan_recv(questions, &v) == 0) {
        v++;
        CHECK_EQ(weft_chan_send(answers, &v), 0);
    }
    return 0;
}

static void *ask_often(void *arg) {
    int v = 0;
    for (int i = 0; i < CALLS; i++) {
        CHECK_EQ(weft_chan_send(questions, &v), 0);
        CHECK_EQ(weft_chan_recv(answers, &v), 0);
    }
    return arg;
}

TEST_IN(conform, conform_086a, 60) {
    weft_config cfg = config_of(2);
    weft_runtime *rt;
    pthread_t threads[CALLERS];
    questions = new_ints(0);
    answers = new_ints(0);
    CHECK_EQ(weft_start(&rt, &cfg), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_submit(rt, answer_all, NULL), 0);
    }
    for (int g = 0; g < GENERATIONS; g++) {
        for (int i = 0; i < CALLERS; i++) {
            CHECK_EQ(pthread_create(&threads[i], NULL, ask_often, NULL), 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    CHECK_EQ(weft_chan_close(questions), 0);
    CHECK_EQ(weft_stop(rt, 5 * SEC), 0);
    weft_chan_unref(questions);
    weft_chan_unref(answers);
}

/* ---- 87, 90: a storm of signals -------------------------------------------------------------- */

static atomic_long storm;

static void count_signal(int sig) {
    (void)sig;
    atomic_fetch_add(&storm, 1);
}

static void begin_storm(void) {
    struct sigaction a = {.sa_handler = count_signal};
    struct itimerval every = {{0, 500}, {0, 500}};
    CHECK_EQ(sigaction(SIGALRM, &a, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void end_storm(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK_GE(atomic_load(&storm), 100);
}

static int echo_byte(void *arg) {
    weft_conn c = *(weft_conn *)arg;
    char byte;
    while (weft_conn_read(c, &byte, 1) == 1) {
        CHECK_EQ(weft_conn_write_all(c, &byte, 1, NULL), 0);
    }
    CHECK_EQ(weft_conn_close(c), 0);
    return 0;
}

/* Sleeps, dials, accepts, reads and writes until the storm has had its chance at all of them. */
static int calls_in_a_storm(void *arg) {
    (void)arg;
    weft_listener l;
    weft_addr at;
    char text[64];
    WEFT_MUST(weft_listen(&l, "tcp", "127.0.0.1:0", NULL));
    WEFT_MUST(weft_listener_addr(l, &at));
    weft_addr_text(&at, text, sizeof text);
    for (int round = 0; round < 50 || atomic_load(&storm) < 100; round++) {
        static weft_conn server;
        weft_conn client;
        weft_waitgroup wg = WEFT_WAITGROUP_INIT;
        CHECK_EQ(weft_dial(&client, "tcp", text, NULL), 0);
        CHECK_EQ(weft_accept(&server, l), 0);
        WEFT_MUST(weft_waitgroup_go(&wg, echo_byte, &server));
        for (int i = 0; i < 20; i++) {
            char byte = (char)i, back;
            int64_t start = now();
            CHECK_EQ(weft_sleep(100 * US), 0);
            CHECK_GE(now() - start, 100 * US);
            CHECK_EQ(weft_conn_write(client, &byte, 1), 1);
            CHECK_EQ(weft_conn_read(client, &back, 1), 1);
            CHECK_EQ(back, byte);
        }
        CHECK_EQ(weft_conn_close(client), 0);
        weft_waitgroup_wait(&wg);
    }
    CHECK_EQ(weft_listener_close(l), 0);
    return 0;
}

TEST_IN(conform, conform_087, 60) {
    begin_storm();
    run_at(2, calls_in_a_storm, NULL);
    end_storm();
}

/* A plain thread's waits are futex waits, which signals end early. */
TEST_IN(conform, conform_090, 60) {
    weft_event never = WEFT_EVENT_INIT;
    weft_chan *c = new_ints(0);
    begin_storm();
    for (int i = 0; i < 100 || atomic_load(&storm) < 100; i++) {
        int64_t start = now();
        weft_time until = weft_in(3 * MS);
        CHECK_EQ(i % 2 ? weft_event_wait_until(&never, until)
                       : weft_chan_recv_until(c, NULL, until),
                 -ETIMEDOUT);
        CHECK_GE(now() - start, 3 * MS);
    }
    end_storm();
    weft_chan_unref(c);
}
