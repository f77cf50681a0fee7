/*
 * handoff.c: nobody is held up: blocking calls (block.c), computing green threads, a machine with more
 * to do than CPUs, and what each call pays for it. Counterpart: go/handoff.go.
 */
#include "handoff.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t MS = 1000 * 1000;

/* ---- shared ---------------------------------------------------------------------------------- */

static void compute_for(int64_t ns) {
    int64_t end = bench_now() + ns;
    while (bench_now() < end) {
    }
}

static int hog(void *arg) {
    struct hogs *h = arg;
    while (!atomic_load_explicit(&h->stop, memory_order_relaxed)) {
        if (h->slice > 0) {
            compute_for(h->slice);
            weft_yield();
        }
    }
    weft_waitgroup_done(&h->all);
    return 0;
}

void hogs_begin(struct hogs *h, int count, int64_t slice) {
    *h = (struct hogs){.slice = slice};
    weft_waitgroup_add(&h->all, count);
    for (int i = 0; i < count; i++) {
        WEFT_MUST(weft_go(hog, h));
    }
}

void hogs_end(struct hogs *h) {
    atomic_store(&h->stop, true);
    weft_waitgroup_wait(&h->all);
}

static int note_running(void *arg) {
    struct probe *p = arg;
    atomic_store(&p->ran, bench_now());
    return 0;
}

void probe_start(struct probe *p) { WEFT_MUST(weft_go(note_running, p)); }

void emit_percentiles(const char *p50, const char *p99, int64_t *ns, size_t count) {
    bench_sort(ns, count);
    bench_emit(p50, (double)bench_percentile(ns, count, 50) / 1e3);
    bench_emit(p99, (double)bench_percentile(ns, count, 99) / 1e3);
}

weft_stats stats_now(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s;
}

/* ---- behind a green thread that computes ----------------------------------------------------- */

enum { BEHIND_ROUNDS = 60, MOST_BEHIND = BEHIND_ROUNDS * 2 };

struct behind {
    int parties;
    atomic_int arrived; /* this round */
    int64_t waited[2];
};

/* All compute at once, each on a P, and each with one more in line behind it. */
static void compute_before(void *arg, int i) {
    struct behind *b = arg;
    struct probe p = {0};
    atomic_fetch_add(&b->arrived, 1);
    while (atomic_load(&b->arrived) < b->parties) {
    }
    probe_start(&p);
    int64_t begun = bench_now();
    compute_for(30 * MS);
    while (atomic_load(&p.ran) == 0) {
        weft_yield();
    }
    int64_t waited = atomic_load(&p.ran) - begun;
    b->waited[i] = waited > 0 ? waited : 0;
}

static void compute_behind(void) {
    static int64_t waited[MOST_BEHIND];
    size_t n = 0;
    for (int round = 0; round < BEHIND_ROUNDS; round++) {
        struct behind b = {.parties = bench_procs()};
        bench_parallel(b.parties, compute_before, &b);
        for (int i = 0; i < b.parties; i++) {
            waited[n++] = b.waited[i];
        }
    }
    emit_percentiles("ComputeBehindP50", "ComputeBehindP99", waited, n);
}

/* ---- sleeps and new green threads beside hogs ------------------------------------------------ */

enum { HOG_SLEEPS = 300, HOG_SPAWNS = 100 };

static void sleep_beside(int64_t slice, const char *p50, const char *p99) {
    static int64_t late[HOG_SLEEPS];
    struct hogs h;
    hogs_begin(&h, bench_procs(), slice);
    for (int i = 0; i < HOG_SLEEPS; i++) {
        int64_t begun = bench_now();
        WEFT_MUST(weft_sleep(MS));
        late[i] = bench_now() - begun - MS;
        bench_check(late[i] >= 0, "a sleep of 1 ms took %lld ns", (long long)(late[i] + MS));
    }
    hogs_end(&h);
    emit_percentiles(p50, p99, late, HOG_SLEEPS);
}

static void sleep_hogs(void) { sleep_beside(0, "SleepHogsLateP50", "SleepHogsLateP99"); }

static void sleep_hogs_30(void) {
    sleep_beside(30 * MS, "SleepHogs30LateP50", "SleepHogs30LateP99");
}

/* The starter computes until what it started has run; so do hogs on the other Ps. */
static void spawn_hogs(void) {
    static int64_t waited[HOG_SPAWNS];
    struct hogs h;
    hogs_begin(&h, bench_procs(), 30 * MS);
    for (int i = 0; i < HOG_SPAWNS; i++) {
        struct probe p = {0};
        weft_yield(); /* back on a P, whatever became of the last one */
        int64_t begun = bench_now();
        probe_start(&p);
        while (atomic_load(&p.ran) == 0) {
        }
        waited[i] = atomic_load(&p.ran) - begun;
    }
    hogs_end(&h);
    emit_percentiles("SpawnHogsP50", "SpawnHogsP99", waited, HOG_SPAWNS);
}

