/* conform/chan.c: channels, without select. A test is named by the line of the list that it comes
   from (README.md). */
#include "field/field.h"

#include <errno.h>

enum { CAPACITIES = 200 };

static weft_chan *new_ints(size_t capacity) {
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), capacity), 0);
    return c;
}

/* One call in a green thread of its own, which parks. */
struct call {
    weft_chan *c;
    int value;
    atomic_int result; /* 1: not yet */
    weft_event returned;
};

static int send_body(void *arg) {
    struct call *k = arg;
    atomic_store(&k->result, weft_chan_send(k->c, &k->value));
    weft_event_set(&k->returned);
    return 0;
}

static int recv_body(void *arg) {
    struct call *k = arg;
    atomic_store(&k->result, weft_chan_recv(k->c, &k->value));
    weft_event_set(&k->returned);
    return 0;
}

static void wait_for_waiting(uint64_t gs) {
    weft_stats s;
    do {
        weft_yield();
        WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    } while (s.gs_waiting != gs);
}

static void start(struct call *k, weft_fn fn, weft_chan *c, int value) {
    k->c = c;
    k->value = value;
    atomic_store(&k->result, 1);
    weft_event_reset(&k->returned);
    WEFT_MUST(weft_go(fn, k));
}

static void finish(struct call *k, int result, int value) {
    weft_event_wait(&k->returned);
    CHECK_EQ(atomic_load(&k->result), result);
    CHECK_EQ(k->value, value);
}

/* ---- 94, 95: empty and full ------------------------------------------------------------------ */

static int receive_from_empty(void *arg) {
    (void)arg;
    static struct call k;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        int value = 17;
        CHECK_EQ(weft_chan_try_recv(c, &value), -EAGAIN);
        CHECK_EQ(value, 17);
        start(&k, recv_body, c, -1);
        wait_for_waiting(1);
        CHECK_EQ(atomic_load(&k.result), 1);
        CHECK_EQ(weft_chan_send(c, &(int){cap}), 0);
        finish(&k, 0, cap);
        CHECK_EQ(weft_chan_try_recv(c, &value), -EAGAIN);
        weft_chan_unref(c);
    }
    return 0;
}

static int send_to_full(void *arg) {
    (void)arg;
    static struct call k;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        int value;
        for (int i = 0; i < cap; i++) {
            CHECK_EQ(weft_chan_send(c, &i), 0);
        }
        CHECK_EQ(weft_chan_try_send(c, &cap), -EAGAIN);
        start(&k, send_body, c, cap);
        wait_for_waiting(1);
        CHECK_EQ(atomic_load(&k.result), 1);
        for (int i = 0; i <= cap; i++) {
            CHECK_EQ(weft_chan_recv(c, &value), 0);
            CHECK_EQ(value, i);
        }
        finish(&k, 0, cap);
        CHECK_EQ(weft_chan_try_recv(c, &value), -EAGAIN);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(conform, conform_094) { run_at(2, receive_from_empty, NULL); }
TEST(conform, conform_095) { run_at(2, send_to_full, NULL); }

/* ---- 96, 97: closed -------------------------------------------------------------------------- */

static int receive_from_closed(void *arg) {
    (void)arg;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        int value;
        for (int i = 0; i < cap; i++) {
            CHECK_EQ(weft_chan_send(c, &i), 0);
        }
        CHECK_EQ(weft_chan_close(c), 0);
        for (int i = 0; i < cap; i++) {
            CHECK_EQ(i % 2 ? weft_chan_recv(c, &value) : weft_chan_try_recv(c, &value), 0);
            CHECK_EQ(value, i);
        }
        for (int i = 0; i < 10; i++) {
            value = 17;
            CHECK_EQ(i % 2 ? weft_chan_recv(c, &value) : weft_chan_try_recv(c, &value), -EPIPE);
            CHECK_EQ(value, 0);
        }
        weft_chan_unref(c);
    }
    return 0;
}

