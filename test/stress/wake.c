/* stress/wake.c: no wake-up is lost. Work comes from outside in single pieces with random gaps, so that
 * the workers keep dropping off to sleep; each piece must be run, or the whole stands still. */
#include "stress.h"

enum { SUBMITTERS = 3 };

static void random_gap(uint64_t *seed) {
    uint32_t kind = chance(seed) % 8;
    if (kind == 0) {
        return; /* at once */
    }
    if (kind <= 4) { /* about as long as an M takes to fall asleep */
        for (volatile uint32_t n = chance(seed) % 4000; n > 0; n--) {
        }
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % 150) * 1000}, NULL);
}

/* ---- submit ---- */

struct piece {
    weft_event done;
    atomic_int run;
};

static int run_piece(void *arg) {
    struct piece *p = arg;
    CHECK_EQ(atomic_fetch_add(&p->run, 1), 0);
    weft_event_set(&p->done); /* the submitter's frame may go */
    return 0;
}

static void *submit_on(void *arg) {
    weft_runtime *rt = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (stress_more()) {
        struct piece p[3] = {0};
        int n = 1 + (int)(chance(&seed) % 3);
        for (int i = 0; i < n; i++) {
            CHECK_EQ(weft_submit(rt, run_piece, &p[i]), 0);
            random_gap(&seed);
        }
        for (int i = 0; i < n; i++) {
            weft_event_wait(&p[i].done);
            CHECK_EQ(atomic_load(&p[i].run), 1);
        }
        progress();
        random_gap(&seed);
    }
    return NULL;
}

static weft_runtime *start(int procs, int max_threads) {
    weft_runtime *rt;
    weft_config c = stress_config(procs);
    c.max_threads = max_threads;
    CHECK_EQ(weft_start(&rt, &c), 0);
    return rt;
}

static void on_threads(int n, void *(*fn)(void *), weft_runtime *rt) {
    pthread_t t[8];
    CHECK_LE(n, 8);
    atomic_store(&watchdog.rt[0], rt);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, fn, rt), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    atomic_store(&watchdog.rt[0], NULL);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

static void submits(int procs, int threads, int max_threads) {
    stress_begin(1.5);
    on_threads(threads, submit_on, start(procs, max_threads));
    stress_over();
}

TEST_IN(wake, submit_1, 30) { submits(1, 1, 0); }
TEST_IN(wake, submit_2, 30) { submits(2, 2, 0); }
TEST_IN(wake, submit_4, 30) { submits(4, SUBMITTERS, 0); }

/* No thread to spare: an M that is just falling asleep must see what it was wanted for. */
TEST_IN(wake, submit_few_threads_1, 30) { submits(1, 2, 2); }
TEST_IN(wake, submit_few_threads_2, 30) { submits(2, SUBMITTERS, 3); }

/* ---- a green thread that waits, and a plain one that wakes it ---- */

struct pair {
    weft_chan *there, *back;
    weft_runtime *rt;
};

static int echo(void *arg) {
    struct pair p = *(struct pair *)arg; /* which stays until we have answered, no longer */
    uint64_t v;
    while (weft_chan_recv(p.there, &v) == 0) {
        v++;
        if (weft_chan_send(p.back, &v) != 0) {
            break;
        }
    }
    weft_chan_unref(p.there);
    weft_chan_unref(p.back);
    return 0;
}

static void *talk_on(void *arg) {
    struct pair p = {.rt = arg};
    uint64_t seed = chance_seed((uintptr_t)&seed), v = 0;
    size_t cap = chance(&seed) % 2;
    CHECK_EQ(weft_chan_new(&p.there, sizeof v, cap), 0);
    CHECK_EQ(weft_chan_new(&p.back, sizeof v, cap), 0);
    weft_chan_ref(p.there);
    weft_chan_ref(p.back);
    CHECK_EQ(weft_submit(p.rt, echo, &p), 0);
    for (uint64_t i = 0; i == 0 || stress_more(); i++) {
        random_gap(&seed);
        v = i;
        CHECK_EQ(weft_chan_send(p.there, &v), 0);
        if (chance(&seed) % 2 == 0) {
            random_gap(&seed);
        }
        CHECK_EQ(weft_chan_recv(p.back, &v), 0);
        CHECK_EQ(v, i + 1);
        progress();
    }
    CHECK_EQ(weft_chan_close(p.there), 0);
    CHECK_EQ(weft_chan_close(p.back), 0);
    CHECK_EQ(weft_chan_recv(p.back, &v), -EPIPE);
    weft_chan_unref(p.there);
    weft_chan_unref(p.back);
    return NULL;
}

