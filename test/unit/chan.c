/* unit/chan.c: channels, from green threads, plain threads and across runtimes. */
#include "world.h"

#include <signal.h>
#include <stdlib.h>

WEFT_CHAN_TYPE(numbers, int);

static weft_time past(void) { return weft_time_at(1); }
static weft_time soon(void) { return weft_in(2 * WEFT_MILLISECOND); }

/* ---- making ---- */

TEST(chan, make) {
    weft_chan *c = NULL;
    CHECK_EQ(weft_chan_new(&c, 4, 3), 0);
    CHECK(c != NULL);
    CHECK_EQ(weft_chan_cap(c), 3);
    CHECK_EQ(weft_chan_len(c), 0);
    CHECK(weft_chan_ref(c) == c);
    weft_chan_unref(c);
    CHECK_EQ(weft_chan_cap(c), 3); /* one reference is left */
    weft_chan_unref(c);
    weft_chan_unref(NULL);
    CHECK(weft_chan_ref(NULL) == NULL);
}

TEST(chan, too_large) {
    weft_chan *const before = (weft_chan *)&world;
    weft_chan *c = before;
    CHECK_EQ(weft_chan_new(&c, SIZE_MAX, 2), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, 2, SIZE_MAX), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, SIZE_MAX / 2 + 1, 2), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, 1, SIZE_MAX), -EINVAL);
    CHECK_EQ(weft_chan_new(&c, 1, (size_t)PTRDIFF_MAX), -EINVAL);
#ifndef WEFT__ASAN
#ifndef WEFT__TSAN
    CHECK_EQ(weft_chan_new(&c, 1, (size_t)PTRDIFF_MAX / 2), -ENOMEM); /* a sanitizer would end us */
#endif
#endif
    CHECK(c == before);
}

TEST(chan, null) {
    int v = 5;
    CHECK_EQ(weft_chan_len(NULL), 0);
    CHECK_EQ(weft_chan_cap(NULL), 0);
    CHECK_EQ(weft_chan_try_send(NULL, &v), -EAGAIN);
    CHECK_EQ(weft_chan_try_recv(NULL, &v), -EAGAIN);
    CHECK_EQ(weft_chan_close(NULL), -EPIPE);
    CHECK_EQ(v, 5);
}

PLAYED(chan, null_until) {
    int v = 5;
    int64_t start = clock_ns();
    CHECK_EQ(weft_chan_send_until(NULL, &v, past()), -ETIMEDOUT);
    CHECK_EQ(weft_chan_recv_until(NULL, &v, past()), -ETIMEDOUT);
    CHECK_EQ(weft_chan_send_until(NULL, &v, soon()), -ETIMEDOUT);
    CHECK_EQ(weft_chan_recv_until(NULL, &v, soon()), -ETIMEDOUT);
    CHECK_GE(clock_ns() - start, 4 * WEFT_MILLISECOND);
    CHECK_EQ(v, 5);
}

/* ---- without waiting ---- */

static void fill_and_drain(size_t cap) {
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(size_t), cap), 0);
    for (int round = 0; round < 3; round++) { /* the ring turns over */
        for (size_t i = 0; i < cap; i++) {
            CHECK_EQ(weft_chan_len(c), i);
            CHECK_EQ(i % 2 ? weft_chan_try_send(c, &i) : weft_chan_send(c, &i), 0);
        }
        size_t v = 77;
        CHECK_EQ(weft_chan_try_send(c, &v), -EAGAIN);
        CHECK_EQ(weft_chan_send_until(c, &v, past()), -ETIMEDOUT);
        CHECK_EQ(weft_chan_len(c), cap);
        for (size_t i = 0; i < cap; i++) {
            CHECK_EQ(weft_chan_len(c), cap - i);
            CHECK_EQ(i % 2 ? weft_chan_try_recv(c, &v) : weft_chan_recv(c, &v), 0);
            CHECK_EQ(v, i);
        }
        v = 77;
        CHECK_EQ(weft_chan_try_recv(c, &v), -EAGAIN);
        CHECK_EQ(weft_chan_recv_until(c, &v, past()), -ETIMEDOUT);
        CHECK_EQ(v, 77);
        if (cap > 2) { /* begin the next round at another place */
            CHECK_EQ(weft_chan_send(c, &v), 0);
            CHECK_EQ(weft_chan_recv(c, &v), 0);
        }
    }
    weft_chan_unref(c);
}

PLAYED(chan, fill_and_drain_every_capacity) {
    for (size_t cap = 0; cap < 200; cap += cap < 20 ? 1 : 7) {
        fill_and_drain(cap);
    }
}