/* ---- more to do than CPUs -------------------------------------------------------------------- */

enum { BURNERS = 4, WINDOWS = 6, CHUNK = 50 * 1000 };
static const int64_t WINDOW = 700 * 1000 * 1000;

struct window {
    int64_t end;
    _Atomic int64_t chunks;
    uint64_t threads, false_handoffs;
};

static void work_in_chunks(void *arg, int i) {
    struct window *w = arg;
    uint64_t x = 88172645463325252u + (uint64_t)i;
    while (bench_now() < w->end) {
        for (int k = 0; k < CHUNK; k++) {
            bench_random(&x);
        }
        atomic_fetch_add(&w->chunks, 1);
        weft_yield();
    }
    bench_check(x != 0, "xorshift ended at 0");
}

static int one_window(void *arg) {
    struct window *w = arg;
    w->end = bench_now() + WINDOW;
    bench_parallel(2, work_in_chunks, w);
    weft_stats s = stats_now();
    w->threads = s.threads_created > s.threads ? s.threads_created : s.threads;
    w->false_handoffs = s.handoff_false;
    return 0;
}

static struct window window_with(unsigned flags) {
    struct window w = {0};
    weft_config cfg = weft_config_default();
    cfg.procs = 2;
    cfg.flags = flags;
    int status = 0;
    int err = weft_run(one_window, &w, &cfg, &status);
    bench_check(err == 0 && status == 0, "weft_run: %s", weft_strerror(err));
    return w;
}

static void burn(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        compute_for(MS);
    }
}

/* Windows with handoff and without alternate, and who begins does too. */
static void overload(void) {
    pid_t burners[BURNERS];
    int64_t chunks[2] = {0, 0};
    uint64_t threads = 0, wrong = 0;
    for (int i = 0; i < BURNERS; i++) {
        burners[i] = fork();
        if (burners[i] == 0) {
            burn();
        }
        bench_check(burners[i] > 0, "fork");
    }
    for (int i = 0; i < 2 * WINDOWS; i++) {
        bool exclusive = (i + i / 2) % 2 != 0;
        struct window w = window_with(exclusive ? WEFT_EXCLUSIVE : 0);
        chunks[exclusive] += atomic_load(&w.chunks);
        if (!exclusive) {
            threads = w.threads > threads ? w.threads : threads;
            wrong += w.false_handoffs;
        }
    }
    for (int i = 0; i < BURNERS; i++) {
        kill(burners[i], SIGKILL);
        waitpid(burners[i], NULL, 0);
    }
    bench_check(chunks[0] > 0 && chunks[1] > 0, "no work was done");
    bench_emit("OverloadTime", (double)chunks[1] / (double)chunks[0]);
    bench_emit("OverloadThreads", (double)threads);
    bench_emit("OverloadFalse", (double)wrong / ((double)WINDOWS * (double)WINDOW / 1e9));
}

/* ---- what each call pays --------------------------------------------------------------------- */

/* Who never parks for 10 ms computes, and goes on without a P: then these calls take another way. */
enum { CALLS_A_YIELD = 4096 };

static int64_t enter_leave(int64_t n) {
    int64_t start = bench_now();
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % CALLS_A_YIELD == 0) {
            weft_yield();
        }
        wrong += weft_proc_self() >= bench_procs();
    }
    int64_t took = bench_now() - start;
    bench_check(wrong == 0, "a P's number is wrong");
    return took;
}

static weft_chan *chan;

static void chan_setup(void) { WEFT_MUST(weft_chan_new(&chan, sizeof(int64_t), 1)); }

static void chan_teardown(void) { weft_chan_unref(chan); }

static int64_t try_empty(int64_t n) {
    int64_t start = bench_now(), v, empty = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % CALLS_A_YIELD == 0) {
            weft_yield();
        }
        empty += weft_chan_try_recv(chan, &v) == -EAGAIN;
    }
    int64_t took = bench_now() - start;
    bench_check(empty == n, "a channel without senders gave a value");
    return took;
}

/* Two calls and no switch. */
static int64_t pass_alone(int64_t n) {
    int64_t start = bench_now(), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t v;
        if (weft_chan_send(chan, &i) == 0 && weft_chan_recv(chan, &v) == 0) {
            sum += v;
        }
    }
    int64_t took = bench_now() - start;
    bench_check(sum == n * (n - 1) / 2, "values are missing");
    return took;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define BLOCKING(kind, name)                                                                       \
    static void block_##kind(void) { block_measure(kind, name "P50", name "P99"); }                \
    static void block_##kind##_cgo(void) { block_measure(kind, name "CgoP50", name "CgoP99"); }