static int close_wakes_receiver(void *arg) {
    (void)arg;
    static struct call k;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        start(&k, recv_body, c, 17);
        wait_for_waiting(1);
        CHECK_EQ(weft_chan_close(c), 0);
        finish(&k, -EPIPE, 0);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(conform, conform_096) { run_at(2, receive_from_closed, NULL); }
TEST(conform, conform_097) { run_at(2, close_wakes_receiver, NULL); }

/* ---- 98: first in, first out ----------------------------------------------------------------- */

static int send_hundred(void *arg) {
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_chan_send(arg, &i), 0);
    }
    return 0;
}

static int hundred_in_order(void *arg) {
    (void)arg;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        weft_waitgroup wg = WEFT_WAITGROUP_INIT;
        WEFT_MUST(weft_waitgroup_go(&wg, send_hundred, c));
        for (int i = 0, value; i < 100; i++) {
            CHECK_EQ(weft_chan_recv(c, &value), 0);
            CHECK_EQ(value, i);
        }
        weft_waitgroup_wait(&wg);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(conform, conform_098) { run_at(2, hundred_in_order, NULL); }

/* ---- 99: four senders, four receivers -------------------------------------------------------- */

enum { PARTIES = 4, EACH = 1000 };

static struct {
    weft_chan *c;
    atomic_int seen[EACH];
    weft_waitgroup all;
} crowd;

static int crowd_sender(void *arg) {
    (void)arg;
    for (int i = 0; i < EACH; i++) {
        CHECK_EQ(weft_chan_send(crowd.c, &i), 0);
    }
    return 0;
}

static int crowd_receiver(void *arg) {
    (void)arg;
    for (int i = 0, value; i < EACH; i++) {
        CHECK_EQ(weft_chan_recv(crowd.c, &value), 0);
        CHECK(value >= 0 && value < EACH);
        atomic_fetch_add(&crowd.seen[value], 1);
    }
    return 0;
}

static int crowd_meets(void *arg) {
    (void)arg;
    for (int cap = 0; cap < CAPACITIES; cap += 1 + cap / 4) {
        crowd.c = new_ints((size_t)cap);
        for (int i = 0; i < PARTIES; i++) {
            WEFT_MUST(weft_waitgroup_go(&crowd.all, crowd_sender, NULL));
            WEFT_MUST(weft_waitgroup_go(&crowd.all, crowd_receiver, NULL));
        }
        weft_waitgroup_wait(&crowd.all);
        for (int i = 0; i < EACH; i++) {
            CHECK_EQ(atomic_exchange(&crowd.seen[i], 0), PARTIES);
        }
        weft_chan_unref(crowd.c);
    }
    return 0;
}

TEST(conform, conform_099) { run_at(4, crowd_meets, NULL); }

/* ---- 100: len and cap ------------------------------------------------------------------------ */

static int lengths(void *arg) {
    (void)arg;
    for (int cap = 0; cap < CAPACITIES; cap++) {
        weft_chan *c = new_ints((size_t)cap);
        for (int i = 0; i < cap; i++) {
            CHECK_EQ(weft_chan_len(c), i);
            CHECK_EQ(weft_chan_cap(c), cap);
            CHECK_EQ(weft_chan_send(c, &i), 0);
        }
        for (int left = cap; left > 0; left--) {
            CHECK_EQ(weft_chan_len(c), left);
            CHECK_EQ(weft_chan_recv(c, NULL), 0);
        }
        CHECK_EQ(weft_chan_len(c), 0);
        CHECK_EQ(weft_chan_cap(c), cap);
        weft_chan_unref(c);
    }
    CHECK_EQ(weft_chan_len(NULL), 0);
    CHECK_EQ(weft_chan_cap(NULL), 0);
    return 0;
}

TEST(conform, conform_100) { run_at(1, lengths, NULL); }

/* ---- 101: a value, then closed: always ready ------------------------------------------------- */

static int close_now(void *chan) {
    CHECK_EQ(weft_chan_close(chan), 0);
    return 0;
}

static int always_ready(void *arg) {
    (void)arg;
    for (int round = 0; round < 10000; round++) {
        weft_waitgroup wg = WEFT_WAITGROUP_INIT;
        weft_chan *c = new_ints(1);
        CHECK_EQ(weft_chan_send(c, &round), 0);
        WEFT_MUST(weft_waitgroup_go(&wg, close_now, c));
        int value;
        CHECK_EQ(weft_chan_try_recv(c, &value), 0);
        CHECK_EQ(value, round);
        weft_waitgroup_wait(&wg);
        CHECK_EQ(weft_chan_try_recv(c, &value), -EPIPE);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(conform, conform_101) { run_at(2, always_ready, NULL); }

/* ---- 106, 110, 115: elements of every size, whole -------------------------------------------- */

static const size_t sizes[] = {0, 1, 2, 3, 4, 7, 8, 9, 16, 24, 48, 65535};

static void fill(unsigned char *elem, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) {
        elem[i] = (unsigned char)(seed + i * 7);
    }
}

static bool is_filled(const unsigned char *elem, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) {
        if (elem[i] != (unsigned char)(seed + i * 7)) {
            return false;
        }
    }
    return true;
}

struct sized {
    weft_chan *c;
    size_t bytes;
};

/* Its elements lie on its own stack, with a word of guard behind. */
static int send_sized(void *arg) {
    struct sized *s = arg;
    unsigned char elem[65536 + 8];
    for (unsigned i = 0; i < 40; i++) {
        fill(elem, sizeof elem, ~i);
        fill(elem, s->bytes, i);
        CHECK_EQ(weft_chan_send(s->c, elem), 0);
        CHECK(is_filled(elem, s->bytes, i));
    }
    return 0;
}

static void receive_sized(struct sized *s) {
    unsigned char elem[65536 + 8];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    WEFT_MUST(weft_waitgroup_go(&wg, send_sized, s));
    for (unsigned i = 0; i < 40; i++) {
        memset(elem, 0xee, sizeof elem);
        CHECK_EQ(weft_chan_recv(s->c, elem), 0);
        CHECK(is_filled(elem, s->bytes, i));
        CHECK_EQ(elem[s->bytes], 0xee);
        weft_yield();
    }
    weft_waitgroup_wait(&wg);
}

static int every_size(void *arg) {
    (void)arg;
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        for (size_t cap = 0; cap < 4; cap += 3) {
            struct sized s = {.bytes = sizes[i]};
            CHECK_EQ(weft_chan_new(&s.c, s.bytes, cap), 0);
            receive_sized(&s);
            weft_chan_unref(s.c);
        }
    }
    return 0;
}

