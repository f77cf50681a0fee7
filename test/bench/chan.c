/*
 * chan.c: values through channels. Counterpart: go/chan.go.
 */
#include "bench.h"

#include <stdatomic.h>

#include <weft.h>

/* ---- Producers and consumers; an operation is one value -------------------------------------- */

enum { MAX_SIDE = 4 };

struct stream {
    weft_chan *chan;
    int side; /* producers, and consumers */
    int64_t each;
    _Atomic int producing;
    int64_t sums[MAX_SIDE];
    int64_t counts[MAX_SIDE];
};

static void produce(struct stream *s) {
    for (int64_t v = 1; v <= s->each; v++) {
        WEFT_MUST(weft_chan_send(s->chan, &v));
    }
    if (atomic_fetch_sub(&s->producing, 1) == 1) {
        WEFT_MUST(weft_chan_close(s->chan));
    }
}

static void consume(struct stream *s, int i) {
    int64_t v, sum = 0, count = 0;
    while (weft_chan_recv(s->chan, &v) == 0) {
        sum += v;
        count++;
    }
    s->sums[i] = sum;
    s->counts[i] = count;
}

static void stream_worker(void *arg, int i) {
    struct stream *s = arg;
    if (i < s->side) {
        produce(s);
    } else {
        consume(s, i - s->side);
    }
}

static int64_t stream(int64_t n, int side, size_t capacity) {
    struct stream s = {.side = side, .each = n / side, .producing = side};
    WEFT_MUST(weft_chan_new(&s.chan, sizeof(int64_t), capacity));
    int64_t took = bench_parallel(2 * side, stream_worker, &s);
    weft_chan_unref(s.chan);
    int64_t sum = 0, count = 0;
    for (int i = 0; i < side; i++) {
        sum += s.sums[i];
        count += s.counts[i];
    }
    bench_check(count == n && sum == side * (s.each * (s.each + 1) / 2),
                "%lld values of %lld came through, their sum is %lld", (long long)count,
                (long long)n, (long long)sum);
    return took;
}

static int64_t unbuf_1p1c(int64_t n) { return stream(n, 1, 0); }

static int64_t unbuf_4p4c(int64_t n) { return stream(n, 4, 0); }

static int64_t buffered_1p1c(int64_t n) { return stream(n, 1, 128); }

static int64_t buffered_4p4c(int64_t n) { return stream(n, 4, 128); }

/* ---- Ping-pong; an operation is a round trip ------------------------------------------------- */

struct table {
    weft_chan *there, *back;
};

/* Has references of its own: its last close may return after the other side is through. */
static int answer(void *arg) {
    struct table t = *(struct table *)arg;
    int64_t v;
    while (weft_chan_recv(t.there, &v) == 0) {
        v++;
        WEFT_MUST(weft_chan_send(t.back, &v));
    }
    WEFT_MUST(weft_chan_close(t.back));
    weft_chan_unref(t.there);
    weft_chan_unref(t.back);
    return 0;
}

static int64_t ping_pong(int64_t n) {
    struct table t;
    WEFT_MUST(weft_chan_new(&t.there, sizeof(int64_t), 0));
    WEFT_MUST(weft_chan_new(&t.back, sizeof(int64_t), 0));
    struct table theirs = {weft_chan_ref(t.there), weft_chan_ref(t.back)};
    WEFT_MUST(WEFT_GO_COPY(answer, &theirs));
    int64_t v = 0;
    int64_t start = bench_now();
    for (int64_t i = 0; i < n; i++) {
        WEFT_MUST(weft_chan_send(t.there, &v));
        WEFT_MUST(weft_chan_recv(t.back, &v));
    }
    int64_t took = bench_now() - start;
    bench_check(v == n, "the ball came back %lld times, not %lld", (long long)v, (long long)n);
    WEFT_MUST(weft_chan_close(t.there));
    bench_check(weft_chan_recv(t.back, &v) == -EPIPE, "the other side did not end");
    weft_chan_unref(t.there);
    weft_chan_unref(t.back);
    return took;
}

static const struct bench benches[] = {
    {.name = "Unbuf_1P1C",
     .rows = {{"Unbuf_1P1C", "ns", BOUND_RATIO, 0.28, 0, 0}},
     .loop = unbuf_1p1c},
    {.name = "Unbuf_4P4C",
     .rows = {{"Unbuf_4P4C", "ns", BOUND_RATIO, 0.28, 0, 0}},
     .loop = unbuf_4p4c,
     .step = 4},
    {.name = "PingPong", .rows = {{"PingPong", "ns", BOUND_RATIO, 0.24, 0, 0}}, .loop = ping_pong},
    {.name = "Buffered128_1P1C",
     .rows = {{"Buffered128_1P1C", "ns", BOUND_RATIO, 0.48, 0, 0}},
     .loop = buffered_1p1c},
    {.name = "Buffered128_4P4C",
     .rows = {{"Buffered128_4P4C", "ns", BOUND_RATIO, 0.48, 0, 0}},
     .loop = buffered_4p4c,
     .step = 4},
};

BENCH_AREA(chan, benches);
