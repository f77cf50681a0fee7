/* stress/park.c: park and ready. Sends and receives of every kind race with deadlines, with a close and
 * with the stop of a runtime, from green threads of two runtimes and from plain threads. Exact books: a
 * value whose send said 0 arrives once, one whose send failed never does, and none is torn.
 */
#include "stress.h"

enum {
    PARTIES = 12,
    PLAIN = 2, /* of these plain threads, as senders and as receivers */
    EACH = STRESS_TSAN ? 300 : 2000,
    VALUES = PARTIES * EACH,
};

struct value {
    uint64_t number, inverse, product;
};

static struct value value_of(uint64_t number) {
    return (struct value){number, ~number, number * 7919};
}

static atomic_uchar sent[VALUES], got[VALUES];

struct round {
    weft_chan *chan;
    weft_waitgroup ends; /* of all parties */
    atomic_int failed;   /* sends */
};

struct party {
    struct round *round;
    int number; /* of the sender: its values begin at number * EACH */
};

/* A deadline that is past, that comes before the partner, or about with him, or never. */
static weft_time random_deadline(uint64_t *seed) {
    switch (chance(seed) % 8) {
    case 0:
        return weft_time_at(0);
    case 1:
        return WEFT_NEVER;
    case 2:
        return weft_in(WEFT_SECOND * 100);
    case 3:
        return weft_in((weft_duration)(chance(seed) % 2000));
    default:
        return weft_in((weft_duration)(chance(seed) % 200) * WEFT_MICROSECOND);
    }
}

static int send_one(weft_chan *c, const struct value *v, uint64_t *seed) {
    switch (chance(seed) % 4) {
    case 0:
        return weft_chan_send(c, v);
    case 1:
        return weft_chan_try_send(c, v);
    default:
        return weft_chan_send_until(c, v, random_deadline(seed));
    }
}

static int recv_one(weft_chan *c, struct value *v, uint64_t *seed) {
    switch (chance(seed) % 4) {
    case 0:
        return weft_chan_recv(c, v);
    case 1:
        return weft_chan_try_recv(c, v);
    default:
        return weft_chan_recv_until(c, v, random_deadline(seed));
    }
}

/* What may have ended an operation that did not happen. True: nothing more is to be had here. */
static bool is_over(int err, bool green) {
    CHECK(err == -EPIPE || err == -ETIMEDOUT || err == -EAGAIN || err == -ECANCELED);
    CHECK(err != -ECANCELED || green);
    return err == -EPIPE || err == -ECANCELED;
}

static int sender(void *arg) {
    struct party *p = arg;
    weft_chan *c = p->round->chan;
    bool green = weft_current() != NULL;
    uint64_t seed = chance_seed((uint64_t)p->number);
    for (int i = 0; i < EACH; i++) {
        uint64_t number = (uint64_t)(p->number * EACH + i);
        struct value v = value_of(number);
        int err = send_one(c, &v, &seed);
        if (err == 0) {
            CHECK_EQ(atomic_fetch_add(&sent[number], 1), 0);
            progress();
        } else {
            atomic_fetch_add(&p->round->failed, 1);
            if (is_over(err, green)) {
                break;
            }
        }
        if (chance(&seed) % 64 == 0) {
            weft_yield();
        }
    }
    weft_waitgroup_done(&p->round->ends);
    return 0;
}

static int receiver(void *arg) {
    struct party *p = arg;
    weft_chan *c = p->round->chan;
    bool green = weft_current() != NULL;
    uint64_t seed = chance_seed((uint64_t)p->number + 100);
    for (;;) {
        struct value v = {1, 1, 1};
        int err = recv_one(c, &v, &seed);
        if (err == 0) {
            struct value whole = value_of(v.number);
            CHECK_MEM(&v, &whole, sizeof v);
            CHECK_LT(v.number, VALUES);
            CHECK_EQ(atomic_fetch_add(&got[v.number], 1), 0);
            progress();
        } else if (is_over(err, green)) {
            if (err == -EPIPE) {
                CHECK_EQ(v.number | v.inverse | v.product, 0);
            }
            break;
        } else {
            CHECK_EQ(v.inverse, 1); /* untouched */
        }
        if (chance(&seed) % 64 == 0) {
            weft_yield();
        }
    }
    weft_waitgroup_done(&p->round->ends);
    return 0;
}