TEST(conform, conform_106) { run_at(2, every_size, NULL); }
TEST(conform, conform_110a) { run_at(1, every_size, NULL); }

static unsigned char big[65536];

static int try_in_every_state(void *arg) {
    (void)arg;
    static struct call k;
    static unsigned char got[65536];
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        weft_chan *c;
        CHECK_EQ(weft_chan_new(&c, sizes[i], 0), 0);
        fill(big, sizes[i], 3);
        CHECK_EQ(weft_chan_try_send(c, big), -EAGAIN);
        CHECK_EQ(weft_chan_try_recv(c, got), -EAGAIN);
        weft_chan_unref(c);
        CHECK_EQ(weft_chan_new(&c, sizes[i], 1), 0);
        CHECK_EQ(weft_chan_try_recv(c, got), -EAGAIN);
        CHECK_EQ(weft_chan_try_send(c, big), 0);
        CHECK_EQ(weft_chan_try_send(c, big), -EAGAIN);
        CHECK_EQ(weft_chan_try_recv(c, got), 0);
        CHECK(is_filled(got, sizes[i], 3));
        CHECK_EQ(weft_chan_try_recv(c, got), -EAGAIN);
        weft_chan_unref(c);
    }
    /* With a partner parked, and after it. */
    weft_chan *c = new_ints(0);
    int value = 0;
    start(&k, recv_body, c, -1);
    wait_for_waiting(1);
    CHECK_EQ(weft_chan_try_send(c, &(int){5}), 0);
    finish(&k, 0, 5);
    CHECK_EQ(weft_chan_try_send(c, &value), -EAGAIN);
    start(&k, send_body, c, 6);
    wait_for_waiting(1);
    CHECK_EQ(weft_chan_try_recv(c, &value), 0);
    CHECK_EQ(value, 6);
    finish(&k, 0, 6);
    CHECK_EQ(weft_chan_try_recv(c, &value), -EAGAIN);
    weft_chan_unref(c);
    return 0;
}

