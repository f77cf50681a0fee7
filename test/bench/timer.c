/*
 * timer.c: timers made, stopped, moved and fired before a background of idle ones, lateness, and
 * what sleepers cost. Counterpart: go/timer.go.
 *
 * The throughput rows have 32,768 timers of an hour a P behind them, so that the heaps are deep. n
 * operations are spread over as many green threads as there are Ps; the figure is the time on the
 * clock divided by n.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <weft.h>

enum { BATCH = 1000 };

/* ---- The idle timers behind ------------------------------------------------------------------ */

enum { IDLE_TIMERS = 32768 };

static weft_timer **idle_timers; /* IDLE_TIMERS a P */
static _Atomic int64_t wrongly_fired;

static int fire_wrongly(void *arg) {
    (void)arg;
    atomic_fetch_add(&wrongly_fired, 1);
    return 0;
}

static void make_idle_timers(void *arg, int i) {
    (void)arg;
    for (int k = 0; k < IDLE_TIMERS; k++) {
        WEFT_MUST(weft_after_func(&idle_timers[i * IDLE_TIMERS + k], WEFT_HOUR, fire_wrongly, NULL,
                                  NULL));
    }
}

static void idle_timers_setup(void) {
    idle_timers = calloc((size_t)bench_procs() * IDLE_TIMERS, sizeof(weft_timer *));
    bench_check(idle_timers != NULL, "no memory");
    bench_parallel(bench_procs(), make_idle_timers, NULL);
}

static void idle_timers_teardown(void) {
    int64_t pending = 0, count = (int64_t)bench_procs() * IDLE_TIMERS;
    for (int64_t i = 0; i < count; i++) {
        pending += weft_timer_stop(idle_timers[i]);
        weft_timer_free(idle_timers[i]);
    }
    bench_check(pending == count && atomic_load(&wrongly_fired) == 0,
                "%lld of %lld timers of an hour are gone", (long long)(count - pending),
                (long long)count);
    free(idle_timers);
}

/* ---- Spreading n operations over the Ps ------------------------------------------------------ */

struct share {
    void (*body)(int64_t n);
    int64_t n, step;
};

/* Worker i of w takes batches i, i + w, i + 2w, ... of the n / step there are. */
static void share_worker(void *arg, int i) {
    struct share *s = arg;
    int64_t batches = s->n / s->step, w = bench_procs();
    s->body((batches + w - 1 - i) / w * s->step);
}

static int64_t spread(void (*body)(int64_t n), int64_t n, int64_t step) {
    struct share s = {body, n, step};
    return bench_parallel(bench_procs(), share_worker, &s);
}

/* ---- AfterFunc: each firing arms the next, BATCH in a chain ---------------------------------- */

struct chain {
    int64_t left;
    weft_chan *done;
};

static int chain_link(void *arg) {
    struct chain *c = arg;
    if (--c->left > 0) {
        WEFT_MUST(weft_after_func(NULL, 0, chain_link, c, NULL));
    } else {
        bool yes = true;
        weft_chan *done = weft_chan_ref(c->done);
        WEFT_MUST(weft_chan_send(done, &yes));
        weft_chan_unref(done);
    }
    return 0;
}

static void after_func_body(int64_t n) {
    for (int64_t i = 0; i < n; i += BATCH) {
        struct chain c = {.left = BATCH};
        bool yes = false;
        WEFT_MUST(weft_chan_new(&c.done, sizeof(bool), 0));
        WEFT_MUST(weft_after_func(NULL, 0, chain_link, &c, NULL));
        WEFT_MUST(weft_chan_recv(c.done, &yes));
        weft_chan_unref(c.done);
        bench_check(yes && c.left == 0, "a chain ended %lld firings early", (long long)c.left);
    }
}

static int64_t after_func(int64_t n) { return spread(after_func_body, n, BATCH); }

/* ---- SimultaneousAfterFunc: BATCH due at once ------------------------------------------------ */

struct volley {
    weft_waitgroup all;
};

static int volley_fire(void *arg) {
    struct volley *v = arg;
    weft_waitgroup_done(&v->all);
    return 0;
}

static void simultaneous_body(int64_t n) {
    for (int64_t i = 0; i < n; i += BATCH) {
        struct volley v = {.all = WEFT_WAITGROUP_INIT};
        weft_waitgroup_add(&v.all, BATCH);
        for (int k = 0; k < BATCH; k++) {
            WEFT_MUST(weft_after_func(NULL, 0, volley_fire, &v, NULL));
        }
        weft_waitgroup_wait(&v.all);
    }
}

