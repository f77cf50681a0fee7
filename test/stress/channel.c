/* stress/channel.c: many senders and receivers on channels of every size. Sums are right, each receiver
 * meets the values of one sender in the order they were sent, a close drains, and references may be
 * given up while others wait.
 */
#include "stress.h"

enum { SENDERS = 8, RECEIVERS = 6, BATCH = STRESS_TSAN ? 200 : 3000 };

struct value {
    uint32_t sender, number;
};

struct line {
    weft_chan *chan;
    _Atomic uint64_t sent, received, count;
    weft_waitgroup senders, receivers;
};

struct sender {
    struct line *line;
    uint32_t number;
};

static int send_batch(void *arg) {
    struct sender *s = arg;
    struct line *l = s->line;
    uint64_t seed = chance_seed(s->number);
    for (uint32_t i = 1; i <= BATCH; i++) {
        struct value v = {s->number, i};
        int err;
        switch (chance(&seed) % 4) {
        case 0:
            while ((err = weft_chan_try_send(l->chan, &v)) == -EAGAIN) {
                weft_yield();
            }
            break;
        case 1:
            while ((err = weft_chan_send_until(l->chan, &v,
                                               weft_in((weft_duration)(chance(&seed) % 50000)))) ==
                   -ETIMEDOUT) {
            }
            break;
        default:
            err = weft_chan_send(l->chan, &v);
        }
        CHECK_EQ(err, 0);
        atomic_fetch_add(&l->sent, i);
        progress();
    }
    weft_waitgroup_done(&l->senders);
    return 0;
}

static int recv_all(void *arg) {
    struct line *l = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    uint32_t last[SENDERS] = {0};
    for (;;) {
        struct value v = {0, 0};
        int err;
        switch (chance(&seed) % 4) {
        case 0:
            err = weft_chan_try_recv(l->chan, &v);
            break;
        case 1:
            err =
                weft_chan_recv_until(l->chan, &v, weft_in((weft_duration)(chance(&seed) % 50000)));
            break;
        default:
            err = weft_chan_recv(l->chan, &v);
        }
        if (err == -EPIPE) {
            break;
        }
        if (err == -EAGAIN) {
            weft_yield();
        }
        if (err != 0) {
            CHECK(err == -EAGAIN || err == -ETIMEDOUT);
            continue;
        }
        CHECK_LT(v.sender, SENDERS);
        CHECK_GT(v.number, last[v.sender]);
        last[v.sender] = v.number;
        atomic_fetch_add(&l->received, v.number);
        atomic_fetch_add(&l->count, 1);
    }
    weft_waitgroup_done(&l->receivers);
    return 0;
}

static void *send_thread(void *arg) {
    send_batch(arg);
    return NULL;
}

static void *recv_thread(void *arg) {
    recv_all(arg);
    return NULL;
}

static void one_line(size_t cap) {
    struct line l = {0};
    struct sender s[SENDERS];
    pthread_t t[2];
    CHECK_EQ(weft_chan_new(&l.chan, sizeof(struct value), cap), 0);
    weft_waitgroup_add(&l.senders, SENDERS);
    weft_waitgroup_add(&l.receivers, RECEIVERS);
    for (uint32_t i = 0; i < SENDERS; i++) {
        s[i] = (struct sender){&l, i};
        if (i == 0) {
            CHECK_EQ(pthread_create(&t[0], NULL, send_thread, &s[i]), 0);
        } else {
            CHECK_EQ(weft_go(send_batch, &s[i]), 0);
        }
    }
    for (int i = 0; i < RECEIVERS; i++) {
        if (i == 0) {
            CHECK_EQ(pthread_create(&t[1], NULL, recv_thread, &l), 0);
        } else {
            CHECK_EQ(weft_go(recv_all, &l), 0);
        }
    }
    weft_waitgroup_wait(&l.senders);
    CHECK_EQ(weft_chan_close(l.chan), 0); /* with values still in it */
    weft_waitgroup_wait(&l.receivers);
    pthread_join(t[0], NULL); /* both are past their last call */
    pthread_join(t[1], NULL);
    CHECK_EQ(atomic_load(&l.count), SENDERS * BATCH);
    CHECK_EQ(atomic_load(&l.sent), (uint64_t)SENDERS * BATCH * (BATCH + 1) / 2);
    CHECK_EQ(atomic_load(&l.received), atomic_load(&l.sent));
    weft_chan_unref(l.chan);
}