TEST(conform, conform_115) { run_at(2, try_in_every_state, NULL); }

/* ---- 108: many consumers, then the end ------------------------------------------------------- */

enum { CONSUMERS = 23, ITEMS = 271828 };

static struct {
    weft_chan *in, *out;
    weft_waitgroup all;
} factory;

static int consumer(void *arg) {
    (void)arg;
    int v;
    for (unsigned i = 0; weft_chan_recv(factory.in, &v) == 0; i++) {
        if (i % 7 == 0) {
            weft_yield();
        }
        CHECK_EQ(weft_chan_send(factory.out, &v), 0);
    }
    return 0;
}

static int producer(void *arg) {
    (void)arg;
    for (int i = 1; i <= ITEMS; i++) {
        CHECK_EQ(weft_chan_send(factory.in, &(int){i % 1000 + 1}), 0);
    }
    CHECK_EQ(weft_chan_close(factory.in), 0);
    weft_waitgroup_wait(&factory.all);
    CHECK_EQ(weft_chan_close(factory.out), 0);
    return 0;
}

static int count_and_sum(void *arg) {
    (void)arg;
    long long count = 0, sum = 0, expected = 0;
    int v;
    factory.in = new_ints(23);
    factory.out = new_ints(3);
    for (int i = 0; i < CONSUMERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&factory.all, consumer, NULL));
    }
    WEFT_MUST(weft_go(producer, NULL));
    while (weft_chan_recv(factory.out, &v) == 0) {
        count++;
        sum += v;
    }
    for (int i = 1; i <= ITEMS; i++) {
        expected += i % 1000 + 1;
    }
    CHECK_EQ(count, ITEMS);
    CHECK_EQ(sum, expected);
    weft_chan_unref(factory.in);
    weft_chan_unref(factory.out);
    return 0;
}

TEST_IN(conform, conform_108, 60) { run_at(4, count_and_sum, NULL); }

/* ---- 111: elements of several words are never torn ------------------------------------------- */

enum { REQUESTERS = 100, REQUESTS = 2000, WORDS = 6 };

struct request {
    uint64_t word[WORDS];
    char *text; /* what it points to goes with it */
};

static weft_chan *requests;

static int requester(void *arg) {
    uint64_t who = (uint64_t)(uintptr_t)arg;
    for (uint64_t i = 0; i < REQUESTS; i++) {
        struct request r = {.text = malloc(32 + i % 64)};
        for (int w = 0; w < WORDS; w++) {
            r.word[w] = who << 32 | i;
        }
        snprintf(r.text, 32, "%llu", (unsigned long long)r.word[0]);
        CHECK_EQ(weft_chan_send(requests, &r), 0);
    }
    return 0;
}

static int nothing_torn(void *arg) {
    (void)arg;
    static uint64_t next[REQUESTERS];
    struct request r;
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_chan_new(&requests, sizeof r, 5), 0);
    for (uintptr_t i = 0; i < REQUESTERS; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, requester, (void *)i));
    }
    for (int i = 0; i < REQUESTERS * REQUESTS; i++) {
        CHECK_EQ(weft_chan_recv(requests, &r), 0);
        for (int w = 1; w < WORDS; w++) {
            CHECK_EQ(r.word[w], r.word[0]);
        }
        CHECK_EQ(strtoull(r.text, NULL, 10), r.word[0]);
        CHECK_EQ(r.word[0] & 0xffffffff, next[r.word[0] >> 32]++);
        free(r.text);
    }
    weft_waitgroup_wait(&wg);
    weft_chan_unref(requests);
    return 0;
}

TEST_IN(conform, conform_111a, 60) { run_at(4, nothing_torn, NULL); }