static void *sender_thread(void *arg) {
    sender(arg);
    return NULL;
}

static void *receiver_thread(void *arg) {
    receiver(arg);
    return NULL;
}

static void check_books(struct round *r) {
    int n = 0;
    for (int i = 0; i < VALUES; i++) {
        int s = atomic_load(&sent[i]), g = atomic_load(&got[i]);
        if (s != g) {
            test_fail(__FILE__, __LINE__, "value %d of sender %d: sent %d, got %d", i % EACH,
                      i / EACH, s, g);
        }
        n += s;
    }
    CHECK_LE(n + atomic_load(&r->failed), VALUES);
}

static weft_runtime *start(int procs) {
    weft_runtime *rt;
    weft_config c = stress_config(procs);
    CHECK_EQ(weft_start(&rt, &c), 0);
    return rt;
}

/* b is stopped in the middle; the channel is closed at a moment of its own. */
static void one_round(weft_runtime *a, int procs_b, uint64_t *seed) {
    memset((void *)sent, 0, sizeof sent);
    memset((void *)got, 0, sizeof got);
    struct round r = {0};
    weft_runtime *b = start(procs_b);
    atomic_store(&watchdog.rt[1], b);
    size_t cap = chance(seed) % 3 == 0 ? 0 : chance(seed) % 20;
    CHECK_EQ(weft_chan_new(&r.chan, sizeof(struct value), cap), 0);
    struct party p[2 * PARTIES];
    pthread_t t[2 * PLAIN];
    weft_waitgroup_add(&r.ends, 2 * PARTIES);
    for (int i = 0; i < 2 * PARTIES; i++) {
        bool sends = i < PARTIES;
        int k = i % PARTIES;
        p[i] = (struct party){&r, k};
        if (k < PLAIN) {
            CHECK_EQ(pthread_create(&t[(sends ? 0 : PLAIN) + k], NULL,
                                    sends ? sender_thread : receiver_thread, &p[i]),
                     0);
        } else {
            CHECK_EQ(weft_submit(k % 2 ? a : b, sends ? sender : receiver, &p[i]), 0);
        }
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % 4000) * 1000}, NULL);
    bool stop_first = chance(seed) % 2 == 0;
    if (stop_first) {
        atomic_store(&watchdog.rt[1], NULL);
        CHECK_EQ(weft_stop(b, -1), 0);
        nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % 1000) * 1000}, NULL);
    }
    CHECK_EQ(weft_chan_close(r.chan), 0);
    CHECK_EQ(weft_chan_close(r.chan), -EPIPE);
    weft_waitgroup_wait(&r.ends);
    if (!stop_first) {
        atomic_store(&watchdog.rt[1], NULL);
        CHECK_EQ(weft_stop(b, -1), 0);
    }
    for (int i = 0; i < 2 * PLAIN; i++) {
        pthread_join(t[i], NULL);
    }
    struct value v;
    while (weft_chan_recv(r.chan, &v) == 0) { /* receivers may all have been cancelled */
        CHECK_EQ(atomic_fetch_add(&got[v.number], 1), 0);
    }
    check_books(&r);
    CHECK_EQ(weft_chan_len(r.chan), 0);
    weft_chan_unref(r.chan);
}

static void races(int procs_a, int procs_b) {
    stress_begin(3);
    uint64_t seed = chance_seed(9);
    weft_runtime *a = start(procs_a);
    atomic_store(&watchdog.rt[0], a);
    while (stress_more()) {
        one_round(a, procs_b, &seed);
        progress();
    }
    atomic_store(&watchdog.rt[0], NULL);
    CHECK_EQ(weft_stop(a, -1), 0);
    stress_over();
}

TEST_IN(park, races_1, 40) { races(1, 1); }
TEST_IN(park, races_2, 40) { races(2, 2); }
TEST_IN(park, races_4, 40) { races(4, 3); }