static void talks(int procs, int threads) {
    stress_begin(1.5);
    on_threads(threads, talk_on, start(procs, 0));
    stress_over();
}

TEST_IN(wake, talk_1, 30) { talks(1, 2); }
TEST_IN(wake, talk_2, 30) { talks(2, 3); }
TEST_IN(wake, talk_4, 30) { talks(4, 3); }

/* ---- two runtimes that wake each other ---- */

static weft_event ball[2];

static int play(void *arg) {
    int me = (int)(intptr_t)arg;
    uint64_t seed = chance_seed((uint64_t)me);
    while (stress_more()) {
        weft_event_wait(&ball[me]);
        weft_event_reset(&ball[me]);
        if (chance(&seed) % 4 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 100) * WEFT_MICROSECOND);
        }
        progress();
        weft_event_set(&ball[!me]);
    }
    weft_event_set(&ball[!me]);
    return 0;
}

static void play_between(int procs_a, int procs_b) {
    stress_begin(1.5);
    weft_runtime *a = start(procs_a, 0), *b = start(procs_b, 0);
    atomic_store(&watchdog.rt[0], a);
    atomic_store(&watchdog.rt[1], b);
    CHECK_EQ(weft_submit(a, play, (void *)(intptr_t)0), 0);
    CHECK_EQ(weft_submit(b, play, (void *)(intptr_t)1), 0);
    weft_event_set(&ball[0]);
    while (stress_more()) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    atomic_store(&watchdog.rt[0], NULL);
    atomic_store(&watchdog.rt[1], NULL);
    CHECK_EQ(weft_stop(a, -1), 0);
    CHECK_EQ(weft_stop(b, -1), 0);
    stress_over();
}

TEST_IN(wake, between_runtimes_1, 30) { play_between(1, 1); }
TEST_IN(wake, between_runtimes_2, 30) { play_between(2, 2); }

/* ---- inside: pieces that wake pieces, with nobody else about ---- */

static int relay(void *arg) {
    weft_chan **ring = arg; /* receives from [0], sends to [1] */
    uint64_t seed = chance_seed((uintptr_t)arg);
    uint64_t v;
    while (weft_chan_recv(ring[0], &v) == 0) {
        if (chance(&seed) % 4 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 50) * WEFT_MICROSECOND);
        }
        progress();
        v++;
        if (weft_chan_send(ring[1], &v) != 0) {
            break;
        }
    }
    return 0;
}

/* One token in a ring of sleepers: at any moment at most one of them can run. */
static int one_token(void *arg) {
    (void)arg;
    enum { RING = 6 };
    weft_chan *c[RING + 1];
    for (int i = 0; i < RING; i++) {
        CHECK_EQ(weft_chan_new(&c[i], 8, 1), 0); /* room for the token when its next has left */
    }
    c[RING] = c[0];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < RING; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, relay, &c[i]), 0);
    }
    uint64_t v = 0;
    CHECK_EQ(weft_chan_send(c[0], &v), 0);
    while (stress_more()) {
        weft_sleep(10 * WEFT_MILLISECOND);
    }
    for (int i = 0; i < RING; i++) {
        CHECK_EQ(weft_chan_close(c[i]), 0);
    }
    weft_waitgroup_wait(&w);
    for (int i = 0; i < RING; i++) {
        weft_chan_unref(c[i]);
    }
    return 0;
}

static void tokens(int procs) {
    stress_begin(1.5);
    stress_run(procs, one_token, NULL);
    stress_over();
}

TEST_IN(wake, token_2, 30) { tokens(2); }
TEST_IN(wake, token_4, 30) { tokens(4); }