static int64_t simultaneous(int64_t n) { return spread(simultaneous_body, n, BATCH); }

/* ---- After: a timer that is waited for ------------------------------------------------------- */

static void after_body(int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        weft_timer *t;
        WEFT_MUST(weft_timer_new(&t, WEFT_NANOSECOND, NULL));
        WEFT_MUST(weft_timer_wait(t, NULL));
        weft_timer_free(t);
    }
}

static int64_t after(int64_t n) { return spread(after_body, n, 1); }

/* ---- Stop: one to wait on, made and stopped -------------------------------------------------- */

static void stop_body(int64_t n) {
    int64_t stopped = 0;
    for (int64_t i = 0; i < n; i++) {
        weft_timer *t;
        WEFT_MUST(weft_timer_new(&t, WEFT_SECOND, NULL));
        stopped += weft_timer_stop(t);
        weft_timer_free(t);
    }
    bench_check(stopped == n, "%lld of %lld timers were pending", (long long)stopped, (long long)n);
}

static int64_t stop(int64_t n) { return spread(stop_body, n, 1); }

/* ---- StartStop: BATCH made, then all stopped ------------------------------------------------- */

static void start_stop_body(int64_t n) {
    weft_timer *timers[BATCH];
    int64_t stopped = 0;
    for (int64_t i = 0; i < n; i += BATCH) {
        for (int k = 0; k < BATCH; k++) {
            WEFT_MUST(weft_after_func(&timers[k], WEFT_HOUR, fire_wrongly, NULL, NULL));
        }
        for (int k = 0; k < BATCH; k++) {
            stopped += weft_timer_stop(timers[k]);
            weft_timer_free(timers[k]);
        }
    }
    bench_check(stopped == n, "%lld of %lld timers were pending", (long long)stopped, (long long)n);
}

static int64_t start_stop(int64_t n) { return spread(start_stop_body, n, BATCH); }

/* ---- Reset: an hour again and again ---------------------------------------------------------- */

static void reset_timer(weft_timer *t, int64_t n) {
    int64_t pending = 0;
    for (int64_t i = 0; i < n; i++) {
        pending += weft_timer_reset(t, WEFT_HOUR);
    }
    bench_check(pending == n && weft_timer_stop(t), "a timer of an hour was not pending");
    weft_timer_free(t);
}

static void reset_body(int64_t n) {
    weft_timer *t;
    WEFT_MUST(weft_timer_new(&t, WEFT_HOUR, NULL));
    reset_timer(t, n);
}

static int64_t reset(int64_t n) { return spread(reset_body, n, 1); }

static void reset_func_body(int64_t n) {
    weft_timer *t;
    WEFT_MUST(weft_after_func(&t, WEFT_HOUR, fire_wrongly, NULL, NULL));
    reset_timer(t, n);
}

static int64_t reset_func(int64_t n) { return spread(reset_func_body, n, 1); }

/* ---- Sleep: BATCH new green threads sleep a nanosecond each ---------------------------------- */

static int sleep_and_done(void *arg) {
    weft_waitgroup *all = arg;
    WEFT_MUST(weft_sleep(WEFT_NANOSECOND));
    weft_waitgroup_done(all);
    return 0;
}

static void sleep_body(int64_t n) {
    for (int64_t i = 0; i < n; i += BATCH) {
        weft_waitgroup all = WEFT_WAITGROUP_INIT;
        weft_waitgroup_add(&all, BATCH);
        for (int k = 0; k < BATCH; k++) {
            WEFT_MUST(weft_go(sleep_and_done, &all));
        }
        weft_waitgroup_wait(&all);
    }
}

static int64_t sleep_1000(int64_t n) { return spread(sleep_body, n, BATCH); }

/* ---- Lateness of short sleeps in an idle process --------------------------------------------- */

enum { SHORT_SLEEPS = 1000 };

static void sleep_100us_late(void) {
    static int64_t late[SHORT_SLEEPS];
    for (int i = 0; i < SHORT_SLEEPS; i++) {
        int64_t start = bench_now();
        WEFT_MUST(weft_sleep(100 * WEFT_MICROSECOND));
        late[i] = bench_now() - start - 100 * WEFT_MICROSECOND;
        bench_check(late[i] >= 0, "a sleep ended %lld ns early", (long long)-late[i]);
    }
    bench_sort(late, SHORT_SLEEPS);
    bench_emit("Sleep100usLateP50", (double)bench_percentile(late, SHORT_SLEEPS, 50) / 1e3);
    bench_emit("Sleep100usLateP99", (double)bench_percentile(late, SHORT_SLEEPS, 99) / 1e3);
}