/* ---- 113, 114: chains ------------------------------------------------------------------------ */

struct link {
    weft_chan *in, *out;
};

static int pass_on(void *arg) {
    struct link *l = arg; /* on this G's own stack */
    int v;
    CHECK_EQ(weft_chan_recv(l->in, &v), 0);
    v++;
    CHECK_EQ(weft_chan_send(l->out, &v), 0);
    weft_chan_unref(l->in);
    return 0;
}

static int chain_of(int links) {
    weft_chan *first = new_ints(0), *at = first;
    for (int i = 0; i < links; i++) {
        struct link l = {.in = at, .out = new_ints(0)};
        WEFT_MUST(WEFT_GO_COPY(pass_on, &l));
        at = l.out;
    }
    int v = 0;
    CHECK_EQ(weft_chan_send(first, &v), 0);
    CHECK_EQ(weft_chan_recv(at, &v), 0);
    weft_chan_unref(at);
    return v;
}

static int daisy_chain(void *links) {
    CHECK_EQ(chain_of(*(int *)links), *(int *)links);
    return 0;
}

TEST_IN(conform, conform_114, 60) {
    int links = UNDER_TSAN ? 1000 : 10000;
    run_at(2, daisy_chain, &links);
}

enum { FIFO = 10 };

struct fifo_turn {
    weft_chan *c, *mine, *next;
    int value;
};

/* Each hands its value over in its turn, and wakes the next one. */
static int take_turn(void *arg) {
    struct fifo_turn *t = arg;
    CHECK_EQ(weft_chan_recv(t->mine, NULL), 0);
    CHECK_EQ(weft_chan_send(t->c, &t->value), 0);
    CHECK_EQ(weft_chan_send(t->next, NULL), 0);
    return 0;
}

static void fifo_with(size_t capacity) {
    weft_chan *c = new_ints(capacity), *turns[FIFO + 1];
    for (int i = 0; i <= FIFO; i++) {
        CHECK_EQ(weft_chan_new(&turns[i], 0, 1), 0);
    }
    for (int i = FIFO - 1; i >= 0; i--) {
        struct fifo_turn t = {.c = c, .mine = turns[i], .next = turns[i + 1], .value = i};
        WEFT_MUST(WEFT_GO_COPY(take_turn, &t));
    }
    CHECK_EQ(weft_chan_send(turns[0], NULL), 0);
    for (int i = 0, v; i < FIFO; i++) {
        CHECK_EQ(weft_chan_recv(c, &v), 0);
        CHECK_EQ(v, i);
    }
    CHECK_EQ(weft_chan_recv(turns[FIFO], NULL), 0);
    for (int i = 0; i <= FIFO; i++) {
        weft_chan_unref(turns[i]);
    }
    weft_chan_unref(c);
}

static int fifo(void *arg) {
    (void)arg;
    for (int round = 0; round < 100; round++) {
        fifo_with(0);
        fifo_with(FIFO);
    }
    return 0;
}

TEST(conform, conform_113) { run_at(2, fifo, NULL); }

/* ---- 118, 122, 124: NULL, closed, impossible ------------------------------------------------- */

static int null_and_closed(void *arg) {
    (void)arg;
    int v = 17;
    CHECK_EQ(weft_chan_try_send(NULL, &v), -EAGAIN);
    CHECK_EQ(weft_chan_try_recv(NULL, &v), -EAGAIN);
    CHECK_EQ(weft_chan_send_until(NULL, &v, weft_in(20 * MS)), -ETIMEDOUT);
    CHECK_EQ(weft_chan_recv_until(NULL, &v, weft_in(20 * MS)), -ETIMEDOUT);
    CHECK_EQ(v, 17);
    for (size_t cap = 0; cap < 3; cap++) {
        weft_chan *c = new_ints(cap);
        CHECK_EQ(weft_chan_close(c), 0);
        CHECK_EQ(weft_chan_send(c, &v), -EPIPE);
        CHECK_EQ(weft_chan_try_send(c, &v), -EPIPE);
        CHECK_EQ(weft_chan_send_until(c, &v, weft_in(SEC)), -EPIPE);
        CHECK_EQ(weft_chan_recv(c, &v), -EPIPE);
        CHECK_EQ(weft_chan_try_recv(c, &v), -EPIPE);
        CHECK_EQ(weft_chan_recv_until(c, &v, weft_in(SEC)), -EPIPE);
        CHECK_EQ(weft_chan_recv(c, NULL), -EPIPE);
        CHECK_EQ(weft_chan_close(c), -EPIPE);
        weft_chan_unref(c);
    }
    return 0;
}