PLAYED(chan, recv_into_nothing) {
    weft_chan *c;
    int v = 1;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 2), 0);
    CHECK_EQ(weft_chan_send(c, &v), 0);
    v = 2;
    CHECK_EQ(weft_chan_send(c, &v), 0);
    CHECK_EQ(weft_chan_recv(c, NULL), 0);
    CHECK_EQ(weft_chan_recv(c, &v), 0);
    CHECK_EQ(v, 2);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_chan_recv(c, NULL), -EPIPE);
    weft_chan_unref(c);
}

/* ---- closed ---- */

PLAYED(chan, closed) {
    weft_chan *c;
    int v = 1;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 3), 0);
    CHECK_EQ(weft_chan_send(c, &v), 0);
    v = 2;
    CHECK_EQ(weft_chan_send(c, &v), 0);
    CHECK_EQ(weft_chan_close(c), 0);
    CHECK_EQ(weft_chan_close(c), -EPIPE);
    CHECK_EQ(weft_chan_send(c, &v), -EPIPE);
    CHECK_EQ(weft_chan_try_send(c, &v), -EPIPE);
    CHECK_EQ(weft_chan_send_until(c, &v, WEFT_NEVER), -EPIPE);
    CHECK_EQ(weft_chan_send_until(c, &v, past()), -EPIPE);
    CHECK_EQ(weft_chan_len(c), 2);
    CHECK_EQ(weft_chan_recv(c, &v), 0); /* what was in it comes out */
    CHECK_EQ(v, 1);
    CHECK_EQ(weft_chan_recv_until(c, &v, past()), 0);
    CHECK_EQ(v, 2);
    for (int i = 0; i < 3; i++) {
        v = 9;
        CHECK_EQ(weft_chan_recv(c, &v), -EPIPE);
        CHECK_EQ(v, 0);
        v = 9;
        CHECK_EQ(weft_chan_try_recv(c, &v), -EPIPE);
        CHECK_EQ(v, 0);
        v = 9;
        CHECK_EQ(weft_chan_recv_until(c, &v, past()), -EPIPE);
        CHECK_EQ(v, 0);
    }
    weft_chan_unref(c);
}

/* ---- elements of every size ---- */

PLAYED(chan, elements_of_every_size) {
    static const size_t sizes[] = {1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 100, 4096, 65535};
    unsigned char *out = malloc(65535 + 1), *in = malloc(65535 + 1);
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++) {
        size_t n = sizes[k];
        weft_chan *c;
        CHECK_EQ(weft_chan_new(&c, n, 3), 0);
        for (unsigned round = 0; round < 5; round++) {
            for (unsigned e = 0; e < 3; e++) {
                memset(out, (int)(k + round + e), n);
                out[n - 1] = (unsigned char)(round * 3 + e);
                CHECK_EQ(weft_chan_send(c, out), 0);
            }
            for (unsigned e = 0; e < 3; e++) {
                memset(out, (int)(k + round + e), n);
                out[n - 1] = (unsigned char)(round * 3 + e);
                memset(in, 0xa5, n + 1);
                CHECK_EQ(weft_chan_recv(c, in), 0);
                CHECK_MEM(in, out, n);
                CHECK_EQ(in[n], 0xa5); /* and not a byte more */
            }
        }
        weft_chan_unref(c);
    }
    free(out);
    free(in);
}

static int recv_once(void *arg);

PLAYED(chan, elements_without_a_size) {
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, 0, 2), 0);
    CHECK_EQ(weft_chan_send(c, NULL), 0);
    CHECK_EQ(weft_chan_send(c, ""), 0);
    CHECK_EQ(weft_chan_try_send(c, NULL), -EAGAIN);
    CHECK_EQ(weft_chan_len(c), 2);
    CHECK_EQ(weft_chan_recv(c, NULL), 0);
    CHECK_EQ(weft_chan_recv(c, NULL), 0);
    CHECK_EQ(weft_chan_try_recv(c, NULL), -EAGAIN);
    weft_chan_unref(c);
    CHECK_EQ(weft_chan_new(&c, 0, SIZE_MAX), 0); /* as many tokens as can be counted */
    CHECK_EQ(weft_chan_send(c, NULL), 0);
    CHECK_EQ(weft_chan_len(c), 1);
    weft_chan_unref(c);
}

/* ---- waiting: one party on the other side ---- */

struct op {
    weft_chan *chan;
    int value;
    weft_time until; /* 0: the plain form */
};