/* ---- 100,000 sleepers at 100,000 a second ---------------------------------------------------- */

enum { SLEEPERS = 100000 };

struct sleeper {
    weft_time until;
    int64_t late;
};

static struct sleeper sleepers[SLEEPERS];
static weft_waitgroup sleepers_all = WEFT_WAITGROUP_INIT;

static int sleeper_main(void *arg) {
    struct sleeper *s = arg;
    WEFT_MUST(weft_sleep_until(s->until));
    s->late = weft_time_sub(weft_now(), s->until);
    weft_waitgroup_done(&sleepers_all);
    return 0;
}

/* A second to start them all, then a second in which they wake, each at a time of its own. */
static void sleepers_100k(void) {
    uint64_t random = 88172645463325252u;
    int64_t cpu_start = bench_cpu();
    weft_time window = weft_in(WEFT_SECOND);
    weft_waitgroup_add(&sleepers_all, SLEEPERS);
    for (int i = 0; i < SLEEPERS; i++) {
        weft_duration offset = (weft_duration)(bench_random(&random) % WEFT_SECOND);
        sleepers[i].until = weft_time_add(window, offset);
        WEFT_MUST(weft_go(sleeper_main, &sleepers[i]));
    }
    bench_check(weft_time_cmp(weft_now(), window) < 0, "starting them took over a second");
    WEFT_MUST(weft_sleep_until(window));
    int64_t cpu_window = bench_cpu();
    weft_waitgroup_wait(&sleepers_all);
    int64_t cpu_end = bench_cpu();

    static int64_t late[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++) {
        late[i] = sleepers[i].late;
        bench_check(late[i] >= 0, "a sleep ended %lld ns early", (long long)-late[i]);
    }
    bench_sort(late, SLEEPERS);
    bench_emit("SleepersLateP50", (double)bench_percentile(late, SLEEPERS, 50) / 1e3);
    bench_emit("SleepersLateP99", (double)bench_percentile(late, SLEEPERS, 99) / 1e3);
    bench_emit("SleepersCpu", (double)(cpu_end - cpu_start) / 1e6);
    bench_emit("SleepersFireCpu", (double)(cpu_end - cpu_window) / 1e6);
}

/* ---- 10,000 parked, one timer of 10 ms set again and again ----------------------------------- */

enum { PARKED = 10000, TICKER_SECONDS = 3, TICKS = TICKER_SECONDS * 100 };

static void parked_ticker(void) {
    struct bench_parked *p = bench_park(PARKED);
    weft_timer *t;
    WEFT_MUST(weft_timer_new(&t, WEFT_FOREVER, NULL));
    int64_t cpu = bench_cpu();
    weft_time start = weft_now();
    for (int i = 1; i <= TICKS; i++) {
        weft_timer_reset_at(t, weft_time_add(start, i * 10 * WEFT_MILLISECOND));
        WEFT_MUST(weft_timer_wait(t, NULL));
    }
    weft_duration took = weft_time_sub(weft_now(), start);
    cpu = bench_cpu() - cpu;
    bench_check(took >= TICKER_SECONDS * WEFT_SECOND, "%d ticks took %lld ns", TICKS,
                (long long)took);
    weft_timer_free(t);
    bench_unpark(p);
    bench_emit("ParkedTickerCpu", (double)cpu / 1e6 / ((double)took / 1e9));
}

/* ---- Parallel timer latency ------------------------------------------------------------------ */

enum { LATENCY_TRIES = 20 };

struct latency {
    int64_t due;
    int64_t late;
    _Atomic int *fired;
    int others;
};

/* Spins until all have fired, so that each needs a P of its own. */
static int latency_fire(void *arg) {
    struct latency *l = arg;
    _Atomic int *fired = l->fired;
    int others = l->others;
    l->late = bench_now() - l->due;
    atomic_fetch_add(fired, 1);
    while (atomic_load_explicit(fired, memory_order_relaxed) < others) {
    }
    return 0;
}

static void spin_for(weft_duration d) {
    for (int64_t end = bench_now() + d; bench_now() < end;) {
    }
}