static int lines(void *arg) {
    (void)arg;
    static const size_t caps[] = {0, 1, 2, 7, 64, 1000};
    uint64_t seed = chance_seed(3);
    while (stress_more()) {
        one_line(caps[chance(&seed) % WEFT_COUNT(caps)]);
    }
    return 0;
}

static void many(int procs) {
    stress_begin(2);
    stress_run(procs, lines, NULL);
    stress_over();
}

TEST_IN(channel, many_1, 40) { many(1); }
TEST_IN(channel, many_2, 40) { many(2); }
TEST_IN(channel, many_4, 40) { many(4); }

/* ---- references ---- */

/* One of several that share a channel: a few operations with short deadlines, then it lets go; the last
   one frees, perhaps with values still inside. */
static _Atomic int64_t holders;

static int use_and_let_go(void *arg) {
    weft_chan *c = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    for (int i = 0; i < 4; i++) {
        uint64_t v = chance(&seed);
        weft_time soon = weft_in((weft_duration)(chance(&seed) % 30000));
        int err = chance(&seed) % 2 ? weft_chan_send_until(c, &v, soon)
                                    : weft_chan_recv_until(c, &v, soon);
        CHECK(err == 0 || err == -ETIMEDOUT || err == -EPIPE);
    }
    if (chance(&seed) % 8 == 0) {
        int err = weft_chan_close(c);
        CHECK(err == 0 || err == -EPIPE);
    }
    weft_chan_unref(c);
    progress();
    atomic_fetch_sub(&holders, 1);
    return 0;
}

static int share(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(5);
    while (stress_more()) {
        weft_chan *c;
        CHECK_EQ(weft_chan_new(&c, 8, chance(&seed) % 3), 0);
        int n = 1 + (int)(chance(&seed) % 6);
        for (int i = 0; i < n; i++) {
            atomic_fetch_add(&holders, 1);
            CHECK_EQ(weft_go(use_and_let_go, weft_chan_ref(c)), 0);
        }
        weft_chan_unref(c);
        while (atomic_load(&holders) > 300) {
            weft_yield();
        }
    }
    while (atomic_load(&holders) > 0) {
        weft_sleep(WEFT_MILLISECOND);
    }
    return 0;
}

static void shares(int procs) {
    stress_begin(1.5);
    stress_run(procs, share, NULL);
    stress_over();
}

TEST_IN(channel, references_1, 30) { shares(1); }
TEST_IN(channel, references_2, 30) { shares(2); }
TEST_IN(channel, references_4, 30) { shares(4); }

/* ---- a chain through which values pass, as through a pipeline ---- */

struct link {
    weft_chan *in, *out;
};

static int pass_on(void *arg) {
    struct link l = *(struct link *)arg;
    uint64_t v;
    while (weft_chan_recv(l.in, &v) == 0) {
        v++;
        CHECK_EQ(weft_chan_send(l.out, &v), 0);
    }
    CHECK_EQ(weft_chan_close(l.out), 0);
    weft_chan_unref(l.in);
    return 0;
}

static int chains(void *arg) {
    (void)arg;
    enum { LINKS = STRESS_TSAN ? 100 : 1000, PASSES = 20 };
    while (stress_more()) {
        weft_chan *first, *in;
        CHECK_EQ(weft_chan_new(&first, 8, 0), 0);
        in = weft_chan_ref(first);
        for (int i = 0; i < LINKS; i++) {
            struct link l = {in, NULL};
            CHECK_EQ(weft_chan_new(&l.out, 8, 0), 0);
            in = weft_chan_ref(l.out);
            CHECK_EQ(weft_go_copy(pass_on, &l, sizeof l), 0);
            weft_chan_unref(l.out); /* its next, and we, hold it while it is used */
        }
        for (uint64_t k = 0; k < PASSES; k++) {
            uint64_t v = k;
            CHECK_EQ(weft_chan_send(first, &v), 0);
            CHECK_EQ(weft_chan_recv(in, &v), 0);
            CHECK_EQ(v, k + LINKS);
            progress();
        }
        CHECK_EQ(weft_chan_close(first), 0);
        uint64_t v;
        CHECK_EQ(weft_chan_recv(in, &v), -EPIPE);
        weft_chan_unref(first);
        weft_chan_unref(in);
    }
    return 0;
}

TEST_IN(channel, chain_1, 30) {
    stress_begin(1);
    stress_run(1, chains, NULL);
    stress_over();
}

TEST_IN(channel, chain_3, 30) {
    stress_begin(1);
    stress_run(3, chains, NULL);
    stress_over();
}