BLOCKING(NANOSLEEP, "Nanosleep")
BLOCKING(PIPE_READ, "Read")
BLOCKING(FSYNC, "Fsync")
BLOCKING(FLOCK, "Flock")
BLOCKING(GETADDRINFO, "Getaddrinfo")
BLOCKING(MUTEX, "Mutex")

#define BLOCKING_ROWS(label)                                                                       \
    {                                                                                              \
        {label "P50", "us", BOUND_NONE, 0, 0, 0}, { label "P99", "us", BOUND_VALUE, 1000, 0, 0 }   \
    }
/* clang-format off */
#define BLOCKING_BENCHES(kind, label)                                                              \
    {.name = "Block" label, .rows = BLOCKING_ROWS(label), .inside = block_##kind, .only_procs = 2}, \
    {.name = "Block" label "Cgo",                                                                  \
     .rows = BLOCKING_ROWS(label "Cgo"),                                                           \
     .inside = block_##kind##_cgo,                                                                 \
     .only_procs = 2,                                                                              \
     .cgo = true}
/* clang-format on */

static const struct bench benches[] = {
    BLOCKING_BENCHES(NANOSLEEP, "Nanosleep"),
    BLOCKING_BENCHES(PIPE_READ, "Read"),
    BLOCKING_BENCHES(FSYNC, "Fsync"),
    BLOCKING_BENCHES(FLOCK, "Flock"),
    BLOCKING_BENCHES(GETADDRINFO, "Getaddrinfo"),
    BLOCKING_BENCHES(MUTEX, "Mutex"),
    {.name = "BlockHanded",
     .rows = {{"UnhandedNanosleep", "of 50", BOUND_VALUE, 0, 0, 0},
              {"UnhandedRead", "of 50", BOUND_VALUE, 0, 0, 0},
              {"UnhandedFsync", "of 50", BOUND_NONE, 0, 0, 0},
              {"UnhandedFlock", "of 50", BOUND_VALUE, 0, 0, 0},
              {"UnhandedGetaddrinfo", "of 50", BOUND_NONE, 0, 0, 0},
              {"UnhandedMutex", "of 50", BOUND_VALUE, 0, 0, 0}},
     .inside = block_handed,
     .only_procs = 2,
     .weft_only = true},
    {.name = "ComputeBehind",
     .rows = {{"ComputeBehindP50", "us", BOUND_NONE, 0, 0, 0},
              {"ComputeBehindP99", "us", BOUND_VALUE, 11000, 0, 0}},
     .inside = compute_behind,
     .only_procs = 2},
    {.name = "SleepHogs",
     .rows = {{"SleepHogsLateP50", "us", BOUND_NONE, 0, 0, 0},
              {"SleepHogsLateP99", "us", BOUND_VALUE, 2000, 0, 0}},
     .inside = sleep_hogs,
     .only_procs = 2},
    {.name = "SleepHogs30",
     .rows = {{"SleepHogs30LateP50", "us", BOUND_NONE, 0, 0, 0},
              {"SleepHogs30LateP99", "us", BOUND_VALUE, 2000, 0, 0}},
     .inside = sleep_hogs_30,
     .only_procs = 2},
    {.name = "SpawnHogs",
     .rows = {{"SpawnHogsP50", "us", BOUND_VALUE, 10000, 0, 0},
              {"SpawnHogsP99", "us", BOUND_RATIO, 0.30, 0, 0}},
     .inside = spawn_hogs,
     .only_procs = 2},
    {.name = "Overload",
     .rows = {{"OverloadTime", "of excl.", BOUND_VALUE, 1 / 0.95, 0, 0},
              {"OverloadThreads", "threads", BOUND_NONE, 0, 0, 0},
              {"OverloadFalse", "a second", BOUND_NONE, 0, 0, 0}},
     .outside = overload,
     .only_procs = 2,
     .weft_only = true},
    {.name = "EnterLeave",
     .rows = {{"EnterLeave", "ns", BOUND_NONE, 0, 0, 0}},
     .loop = enter_leave,
     .once = true,
     .weft_only = true},
    {.name = "TryEmpty",
     .rows = {{"TryEmpty", "ns", BOUND_NONE, 0, 0, 0}},
     .loop = try_empty,
     .setup = chan_setup,
     .teardown = chan_teardown,
     .once = true},
    {.name = "PassAlone",
     .rows = {{"PassAlone", "ns", BOUND_NONE, 0, 0, 0}},
     .loop = pass_alone,
     .setup = chan_setup,
     .teardown = chan_teardown,
     .once = true},
};

BENCH_AREA(handoff, benches);
