/*
 * sched.c: starting green threads, changing between them, using two cores. Counterpart:
 * go/sched.go.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <weft.h>

/* ---- Spawn and join -------------------------------------------------------------------------- */

struct batch {
    weft_waitgroup all;
    _Atomic int64_t ran;
};

static int just_done(void *arg) {
    struct batch *b = arg;
    weft_waitgroup_done(&b->all);
    return 0;
}

static int count_and_done(void *arg) {
    struct batch *b = arg;
    atomic_fetch_add_explicit(&b->ran, 1, memory_order_relaxed);
    weft_waitgroup_done(&b->all);
    return 0;
}

static void start_and_join(struct batch *b, weft_fn fn, int64_t at_once) {
    weft_waitgroup_add(&b->all, (int)at_once);
    for (int64_t i = 0; i < at_once; i++) {
        WEFT_MUST(weft_go(fn, b));
    }
    weft_waitgroup_wait(&b->all);
}

/* A wait that returned early, or a thread that never ran, would look fast: a run that counts, with
   the same calls, comes before the one that is timed. */
static void check_join(int64_t at_once) {
    struct batch b = {0};
    for (int64_t round = 1; round <= 1000 / at_once + 1; round++) {
        start_and_join(&b, count_and_done, at_once);
        int64_t ran = atomic_load(&b.ran);
        bench_check(ran == round * at_once, "%lld green threads ran, not %lld", (long long)ran,
                    (long long)(round * at_once));
    }
}

static int64_t spawn_join(int64_t n, int64_t at_once) {
    check_join(at_once);
    struct batch b = {0};
    int64_t start = bench_now();
    for (int64_t i = 0; i < n; i += at_once) {
        start_and_join(&b, just_done, at_once);
    }
    return bench_now() - start;
}

static int64_t spawn_join_1(int64_t n) { return spawn_join(n, 1); }

static int64_t spawn_join_1000(int64_t n) { return spawn_join(n, 1000); }

/* ---- Yield ----------------------------------------------------------------------------------- */

struct yielders {
    int64_t each;
    _Atomic int last; /* who ran last */
    _Atomic int64_t alone;
    _Atomic int64_t yields;
};

static void yielder(void *arg, int i) {
    (void)i;
    struct yielders *y = arg;
    for (int64_t k = 0; k < y->each; k++) {
        weft_yield();
    }
    atomic_fetch_add(&y->yields, y->each);
}

static void watched_yielder(void *arg, int i) {
    struct yielders *y = arg;
    for (int64_t k = 0; k < y->each; k++) {
        atomic_store(&y->last, i);
        weft_yield();
        if (atomic_load(&y->last) == i) {
            atomic_fetch_add(&y->alone, 1);
        }
    }
}

/* On one P a yield lets another run. One in ten is forgiven: the threads do not start and end
   together, and Go, which has two queues, may well pick the one that has just yielded. */
static void check_yield(int count) {
    int64_t total = 10000;
    struct yielders y = {.each = total / count};
    bench_parallel(count, watched_yielder, &y);
    int64_t alone = atomic_load(&y.alone);
    bench_check(bench_procs() > 1 || alone <= total / 10, "%lld of %lld yields let nobody else run",
                (long long)alone, (long long)total);
}

static int64_t yield(int64_t n, int count) {
    check_yield(count);
    struct yielders y = {.each = n / count};
    int64_t took = bench_parallel(count, yielder, &y);
    bench_check(atomic_load(&y.yields) == n, "yields are missing");
    return took;
}

static int64_t yield_2(int64_t n) { return yield(n, 2); }

static int64_t yield_1000(int64_t n) { return yield(n, 1000); }

/* ---- Skynet: a tree of a million leaves, ten children a node, sums passed up by channels ----- */

enum { LEAVES = 1000000 };

struct node {
    weft_chan
        *up; /* a reference of its own: the parent may be through before its send has returned */
    int64_t first, leaves;
};

static int skynet_node(void *arg) {
    struct node *self = arg;
    if (self->leaves == 1) {
        WEFT_MUST(weft_chan_send(self->up, &self->first));
        weft_chan_unref(self->up);
        return 0;
    }
    weft_chan *sums;
    WEFT_MUST(weft_chan_new(&sums, sizeof(int64_t), 0));
    int64_t leaves = self->leaves / 10;
    for (int i = 0; i < 10; i++) {
        struct node child = {weft_chan_ref(sums), self->first + i * leaves, leaves};
        WEFT_MUST(WEFT_GO_COPY(skynet_node, &child));
    }
    int64_t sum = 0;
    for (int i = 0; i < 10; i++) {
        int64_t part;
        WEFT_MUST(weft_chan_recv(sums, &part));
        sum += part;
    }
    weft_chan_unref(sums);
    WEFT_MUST(weft_chan_send(self->up, &sum));
    weft_chan_unref(self->up);
    return 0;
}

