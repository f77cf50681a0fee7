/* stress/handoff.c: green threads that block and compute without telling anybody, between channels,
 * sleeps and locks, at 1, 2 and 4 Ps, with runtimes that are stopped meanwhile, and in some rounds with
 * the number of Ps changed all the time; some are locked to their threads. Exact books: no green thread is lost, each value that was sent arrives once, nobody is in a lock's section with another.
 */
#include "stress.h"

#include <unistd.h>

enum {
    WORKERS = STRESS_TSAN ? 12 : 24,
    PRODUCERS = 4,
    CONSUMERS = 4,
    MOST_VALUES = 1 << 18,
};

struct scene {
    weft_chan *chan;
    weft_mutex lock;
    int inside;      /* lock */
    uint64_t locked; /* lock: how often */
    atomic_uint_fast64_t locks;
    atomic_int begun, ended; /* green threads */
    atomic_int next, sent, received;
    atomic_int steps_left; /* no further round of work below 0; a stop may come first */
    atomic_uchar got[MOST_VALUES];
    int pipes[WORKERS][2];
};

static bool cut_off(int err) { return err == -ECANCELED || err == WEFT_ESTOPPING; }

/* ---- what holds a thread ---- */

static void plain_sleep(int64_t ns) {
    struct timespec t = {.tv_nsec = ns};
    while (nanosleep(&t, &t) != 0) {
    }
}

static void compute(int64_t ns) {
    int64_t end = clock_ns() + ns;
    while (clock_ns() < end) {
    }
}

/* A byte that a plain thread writes a little later. */
struct late_byte {
    int fd;
    int64_t after;
};

static void *write_late(void *arg) {
    struct late_byte *l = arg;
    plain_sleep(l->after);
    CHECK_EQ(write(l->fd, "x", 1), 1);
    return NULL;
}

static void read_pipe(int *ends, int64_t after) {
    struct late_byte l = {ends[1], after};
    pthread_t t;
    char byte = 0;
    CHECK_EQ(pthread_create(&t, NULL, write_late, &l), 0);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(byte, 'x');
    pthread_join(t, NULL);
}

static void lock_once(struct scene *s, uint64_t *seed) {
    weft_mutex_lock(&s->lock);
    CHECK_EQ(s->inside++, 0);
    s->locked++;
    if (chance(seed) % 4 == 0) {
        plain_sleep(1000 * (50 + chance(seed) % 100)); /* the holder's P goes, the lock stays */
    }
    CHECK_EQ(--s->inside, 0);
    weft_mutex_unlock(&s->lock);
    atomic_fetch_add(&s->locks, 1);
}

/* One step of a kind by chance. Nonzero: the runtime is being stopped. */
static int step(struct scene *s, int number, uint64_t *seed) {
    switch (chance(seed) % 8) {
    case 0:
    case 1:
        plain_sleep(1000 * (50 + chance(seed) % 450));
        return 0;
    case 2:
        read_pipe(s->pipes[number], 1000 * (chance(seed) % 300));
        return 0;
    case 3:
        compute(chance(seed) % 8 == 0 ? 1000 * (chance(seed) % 12000)
                                      : 1000 * (chance(seed) % 300));
        return 0;
    case 4:
        return weft_sleep((weft_duration)(chance(seed) % 300) * WEFT_MICROSECOND);
    case 5:
        lock_once(s, seed);
        return 0;
    default:
        weft_yield();
        return 0;
    }
}

static void end_one(struct scene *s) {
    atomic_fetch_add(&s->ended, 1);
    progress();
}

struct role {
    struct scene *scene;
    int number;
};

static int work(void *arg) {
    struct role *r = arg;
    uint64_t seed = chance_seed((uint64_t)r->number);
    int err = 0;
    bool locked = r->number % 6 == 0; /* to its thread */
    if (locked) {
        weft_lock_thread();
    }
    long thread = gettid();
    while (err == 0 && atomic_fetch_sub(&r->scene->steps_left, 1) > 0) {
        err = step(r->scene, r->number, &seed);
        CHECK(!locked || gettid() == thread);
        if (locked && chance(&seed) % 32 == 0) {
            weft_unlock_thread();
            weft_yield();
            weft_lock_thread();
            thread = gettid();
        }
        progress();
    }
    CHECK(err == 0 || cut_off(err));
    if (locked && chance(&seed) % 2 == 0) {
        weft_unlock_thread(); /* else its thread ends */
    }
    end_one(r->scene);
    return 0;
}

static int produce(void *arg) {
    struct role *r = arg;
    struct scene *s = r->scene;
    uint64_t seed = chance_seed((uint64_t)r->number + 100);
    int err = 0;
    while (err == 0 && atomic_load(&s->steps_left) > 0) {
        int v = atomic_fetch_add(&s->next, 1);
        if (v >= MOST_VALUES) {
            break;
        }
        err = weft_chan_send(s->chan, &v);
        if (err == 0) {
            atomic_fetch_add(&s->sent, 1);
        }
        if (chance(&seed) % 32 == 0) {
            plain_sleep(1000 * (50 + chance(&seed) % 100));
        }
    }
    CHECK(err == 0 || cut_off(err));
    end_one(s);
    return 0;
}