static int recv_once(void *arg) {
    struct op *o = arg;
    return o->until.ns == 0 ? weft_chan_recv(o->chan, &o->value)
                            : weft_chan_recv_until(o->chan, &o->value, o->until);
}

static int send_once(void *arg) {
    struct op *o = arg;
    return o->until.ns == 0 ? weft_chan_send(o->chan, &o->value)
                            : weft_chan_send_until(o->chan, &o->value, o->until);
}

/* Plain; with a deadline that does not come; with the one that means never. */
static weft_time form(int i) {
    return i == 0 ? weft_time_at(0) : i == 1 ? weft_in(WEFT_HOUR) : WEFT_NEVER;
}

PLAYED(chan, a_waiting_receiver_is_given_the_value) {
    for (size_t cap = 0; cap < 3; cap++) {
        for (int i = 0; i < 6; i++) {
            party p;
            struct op o = {.until = form(i % 3)};
            CHECK_EQ(weft_chan_new(&o.chan, sizeof(int), cap), 0);
            party_start(&p, recv_once, &o);
            party_parked(&p);
            int v = 10 + i;
            CHECK_EQ(i < 3 ? weft_chan_send(o.chan, &v) : weft_chan_try_send(o.chan, &v), 0);
            CHECK_EQ(party_end(&p), 0);
            CHECK_EQ(o.value, 10 + i);
            CHECK_EQ(weft_chan_len(o.chan), 0);
            weft_chan_unref(o.chan);
        }
    }
}

PLAYED(chan, a_waiting_sender_is_taken_from) {
    for (size_t cap = 0; cap < 3; cap++) {
        for (int i = 0; i < 6; i++) {
            party p;
            struct op o = {.value = 99, .until = form(i % 3)};
            CHECK_EQ(weft_chan_new(&o.chan, sizeof(int), cap), 0);
            for (int k = 0; k < (int)cap; k++) {
                CHECK_EQ(weft_chan_send(o.chan, &k), 0);
            }
            party_start(&p, send_once, &o);
            party_parked(&p);
            for (int k = 0; k < (int)cap; k++) {
                int v = -1;
                CHECK_EQ(i < 3 ? weft_chan_recv(o.chan, &v) : weft_chan_try_recv(o.chan, &v), 0);
                CHECK_EQ(v, k); /* what was in before comes first */
            }
            int v = -1;
            CHECK_EQ(i < 3 ? weft_chan_recv(o.chan, &v) : weft_chan_try_recv(o.chan, &v), 0);
            CHECK_EQ(v, 99);
            CHECK_EQ(party_end(&p), 0);
            weft_chan_unref(o.chan);
        }
    }
}

PLAYED(chan, a_deadline_ends_a_wait) {
    weft_chan *c;
    int v = 3;
    CHECK_EQ(weft_chan_new(&c, sizeof v, 0), 0);
    for (int i = 0; i < 3; i++) {
        weft_time until = weft_in((i + 1) * 500 * WEFT_MICROSECOND);
        CHECK_EQ(weft_chan_recv_until(c, &v, until), -ETIMEDOUT);
        CHECK_GE(clock_ns(), until.ns);
        until = weft_in((i + 1) * 500 * WEFT_MICROSECOND);
        CHECK_EQ(weft_chan_send_until(c, &v, until), -ETIMEDOUT);
        CHECK_GE(clock_ns(), until.ns);
        CHECK_EQ(v, 3);
        CHECK_EQ(weft_chan_try_recv(c, &v), -EAGAIN); /* the failed send did not happen */
        CHECK_EQ(weft_chan_try_send(c, &v), -EAGAIN); /* and the receiver has gone */
    }
    weft_chan_unref(c);
}

enum { CROWD = 5 };