static void skynet(void) {
    int64_t start = bench_now();
    weft_chan *top;
    WEFT_MUST(weft_chan_new(&top, sizeof(int64_t), 0));
    struct node root = {weft_chan_ref(top), 0, LEAVES};
    WEFT_MUST(WEFT_GO_COPY(skynet_node, &root));
    int64_t sum;
    WEFT_MUST(weft_chan_recv(top, &sum));
    weft_chan_unref(top);
    int64_t took = bench_now() - start;
    bench_check(sum == (int64_t)LEAVES * (LEAVES - 1) / 2, "the sum is %lld", (long long)sum);
    bench_emit("Skynet", (double)took / 1e6);
}

/* ---- Two computing green threads ------------------------------------------------------------- */

enum { COMPUTE_STEPS = 30 * 1000 * 1000, COMPUTE_TRIES = 5 };

static uint64_t computed[2];

static void compute(void *arg, int i) {
    (void)arg;
    uint64_t x = 88172645463325252u;
    for (int k = 0; k < COMPUTE_STEPS; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    computed[i] = x;
}

static int compute_two_here(void *arg) {
    int64_t *took = arg;
    *took = bench_parallel(2, compute, NULL);
    return 0;
}

/* Best of several, ns. */
static int64_t compute_two_on(int procs) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < COMPUTE_TRIES; i++) {
        int64_t took = 0;
        computed[0] = computed[1] = 0;
        bench_in_runtime(procs, compute_two_here, &took);
        bench_check(computed[0] == computed[1] && computed[0] != 0, "two sums differ");
        best = took < best ? took : best;
    }
    return best;
}

static void compute_two(void) {
    int64_t here = compute_two_on(bench_procs());
    bench_emit("ComputeTwo", (double)here / 1e6);
    if (bench_procs() > 1) {
        bench_emit("ComputeTwoShare", (double)here / (double)compute_two_on(1));
    }
}

/* ---- Parked ---------------------------------------------------------------------------------- */

enum { PARKED = 10000, PARKED_SECONDS = 5 };

static void parked_idle(void) {
    struct bench_parked *p = bench_park(PARKED);
    int64_t cpu = bench_cpu(), switches = bench_vcsw();
    WEFT_MUST(weft_sleep(PARKED_SECONDS * WEFT_SECOND));
    cpu = bench_cpu() - cpu;
    switches = bench_vcsw() - switches;
    bench_unpark(p);
    bench_emit("ParkedIdleCpu", (double)cpu / 1e6);
    bench_emit("ParkedIdleSwitches", (double)switches);
}

static const struct bench benches[] = {
    {.name = "SpawnJoin1",
     .rows = {{"SpawnJoin1", "ns", BOUND_RATIO, 0.14, 0, 0}},
     .loop = spawn_join_1},
    {.name = "SpawnJoin1000",
     .rows = {{"SpawnJoin1000", "ns", BOUND_RATIO, 0.20, 0, 0}},
     .loop = spawn_join_1000,
     .step = 1000},
    {.name = "Yield2",
     .rows = {{"Yield2", "ns", BOUND_RATIO, 0.15, 0, 0}},
     .loop = yield_2,
     .step = 2},
    {.name = "Yield1000",
     .rows = {{"Yield1000", "ns", BOUND_RATIO, 0.15, 0, 0}},
     .loop = yield_1000,
     .step = 1000},
    {.name = "Skynet", .rows = {{"Skynet", "ms", BOUND_RATIO, 0.40, 0, 2}}, .inside = skynet},
    {.name = "ComputeTwo",
     .rows = {{"ComputeTwo", "ms", BOUND_NONE, 0, 0, 0},
              {"ComputeTwoShare", "of 1 P", BOUND_VALUE, 0.60, 2, 2}},
     .outside = compute_two},
    {.name = "ParkedIdle",
     .rows = {{"ParkedIdleCpu", "ms in 5 s", BOUND_VALUE, 2, 0, 0},
              {"ParkedIdleSwitches", "in 5 s", BOUND_VALUE, 5, 0, 0}},
     .inside = parked_idle},
};

BENCH_AREA(sched, benches);