TEST(conform, conform_118a) { run_at(2, null_and_closed, NULL); }

/* Parked in NULL for ever: only a stop ends it. */
static int wait_in_null(void *arg) {
    int v = 0;
    CHECK_EQ(arg ? weft_chan_send(NULL, &v) : weft_chan_recv(NULL, &v), -ECANCELED);
    return 0;
}

static int leave_two_in_null(void *arg) {
    WEFT_MUST(weft_go(wait_in_null, arg));
    WEFT_MUST(weft_go(wait_in_null, NULL));
    wait_for_waiting(2);
    return 0;
}

TEST(conform, conform_118b) { run_at(2, leave_two_in_null, "send"); }

TEST(conform, conform_122) {
    weft_chan *c = (weft_chan *)(uintptr_t)8;
    CHECK_EQ(weft_chan_new(&c, 1, SIZE_MAX), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, SIZE_MAX, 1), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, SIZE_MAX / 2, 3), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, 1, (size_t)-1 / 2), -EINVAL);
    CHECK(c == (weft_chan *)(uintptr_t)8);
}

static int close_misuse(void *arg) {
    (void)arg;
    weft_chan *c = new_ints(1);
    CHECK_EQ(weft_chan_close(NULL), -EPIPE);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_chan_close(c), -EPIPE);
    CHECK_EQ(weft_chan_send(c, &(int){1}), -EPIPE);
    weft_chan_unref(c);
    weft_chan_unref(NULL);
    return 0;
}

TEST(conform, conform_124) { run_at(1, close_misuse, NULL); }

/* ---- 119, 123: leaving a queue from any place ------------------------------------------------ */

enum { QUEUE = 2000 };

struct timed {
    weft_chan *c;
    weft_time until;
    int value;
    atomic_bool at_the_door;
};

static atomic_int timed_out;

static int wait_until_body(void *arg) {
    struct timed *t = arg;
    atomic_store(&t->at_the_door, true);
    int err = weft_chan_recv_until(t->c, &t->value, t->until);
    if (t->until.ns != INT64_MAX) {
        CHECK_EQ(err, -ETIMEDOUT);
        atomic_fetch_add(&timed_out, 1);
    } else {
        CHECK_EQ(err, 0);
    }
    return 0;
}

/* Two of three leave, at the head, in the middle and at the tail; those who stay are served in the
   order that they came in, and who comes later stands behind them. */
static int leave_from_anywhere(void *arg) {
    (void)arg;
    static struct timed t[QUEUE + 1];
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    weft_chan *c = new_ints(0);
    weft_time soon = weft_in(50 * MS);
    int leavers = 0, served = 0;
    for (int i = 0; i <= QUEUE; i++) {
        t[i] = (struct timed){.c = c, .until = i % 3 == 1 ? WEFT_NEVER : soon, .value = -1};
        if (i == QUEUE) { /* one more, behind a tail that has left */
            while (atomic_load(&timed_out) < leavers) {
                weft_sleep(MS);
            }
            t[i].until = WEFT_NEVER;
        }
        leavers += t[i].until.ns != INT64_MAX;
        WEFT_MUST(weft_waitgroup_go(&wg, wait_until_body, &t[i]));
        while (!atomic_load(&t[i].at_the_door)) {
            weft_yield(); /* one at a time: it goes on till it parks */
        }
    }
    for (int i = 0; i <= QUEUE; i++) {
        if (t[i].until.ns == INT64_MAX) {
            CHECK_EQ(weft_chan_try_send(c, &served), 0);
            served++;
        }
    }
    CHECK_EQ(weft_chan_try_send(c, &served), -EAGAIN);
    weft_waitgroup_wait(&wg);
    for (int i = 0, next = 0; i <= QUEUE; i++) {
        CHECK_EQ(t[i].value, t[i].until.ns == INT64_MAX ? next++ : -1);
    }
    weft_chan_unref(c);
    return 0;
}