PLAYED(chan, a_close_wakes_receivers) {
    party p[CROWD];
    struct op o[CROWD];
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), 1), 0);
    for (int i = 0; i < CROWD; i++) {
        o[i] = (struct op){c, 7, form(i % 3)};
        party_start(&p[i], recv_once, &o[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        party_parked(&p[i]);
    }
    CHECK_EQ(weft_chan_close(c), 0);
    for (int i = 0; i < CROWD; i++) {
        CHECK_EQ(party_end(&p[i]), -EPIPE);
        CHECK_EQ(o[i].value, 0); /* zeroed */
    }
    weft_chan_unref(c);
}

PLAYED(chan, a_close_wakes_senders) {
    party p[CROWD];
    struct op o[CROWD];
    weft_chan *c;
    int v = 1;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), 1), 0);
    CHECK_EQ(weft_chan_send(c, &v), 0);
    for (int i = 0; i < CROWD; i++) {
        o[i] = (struct op){c, 7, form(i % 3)};
        party_start(&p[i], send_once, &o[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        party_parked(&p[i]);
    }
    CHECK_EQ(weft_chan_close(c), 0);
    for (int i = 0; i < CROWD; i++) {
        CHECK_EQ(party_end(&p[i]), -EPIPE);
        CHECK_EQ(o[i].value, 7);
    }
    CHECK_EQ(weft_chan_recv(c, &v), 0); /* what had been sent before is there, theirs is not */
    CHECK_EQ(v, 1);
    CHECK_EQ(weft_chan_recv(c, &v), -EPIPE);
    weft_chan_unref(c);
}

/* ---- order ---- */

PLAYED(chan, receivers_are_served_in_order) {
    party p[CROWD];
    struct op o[CROWD];
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), 0), 0);
    for (int i = 0; i < CROWD; i++) {
        o[i] = (struct op){c, -1, form(i % 3)};
        party_start(&p[i], recv_once, &o[i]);
        party_parked(&p[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        CHECK_EQ(weft_chan_send(c, &i), 0);
    }
    for (int i = 0; i < CROWD; i++) {
        CHECK_EQ(party_end(&p[i]), 0);
        CHECK_EQ(o[i].value, i);
    }
    weft_chan_unref(c);
}

PLAYED(chan, senders_are_served_in_order) {
    for (size_t cap = 0; cap < 4; cap += 3) {
        party p[CROWD];
        struct op o[CROWD];
        weft_chan *c;
        CHECK_EQ(weft_chan_new(&c, sizeof(int), cap), 0);
        for (int i = 0; i < (int)cap; i++) {
            CHECK_EQ(weft_chan_send(c, &i), 0);
        }
        for (int i = 0; i < CROWD; i++) {
            o[i] = (struct op){c, (int)cap + i, form(i % 3)};
            party_start(&p[i], send_once, &o[i]);
            party_parked(&p[i]);
        }
        for (int i = 0; i < CROWD + (int)cap; i++) {
            int v = -1;
            CHECK_EQ(weft_chan_recv(c, &v), 0);
            CHECK_EQ(v, i);
        }
        for (int i = 0; i < CROWD; i++) {
            CHECK_EQ(party_end(&p[i]), 0);
        }
        weft_chan_unref(c);
    }
}

/* One that has given up in the middle of the line leaves the others in order. */
PLAYED(chan, who_gives_up_leaves_the_line) {
    party p[3];
    struct op o[3];
    weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, sizeof(int), 0), 0);
    for (int i = 0; i < 3; i++) {
        o[i] = (struct op){c, -1, i == 1 ? weft_in(30 * WEFT_MILLISECOND) : WEFT_NEVER};
        party_start(&p[i], recv_once, &o[i]);
        UNTIL(party_is_parked(&p[i]) || atomic_load(&p[i].ended));
    }
    CHECK_EQ(party_end(&p[1]), -ETIMEDOUT);
    for (int v = 5; v < 7; v++) {
        CHECK_EQ(weft_chan_send(c, &v), 0);
    }
    CHECK_EQ(party_end(&p[0]), 0);
    CHECK_EQ(party_end(&p[2]), 0);
    CHECK_EQ(o[0].value, 5);
    CHECK_EQ(o[1].value, -1);
    CHECK_EQ(o[2].value, 6);
    weft_chan_unref(c);
}

/* ---- many ---- */

struct many {
    weft_chan *chan;
    _Atomic int64_t sum, count;
};

enum { EACH = 1000 };

static int send_many(void *arg) {
    struct many *m = arg;
    for (int i = 1; i <= EACH; i++) {
        CHECK_EQ(weft_chan_send(m->chan, &i), 0);
    }
    return 0;
}

static int recv_many(void *arg) {
    struct many *m = arg;
    int v;
    while (weft_chan_recv(m->chan, &v) == 0) {
        atomic_fetch_add(&m->sum, v);
        atomic_fetch_add(&m->count, 1);
    }
    return 0;
}