/* One P spins, and arms a timer of 1 ms for each of the others, which have gone to sleep. */
static void parallel_timer_latency(void) {
    static struct latency timers[256];
    static _Atomic int fired[LATENCY_TRIES]; /* one a try: a late spinner still looks at it */
    int others = bench_procs() - 1;
    bench_check(others <= 256, "too many Ps");
    int64_t sum = 0, max = 0;
    for (int k = 0; k < LATENCY_TRIES; k++) {
        spin_for(30 * WEFT_MILLISECOND);
        for (int i = 0; i < others; i++) {
            timers[i] = (struct latency){
                .due = bench_now() + WEFT_MILLISECOND, .fired = &fired[k], .others = others};
            WEFT_MUST(weft_after_func(NULL, WEFT_MILLISECOND, latency_fire, &timers[i], NULL));
        }
        while (atomic_load_explicit(&fired[k], memory_order_relaxed) < others) {
        }
        atomic_thread_fence(memory_order_acquire);
        for (int i = 0; i < others; i++) {
            bench_check(timers[i].late >= 0, "a timer was %lld ns early",
                        (long long)-timers[i].late);
            sum += timers[i].late;
            max = timers[i].late > max ? timers[i].late : max;
        }
    }
    bench_emit("ParallelTimerLateAvg", (double)sum / (LATENCY_TRIES * others) / 1e3);
    bench_emit("ParallelTimerLateMax", (double)max / 1e3);
}

#define BEHIND .setup = idle_timers_setup, .teardown = idle_timers_teardown

static const struct bench benches[] = {
    {.name = "AfterFunc",
     .rows = {{"AfterFunc", "ns", BOUND_RATIO, 0.40, 0, 0}},
     .loop = after_func,
     .step = BATCH,
     BEHIND},
    {.name = "After", .rows = {{"After", "ns", BOUND_RATIO, 0.40, 0, 0}}, .loop = after, BEHIND},
    {.name = "Stop", .rows = {{"Stop", "ns", BOUND_RATIO, 0.40, 0, 0}}, .loop = stop, BEHIND},
    {.name = "SimultaneousAfterFunc",
     .rows = {{"SimultaneousAfterFunc", "ns", BOUND_RATIO, 0.40, 0, 0}},
     .loop = simultaneous,
     .step = BATCH,
     BEHIND},
    {.name = "StartStop",
     .rows = {{"StartStop", "ns", BOUND_RATIO, 0.40, 0, 0}},
     .loop = start_stop,
     .step = BATCH,
     BEHIND},
    {.name = "Reset", .rows = {{"Reset", "ns", BOUND_RATIO, 0.40, 0, 0}}, .loop = reset, BEHIND},
    {.name = "ResetFunc",
     .rows = {{"ResetFunc", "ns", BOUND_RATIO, 0.40, 0, 0}},
     .loop = reset_func,
     BEHIND},
    {.name = "Sleep",
     .rows = {{"Sleep", "ns", BOUND_RATIO, 0.40, 0, 0}},
     .loop = sleep_1000,
     .step = BATCH,
     BEHIND},
    {.name = "ParallelTimerLatency",
     .rows = {{"ParallelTimerLateAvg", "us", BOUND_RATIO, 0.30, 2, 0},
              {"ParallelTimerLateMax", "us", BOUND_RATIO, 0.30, 2, 0}},
     .inside = parallel_timer_latency,
     .min_procs = 2},
    {.name = "Sleep100usLate",
     .rows = {{"Sleep100usLateP50", "us", BOUND_RATIO, 0.06, 0, 0},
              {"Sleep100usLateP99", "us", BOUND_NONE, 0, 0, 0}},
     .inside = sleep_100us_late},
    {.name = "Sleepers",
     .rows = {{"SleepersLateP50", "us", BOUND_RATIO, 0.15, 0, 0},
              {"SleepersLateP99", "us", BOUND_RATIO, 0.25, 0, 0},
              {"SleepersCpu", "ms", BOUND_RATIO, 0.60, 0, 0},
              {"SleepersFireCpu", "ms", BOUND_RATIO, 0.60, 0, 0}},
     .inside = sleepers_100k},
    {.name = "ParkedTicker",
     .rows = {{"ParkedTickerCpu", "ms/s", BOUND_RATIO, 0.55, 0, 0}},
     .inside = parked_ticker},
};

BENCH_AREA(timer, benches);
