/* stress/outside.c: everything that plain threads and another runtime may do to one that is stopped at
 * any moment: calls with times, attached threads, triggers fired by signals, wakers unseen.
 */
#include "stress.h"

#include <sched.h>

/* One runtime's life, shared by all who are about it. */
struct life {
    weft_runtime *rt;
    weft_trigger *trigger;
    weft_chan *nobody;
    atomic_int over; /* announced: from here nobody begins with rt */
    atomic_int calls, calls_back, runs, attached;
};

static weft_runtime *other; /* lives through all of it */

/* ---- calls ---- */

struct job {
    struct life *l;
    int64_t length;
    uint32_t kind;
    int answer;
};

/* The job lies on its caller's stack: whoever returns too early is found by ASan, or by the answer. */
static int do_job(void *arg) {
    struct job *j = arg;
    int err = 0;
    switch (j->kind % 4) {
    case 0:
        err = weft_sleep(j->length);
        break;
    case 1:
        err = weft_chan_recv(j->l->nobody, NULL); /* only its time or the stop ends it */
        break;
    case 2:
        err = weft_chan_recv_until(j->l->nobody, NULL, weft_in(j->length));
        break;
    default:
        weft_yield();
        break;
    }
    CHECK(err == 0 || err == -ECANCELED || err == -ETIMEDOUT);
    j->answer = (int)j->kind;
    return (int)(j->kind / 2);
}

/* Counted before it asks whether it still may: who announces the end waits for all that did. */
static int call_once(struct life *l, bool from_outside, uint64_t *seed) {
    struct job j = {.l = l, .length = chance(seed) % 200 * 1000, .kind = chance(seed)};
    int result = -1;
    atomic_fetch_add(&l->calls, 1);
    int err = WEFT_ESTOPPING;
    if (!from_outside || !atomic_load(&l->over)) {
        err = weft_call(l->rt, do_job, &j, weft_in(chance(seed) % 300 * 1000), &result);
    }
    atomic_fetch_add(&l->calls_back, 1);
    CHECK(err == 0 || err == WEFT_ESTOPPING);
    if (err == 0) {
        CHECK_EQ(j.answer, (int)j.kind);
        CHECK_EQ(result, (int)(j.kind / 2));
    }
    progress();
    return err;
}

static void *call_plainly(void *arg) {
    struct life *l = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (call_once(l, true, &seed) == 0) {
    }
    return NULL;
}

static int call_from_other(void *arg) {
    call_plainly(arg);
    return 0;
}

/* Its own runtime holds it, so it may go on till it is refused. */
static int call_within(void *arg) {
    struct life *l = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    while (call_once(l, false, &seed) == 0) {
    }
    return 0;
}

/* ---- attached ---- */

static int count_run(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void *be_attached(void *arg) {
    struct life *l = arg;
    weft_timer *t;
    int err = weft_attach(l->rt);
    CHECK_EQ(err, 0);
    atomic_store(&l->attached, 1);
    while ((err = weft_go(count_run, &l->runs)) == 0) {
        err = weft_timer_new(&t, 10 * WEFT_MICROSECOND, NULL);
        if (err == 0) {
            err = weft_timer_wait(t, NULL);
            CHECK(err == 0 || err == -EBADF);
            weft_timer_free(t);
        }
        CHECK_EQ(weft_after_func(NULL, 1, count_run, &l->runs, NULL) > 0, 0);
        progress();
    }
    CHECK(err == WEFT_ESTOPPING || err == WEFT_ENORUNTIME);
    return NULL;
}

/* ---- fires and wakers unseen ---- */

static weft_trigger *_Atomic to_fire;

static void handler(int sig) {
    (void)sig;
    weft_trigger *t = atomic_load(&to_fire);
    if (t != NULL) {
        weft_trigger_fire(t); /* perhaps freed by now */
    }
}

static void *raise_till_over(void *arg) {
    struct life *l = arg;
    while (atomic_load(&l->over) < 2) {
        kill(getpid(), SIGUSR1);
        sched_yield();
    }
    return NULL;
}

static void *begin_and_end(void *arg) {
    struct life *l = arg;
    while (!atomic_load(&l->over)) {
        weft_external_begin(l->rt);
        sched_yield();
        weft_external_end(l->rt);
    }
    return NULL;
}

/* ---- lives ---- */

static void one_life(int procs, uint64_t *seed) {
    struct life l = {0};
    pthread_t t[4];
    void *(*const bodies[4])(void *) = {call_plainly, be_attached, begin_and_end, raise_till_over};
    weft_config c = stress_config(procs);
    CHECK_EQ(weft_start(&l.rt, &c), 0);
    CHECK_EQ(weft_chan_new(&l.nobody, 0, 0), 0);
    CHECK_EQ(weft_trigger_new(&l.trigger, l.rt, count_run, &l.runs), 0);
    atomic_store(&to_fire, l.trigger);
    CHECK_EQ(weft_submit(other, call_from_other, &l), 0);
    CHECK_EQ(weft_submit(l.rt, call_within, &l), 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, bodies[i], &l), 0);
    }
    while (!atomic_load(&l.attached) || atomic_load(&l.runs) < 2 ||
           atomic_load(&l.calls_back) < 4) {
        sched_yield();
    }
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance(seed) % 3000) * 1000}, NULL);
    atomic_store(&l.over, 1);
    if (chance(seed) % 2 == 0) {
        CHECK_EQ(weft_request_stop(l.rt), 0);
    }
    bool free_first = chance(seed) % 2 == 0;
    if (free_first) {
        weft_trigger_free(l.trigger);
    }
    /* Who calls from outside names the runtime, and so is to have come back before it goes. */
    pthread_join(t[0], NULL);
    pthread_join(t[2], NULL);
    while (weft_request_stop(l.rt) == 0 && atomic_load(&l.calls) != atomic_load(&l.calls_back)) {
        sched_yield();
    }
    CHECK_EQ(weft_stop(l.rt, -1), 0);
    CHECK_EQ(atomic_load(&l.calls), atomic_load(&l.calls_back));
    if (!free_first) {
        weft_trigger_free(l.trigger);
    }
    atomic_store(&l.over, 2);
    pthread_join(t[1], NULL);
    pthread_join(t[3], NULL);
    weft_chan_unref(l.nobody);
    progress();
}

static void lives(int procs) {
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    weft_config c = stress_config(2);
    uint64_t seed = chance_seed(8);
    CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
    CHECK_EQ(weft_start(&other, &c), 0);
    stress_begin(2);
    while (stress_more()) {
        one_life(procs, &seed);
    }
    CHECK_EQ(weft_stop(other, WEFT_SECOND * 20), 0);
    stress_over();
}

TEST_IN(outside, lives_1, 40) { lives(1); }
TEST_IN(outside, lives_2, 40) { lives(2); }
TEST_IN(outside, lives_4, 40) { lives(4); }