PLAYED(chan, many_to_many) {
    for (size_t cap = 0; cap <= 10; cap += 5) {
        party s[4], r[4];
        struct many m = {0};
        CHECK_EQ(weft_chan_new(&m.chan, sizeof(int), cap), 0);
        for (int i = 0; i < 4; i++) {
            party_start(&s[i], send_many, &m);
            party_start(&r[i], recv_many, &m);
        }
        for (int i = 0; i < 4; i++) {
            party_end(&s[i]);
        }
        CHECK_EQ(weft_chan_close(m.chan), 0);
        for (int i = 0; i < 4; i++) {
            party_end(&r[i]);
        }
        CHECK_EQ(atomic_load(&m.count), 4 * EACH);
        CHECK_EQ(atomic_load(&m.sum), 4 * (int64_t)EACH * (EACH + 1) / 2);
        weft_chan_unref(m.chan);
    }
}

/* ---- references ---- */

/* A parked user counts as a holder: the channel lives until he has left it. */
PLAYED(chan, the_last_reference_goes_under_a_waiter) {
    for (int i = 0; i < 2; i++) {
        party p;
        struct op o = {.value = 4, .until = weft_in(20 * WEFT_MILLISECOND)};
        CHECK_EQ(weft_chan_new(&o.chan, sizeof(int), 0), 0);
        party_start(&p, i ? recv_once : send_once, &o);
        UNTIL(party_is_parked(&p) || atomic_load(&p.ended));
        weft_chan_unref(o.chan);
        CHECK_EQ(party_end(&p), -ETIMEDOUT);
        CHECK_EQ(o.value, 4);
    }
}

TEST(chan, freed_with_values_inside) {
    weft_chan *c;
    for (int v = 0; v < 100; v++) {
        CHECK_EQ(weft_chan_new(&c, sizeof v, 2), 0);
        CHECK_EQ(weft_chan_send(c, &v), 0);
        weft_chan_unref(c);
    }
}

/* A parked receiver keeps it alive when its last reference has gone. */
static int give_up_one_too_many(void *arg) {
    struct op o = {0};
    party p;
    (void)arg;
    world.parties = PARTIES_GREEN;
    CHECK_EQ(weft_chan_new(&o.chan, sizeof(int), 0), 0);
    party_start(&p, recv_once, &o);
    party_parked(&p);
    weft_chan_unref(o.chan);
    weft_chan_unref(o.chan);
    return 0;
}

static void run_give_up(void *arg) {
    weft_config c = config_of(1);
    int err = weft_run(give_up_one_too_many, arg, &c, NULL);
    (void)err;
}

TEST(chan, more_references_given_up_than_held_is_fatal) {
    CHECK_FAILS(SIGABRT, "weft: fatal: channel", run_give_up, NULL);
}

/* ---- typed ---- */

PLAYED(chan, typed) {
    numbers n, same;
    int v = 0;
    CHECK_EQ(numbers_new(&n, 2), 0);
    same = numbers_ref(n);
    CHECK(same.chan == n.chan);
    CHECK_EQ(numbers_send(n, 1 + 1), 0);
    CHECK_EQ(numbers_send_until(n, 3, past()), 0);
    CHECK_EQ(numbers_len(n), 2);
    CHECK_EQ(numbers_try_send(n, 4), -EAGAIN);
    CHECK_EQ(numbers_send_until(n, 4, past()), -ETIMEDOUT);
    CHECK_EQ(numbers_recv(n, &v), 0);
    CHECK_EQ(v, 2);
    CHECK_EQ(numbers_recv_until(n, &v, past()), 0);
    CHECK_EQ(v, 3);
    CHECK_EQ(numbers_try_recv(n, &v), -EAGAIN);
    CHECK_EQ(numbers_recv_until(n, &v, past()), -ETIMEDOUT);
    CHECK_EQ(numbers_close(same), 0);
    CHECK_EQ(numbers_recv(n, &v), -EPIPE);
    numbers_unref(same);
    numbers_unref(n);
}

/* ---- before and after a runtime ---- */

static int recv_and_send_on(void *arg) {
    weft_chan **c = arg;
    int v;
    CHECK_EQ(weft_chan_recv(c[0], &v), 0);
    v++;
    CHECK_EQ(weft_chan_send(c[1], &v), 0);
    return 0;
}

TEST(chan, outlives_runtimes) {
    weft_chan *c[2];
    int v = 1;
    CHECK_EQ(weft_chan_new(&c[0], sizeof v, 1), 0); /* before the first */
    CHECK_EQ(weft_chan_new(&c[1], sizeof v, 1), 0);
    for (int i = 0; i < 3; i++) {
        weft_config cfg = config_of(2);
        CHECK_EQ(weft_chan_send(c[0], &v), 0);
        CHECK_EQ(weft_run(recv_and_send_on, c, &cfg, NULL), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v), 0);
    }
    CHECK_EQ(v, 4);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
}