TEST(conform, conform_119a) { run_exclusive(leave_from_anywhere, NULL); }

static struct {
    weft_chan *c;
    weft_time until;
} in_line;

static int wait_in_line(void *arg) {
    (void)arg;
    CHECK_EQ(weft_chan_recv_until(in_line.c, NULL, in_line.until), -ETIMEDOUT);
    return 0;
}

/* So many waiters leave, all from the head or all over: the time for each must not grow with how
   many stand before it. Ten times as many may take forty times as long; linear were a hundred. */
static int64_t leave_line_of(int waiters) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    in_line.c = new_ints(0);
    in_line.until = weft_in((int64_t)(500 * MS * test_slack())); /* all stand in line by then */
    for (int i = 0; i < waiters; i++) {
        WEFT_MUST(weft_waitgroup_go(&wg, wait_in_line, NULL));
    }
    weft_sleep_until(weft_time_add(in_line.until, -MS));
    int64_t begin = cpu();
    weft_waitgroup_wait(&wg);
    int64_t used = cpu() - begin;
    weft_chan_unref(in_line.c);
    return used;
}

static int leave_lines(void *arg) {
    (void)arg;
    int64_t few = leave_line_of(500), many = leave_line_of(5000);
    test_clock(many < 40 * most(few, 50 * US), "500 left in %.2f ms of CPU, 5000 in %.2f",
               (double)few / MS, (double)many / MS);
    return 0;
}

TEST(conform, conform_123) { run_at(1, leave_lines, NULL); }

/* ---- 121: prime sieves ----------------------------------------------------------------------- */

enum { PRIMES = UNDER_TSAN ? 60 : 300 };

static int count_up(void *out) {
    for (int i = 2; weft_chan_send(out, &i) == 0; i++) {
    }
    return 0;
}

struct filter {
    weft_chan *in, *out;
    int prime;
};

static int filter_out(void *arg) {
    struct filter *f = arg;
    int v;
    while (weft_chan_recv(f->in, &v) == 0) {
        if (v % f->prime != 0 && weft_chan_send(f->out, &v) != 0) {
            break;
        }
    }
    weft_chan_close(f->in);
    return 0;
}

static bool is_prime(int n) {
    for (int d = 2; d * d <= n; d++) {
        if (n % d == 0) {
            return false;
        }
    }
    return n > 1;
}

static int sieve(void *arg) {
    static struct filter f[PRIMES];
    size_t capacity = (size_t)(uintptr_t)arg;
    weft_waitgroup all = WEFT_WAITGROUP_INIT;
    weft_chan *at = new_ints(capacity);
    WEFT_MUST(weft_waitgroup_go(&all, count_up, at));
    for (int i = 0, expected = 2; i < PRIMES; i++, expected++) {
        f[i].in = at;
        at = f[i].out = new_ints(capacity);
        CHECK_EQ(weft_chan_recv(f[i].in, &f[i].prime), 0);
        while (!is_prime(expected)) {
            expected++;
        }
        CHECK_EQ(f[i].prime, expected);
        WEFT_MUST(weft_waitgroup_go(&all, filter_out, &f[i]));
    }
    CHECK_EQ(weft_chan_close(at), 0); /* the end runs back through the chain */
    weft_waitgroup_wait(&all);
    for (int i = 0; i < PRIMES; i++) {
        weft_chan_unref(f[i].in);
    }
    weft_chan_unref(at);
    return 0;
}

TEST_IN(conform, conform_121a, 60) {
    run_at(1, sieve, NULL);
    run_at(2, sieve, NULL);
    run_at(2, sieve, (void *)(uintptr_t)4);
}