static int consume(void *arg) {
    struct role *r = arg;
    struct scene *s = r->scene;
    uint64_t seed = chance_seed((uint64_t)r->number + 200);
    int v, err;
    while ((err = weft_chan_recv(s->chan, &v)) == 0) {
        CHECK(v >= 0 && v < MOST_VALUES);
        CHECK_EQ(atomic_fetch_add(&s->got[v], 1), 0);
        atomic_fetch_add(&s->received, 1);
        progress();
        if (chance(&seed) % 32 == 0) {
            compute(1000 * (chance(&seed) % 200));
        }
    }
    CHECK(err == -EPIPE || cut_off(err));
    end_one(s);
    return 0;
}

/* ---- a round ---- */

static int start_all(void *arg) {
    struct scene *s = arg;
    static const struct {
        weft_fn fn;
        int n;
    } roles[] = {{produce, PRODUCERS}, {consume, CONSUMERS}, {work, WORKERS}};
    for (size_t k = 0; k < WEFT_COUNT(roles); k++) {
        for (int i = 0; i < roles[k].n; i++) {
            struct role r = {s, i};
            int err = WEFT_GO_COPY(roles[k].fn, &r);
            if (err != 0) {
                CHECK_EQ(err, WEFT_ESTOPPING);
                return 0;
            }
            atomic_fetch_add(&s->begun, 1);
        }
    }
    return 0;
}

static void open_scene(struct scene *s, uint64_t *seed, int steps) {
    memset(s, 0, sizeof *s);
    atomic_store(&s->steps_left, steps);
    CHECK_EQ(weft_chan_new(&s->chan, sizeof(int), chance(seed) % 2 ? 0 : 16), 0);
    for (int i = 0; i < WORKERS; i++) {
        CHECK_EQ(pipe(s->pipes[i]), 0);
    }
}

static void close_scene(struct scene *s) {
    int v, left = 0;
    CHECK_EQ(atomic_load(&s->ended), atomic_load(&s->begun));
    while (weft_chan_try_recv(s->chan, &v) == 0) { /* consumers may have been cut off first */
        CHECK_EQ(atomic_fetch_add(&s->got[v], 1), 0);
        left++;
    }
    CHECK_EQ(atomic_load(&s->sent), atomic_load(&s->received) + left);
    CHECK_EQ(s->locked, atomic_load(&s->locks));
    CHECK_EQ(s->inside, 0);
    int sum = 0;
    for (int i = 0; i < MOST_VALUES; i++) {
        sum += atomic_load(&s->got[i]);
    }
    CHECK_EQ(sum, atomic_load(&s->sent));
    weft_chan_unref(s->chan);
    for (int i = 0; i < WORKERS; i++) {
        close(s->pipes[i][0]);
        close(s->pipes[i][1]);
    }
}

/* A plain thread that changes the number of Ps until it is told to end. */
struct resizer {
    weft_runtime *rt;
    uint64_t seed;
    int most;
    atomic_bool over;
    pthread_t thread;
};

static void *resize_body(void *arg) {
    struct resizer *z = arg;
    while (!atomic_load(&z->over)) {
        CHECK_EQ(weft_set_procs(z->rt, 1 + (int)(chance(&z->seed) % (unsigned)z->most)), 0);
        plain_sleep(1000 * (int64_t)(chance(&z->seed) % 3000));
    }
    return NULL;
}

static void resizer_begin(struct resizer *z, weft_runtime *rt, int most, uint64_t *seed) {
    *z = (struct resizer){.rt = rt, .seed = chance_seed(chance(seed)), .most = most};
    CHECK_EQ(pthread_create(&z->thread, NULL, resize_body, z), 0);
}

static void resizer_end(struct resizer *z) {
    atomic_store(&z->over, true);
    pthread_join(z->thread, NULL);
}

/* Lets all come to their end, or stops them in the middle. */
static void one_round(int procs, uint64_t *seed) {
    static struct scene s;
    weft_config c = stress_config(procs);
    weft_runtime *rt;
    bool in_the_middle = chance(seed) % 2 == 0;
    open_scene(&s, seed, in_the_middle ? 1 << 30 : 2000);
    c.max_threads =
        chance(seed) % 2 ? 0 : procs + 6; /* so many that some calls wait for a thread */
    CHECK_EQ(weft_start(&rt, &c), 0);
    atomic_store(&watchdog.rt[0], rt);
    CHECK_EQ(weft_submit(rt, start_all, &s), 0);
    struct resizer z;
    bool resized = chance(seed) % 3 == 0;
    if (resized) {
        resizer_begin(&z, rt, procs + 3, seed);
    }
    if (in_the_middle) {
        plain_sleep(1000 * (int64_t)(chance(seed) % 60000));
    } else {
        while (atomic_load(&s.ended) < PRODUCERS + WORKERS) {
            plain_sleep(200 * 1000);
        }
        CHECK_EQ(weft_chan_close(s.chan), 0);
        while (atomic_load(&s.ended) < PRODUCERS + WORKERS + CONSUMERS) {
            plain_sleep(200 * 1000);
        }
    }
    if (resized) {
        resizer_end(&z);
    }
    atomic_store(&watchdog.rt[0], NULL);
    /* Who computes sees no stop: it ends with its steps. */
    atomic_store(&s.steps_left, 0);
    CHECK_EQ(weft_stop(rt, -1), 0);
    close_scene(&s);
    progress();
}

static void rounds(int procs) {
    stress_begin(3);
    uint64_t seed = chance_seed(7);
    while (stress_more()) {
        one_round(procs, &seed);
    }
    stress_over();
}

TEST_IN(handoff, blocked_and_computing_1, 40) { rounds(1); }
TEST_IN(handoff, blocked_and_computing_2, 40) { rounds(2); }
TEST_IN(handoff, blocked_and_computing_4, 40) { rounds(4); }
