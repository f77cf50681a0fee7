/* unit/trigger.c: functions started by signal handlers: from every kind of thread, in storms, through
 * free and stop.
 */
#include "world.h"

#include <signal.h>
#include <unistd.h>

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

static int count(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static int fire(void *arg) {
    weft_trigger_fire(arg);
    return 0;
}

static void *fire_plainly(void *arg) {
    weft_trigger_fire(arg);
    return NULL;
}

static void on_a_thread(void *(*fn)(void *), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, fn, arg), 0);
    pthread_join(t, NULL);
}

TEST(trigger, made_badly) {
    weft_trigger *t = NULL;
    weft_runtime *rt;
    CHECK_EQ(weft_trigger_new(&t, NULL, nothing, NULL), WEFT_ENORUNTIME);
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_trigger_new(NULL, rt, nothing, NULL), -EINVAL);
    CHECK_EQ(weft_trigger_new(&t, rt, NULL, NULL), -EINVAL);
    CHECK_EQ(weft_request_stop(rt), 0);
    CHECK_EQ(weft_trigger_new(&t, rt, nothing, NULL), WEFT_ESTOPPING);
    CHECK(t == NULL);
    weft_trigger_free(NULL);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

TEST(trigger, fired_from_everywhere) {
    weft_runtime *other;
    CHECK_EQ(weft_start(&other, NULL), 0);
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_runtime *rt;
        weft_trigger *t;
        atomic_int runs = 0;
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_trigger_new(&t, rt, count, &runs), 0);
        CHECK_EQ(rt->fired == NULL, 1);
        on_a_thread(fire_plainly, t);
        UNTIL(atomic_load(&runs) == 1);
        CHECK_EQ(weft_submit(rt, fire, t), 0);
        UNTIL(atomic_load(&runs) == 2);
        CHECK_EQ(weft_submit(other, fire, t), 0);
        UNTIL(atomic_load(&runs) == 3);
        errno = 77;
        weft_trigger_fire(t);
        CHECK_EQ(errno, 77);
        UNTIL(atomic_load(&runs) == 4);
        weft_trigger_free(t);
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
        CHECK_EQ(atomic_load(&runs), 4);
    }
    CHECK_EQ(weft_stop(other, -1), 0);
}

/* ---- while it runs ---- */

struct held {
    weft_event go_on;
    atomic_int begun, inside;
    bool by_exit;
};

static int run_held(void *arg) {
    struct held *h = arg;
    CHECK_EQ(atomic_fetch_add(&h->inside, 1), 0); /* one at a time */
    atomic_fetch_add(&h->begun, 1);
    weft_event_wait(&h->go_on);
    atomic_fetch_sub(&h->inside, 1);
    if (h->by_exit) {
        weft_exit(1);
    }
    return 0;
}

TEST(trigger, fired_while_it_runs_it_runs_again) {
    for (int i = 0; i < 4; i++) {
        weft_runtime *rt;
        weft_trigger *t;
        struct held h = {.go_on = WEFT_EVENT_INIT, .by_exit = i % 2 != 0};
        weft_config c = config_of(1 + i / 2);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_trigger_new(&t, rt, run_held, &h), 0);
        weft_trigger_fire(t);
        UNTIL(atomic_load(&h.begun) == 1);
        for (int n = 0; n < 10; n++) {
            weft_trigger_fire(t);
            nap();
        }
        UNTIL(rt->fired == NULL);
        CHECK_EQ(atomic_load(&h.begun), 1);
        weft_event_set(&h.go_on);
        UNTIL(atomic_load(&h.begun) == 2);
        weft_trigger_free(t);
        CHECK_EQ(atomic_load(&h.begun), 2); /* ten fires were one more start */
        CHECK_EQ(atomic_load(&h.inside), 0);
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
    }
}

/* ---- free ---- */

struct freer {
    weft_trigger *t;
    struct held *held;
    atomic_int begun, done;
};

static int free_it(void *arg) {
    struct freer *f = arg;
    atomic_store(&f->begun, 1);
    weft_trigger_free(f->t);
    CHECK_EQ(atomic_load(&f->held->inside), 0);
    atomic_store(&f->done, 1);
    return 0;
}

static void *free_it_plainly(void *arg) {
    free_it(arg);
    return NULL;
}

TEST(trigger, free_waits_for_a_running_function) {
    weft_runtime *other;
    CHECK_EQ(weft_start(&other, NULL), 0);
    for (int way = 0; way < 9; way++) {
        weft_runtime *rt;
        pthread_t thread;
        struct held h = {.go_on = WEFT_EVENT_INIT};
        struct freer f = {.held = &h};
        weft_config c = config_of(1 << way / 3);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_trigger_new(&f.t, rt, run_held, &h), 0);
        weft_trigger_fire(f.t);
        UNTIL(atomic_load(&h.begun) == 1);
        weft_trigger_fire(f.t); /* is dropped */
        if (way % 3 == 0) {
            CHECK_EQ(pthread_create(&thread, NULL, free_it_plainly, &f), 0);
        } else {
            CHECK_EQ(weft_submit(way % 3 == 1 ? rt : other, free_it, &f), 0);
        }
        UNTIL(atomic_load(&f.begun));
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        CHECK_EQ(atomic_load(&f.done), 0);
        weft_event_set(&h.go_on);
        UNTIL(atomic_load(&f.done));
        if (way % 3 == 0) {
            pthread_join(thread, NULL);
        }
        CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
        CHECK_LE(atomic_load(&h.begun), 2); /* the second may have begun before the free */
    }
    CHECK_EQ(weft_stop(other, -1), 0);
}

struct own {
    weft_trigger *t;
    atomic_int runs;
};

static int free_own(void *arg) {
    struct own *o = arg;
    weft_trigger_fire(o->t); /* is dropped */
    weft_trigger_free(o->t);
    weft_sleep(WEFT_MILLISECOND);
    atomic_fetch_add(&o->runs, 1);
    return 0;
}

TEST(trigger, freed_by_its_function) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int i = 0; i < rounds(20); i++) {
            weft_runtime *rt;
            struct own o = {0};
            weft_config c = config_of(procs);
            CHECK_EQ(weft_start(&rt, &c), 0);
            CHECK_EQ(weft_trigger_new(&o.t, rt, free_own, &o), 0);
            weft_trigger_fire(o.t);
            UNTIL(atomic_load(&o.runs) == 1);
            CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
            CHECK_EQ(atomic_load(&o.runs), 1);
        }
    }
}

/* Those who fire do not know that it has been freed. */
TEST(trigger, fired_too_late) {
    weft_runtime *rt;
    weft_trigger *t, *u;
    atomic_int runs = 0, others = 0;
    CHECK_EQ(weft_start(&rt, NULL), 0);
    CHECK_EQ(weft_trigger_new(&t, rt, count, &runs), 0);
    CHECK_EQ(weft_trigger_new(&u, rt, count, &others), 0);
    weft_trigger_free(t);
    weft_trigger_fire(t);
    weft_trigger_fire(u);
    UNTIL(atomic_load(&others) == 1);
    CHECK_EQ(weft_stop(rt, -1), 0);
    CHECK_EQ(atomic_load(&runs), 0);
    weft_trigger_fire(u); /* its runtime has gone */
    weft_trigger_free(u);
    weft_trigger_fire(u);
}

static void *fire_on(void *arg) {
    struct own *o = arg;
    while (atomic_load(&o->runs) >= 0) {
        weft_trigger_fire(o->t);
    }
    return NULL;
}

static int pass(void *arg) {
    (void)arg;
    weft_sleep(10 * WEFT_MICROSECOND);
    return 0;
}

/* Somebody fires and fires while it is freed, or its runtime stopped. */
TEST(trigger, fired_through_its_end) {
    for (int i = 0; i < rounds(200); i++) {
        weft_runtime *rt;
        pthread_t thread;
        struct own o = {0};
        weft_config c = config_of(1 + i % 3);
        CHECK_EQ(weft_start(&rt, &c), 0);
        CHECK_EQ(weft_trigger_new(&o.t, rt, pass, NULL), 0);
        CHECK_EQ(pthread_create(&thread, NULL, fire_on, &o), 0);
        nanosleep(&(struct timespec){.tv_nsec = i % 50 * 10 * 1000}, NULL);
        if (i % 2 == 0) {
            CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
            weft_trigger_free(o.t);
        } else {
            weft_trigger_free(o.t);
            CHECK_EQ(weft_stop(rt, WEFT_SECOND * 20), 0);
        }
        atomic_store(&o.runs, -1);
        pthread_join(thread, NULL);
    }
}

/* ---- no room ---- */

static int hold_on(void *arg) {
    weft_event_wait(arg);
    return 0;
}

TEST(trigger, waits_for_room) {
    weft_runtime *rt;
    weft_trigger *t;
    atomic_int runs = 0;
    weft_event e = WEFT_EVENT_INIT;
    weft_config c = config_of(2);
    c.max_gs = 1;
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_trigger_new(&t, rt, count, &runs), 0);
    CHECK_EQ(weft_submit(rt, hold_on, &e), 0);
    weft_trigger_fire(t);
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    CHECK_EQ(atomic_load(&runs), 0);
    weft_event_set(&e);
    UNTIL(atomic_load(&runs) == 1);
    CHECK_EQ(weft_submit(rt, nothing, NULL), 0);
    weft_trigger_free(t);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- stuck ---- */

static weft_config strict_config(int procs) {
    weft_config c = config_of(procs);
    c.flags = WEFT_IGNORE_ENV;
    return c;
}

struct living {
    weft_trigger *t;
    weft_event e;
    weft_runtime *rt;
    bool fires;
    pthread_t thread;
};

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

static void *fire_or_free_later(void *arg) {
    struct living *l = arg;
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL); /* all are asleep by then */
    if (l->fires) {
        weft_trigger_fire(l->t);
    } else {
        weft_trigger_free(l->t);
    }
    return NULL;
}

static int live_on_a_trigger(void *arg) {
    struct living *l = arg;
    CHECK_EQ(weft_trigger_new(&l->t, NULL, set_event, &l->e), 0);
    CHECK_EQ(pthread_create(&l->thread, NULL, fire_or_free_later, l), 0);
    weft_event_wait(&l->e);
    CHECK(l->fires);
    weft_trigger_free(l->t);
    return 0;
}

TEST(trigger, not_stuck_while_it_lives) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        for (int fires = 0; fires < 2; fires++) {
            struct living l = {.e = WEFT_EVENT_INIT, .fires = fires != 0};
            weft_config c = strict_config(procs);
            CHECK_EQ(weft_run(live_on_a_trigger, &l, &c, NULL), fires ? 0 : -EDEADLK);
            pthread_join(l.thread, NULL);
        }
    }
}

/* ---- a storm of signals ---- */

enum { SIGNALS = 10000 };
static struct {
    weft_trigger *_Atomic t;
    atomic_int sent, seen, over;
} storm;

static void handler(int sig) {
    (void)sig;
    weft_trigger_fire(atomic_load(&storm.t));
}

static int see(void *arg) {
    (void)arg;
    atomic_store(&storm.seen, atomic_load(&storm.sent)); /* one at a time: it never goes back */
    return 0;
}

static int echo(void *arg) {
    weft_chan **c = arg;
    int v;
    while (weft_chan_recv(c[0], &v) == 0) {
        CHECK_EQ(weft_chan_send(c[1], &v), 0);
    }
    return 0;
}

/* What a handler may interrupt: queues, timers, spawns, locks. */
static void work(void) {
    weft_chan *c[2];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_chan_new(&c[0], sizeof(int), 0), 0);
    CHECK_EQ(weft_chan_new(&c[1], sizeof(int), 0), 0);
    CHECK_EQ(weft_waitgroup_go(&w, echo, c), 0);
    for (int i = 0, v; !atomic_load(&storm.over); i++) {
        CHECK_EQ(weft_chan_send(c[0], &i), 0);
        CHECK_EQ(weft_chan_recv(c[1], &v), 0);
        CHECK_EQ(v, i);
        if (i % 16 == 0) {
            CHECK_EQ(weft_waitgroup_go(&w, nothing, NULL), 0);
            CHECK_EQ(weft_sleep(10 * WEFT_MICROSECOND), 0);
        }
    }
    weft_chan_close(c[0]);
    weft_waitgroup_wait(&w);
    weft_chan_unref(c[0]);
    weft_chan_unref(c[1]);
}

static void *send_signals(void *arg) {
    (void)arg;
    sigset_t set;
    sigemptyset(&set); /* it shall hit the threads of weft */
    sigaddset(&set, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    for (int i = 1; i <= SIGNALS; i++) {
        atomic_store(&storm.sent, i);
        CHECK_EQ(kill(getpid(), SIGUSR1), 0);
        if (i % 64 == 0) {
            sched_yield();
        }
    }
#ifdef WEFT__TSAN
    handler(SIGUSR1); /* there a signal to a thread that sleeps in the kernel waits till it wakes */
#endif
    UNTIL(atomic_load(&storm.seen) == SIGNALS); /* it was started after the last one */
    atomic_store(&storm.over, 1);
    return NULL;
}

static int weather_the_storm(void *arg) {
    pthread_t sender;
    weft_trigger *t;
    (void)arg;
    atomic_store(&storm.seen, 0);
    atomic_store(&storm.over, 0);
    CHECK_EQ(weft_trigger_new(&t, NULL, see, NULL), 0);
    atomic_store(&storm.t, t);
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
    CHECK_EQ(pthread_create(&sender, NULL, send_signals, NULL), 0);
    work();
    pthread_join(sender, NULL);
    a.sa_handler =
        SIG_IGN; /* the last may still be on its way, or its handler at work: it fires late */
    CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
    weft_trigger_free(t);
    return 0;
}

TEST_IN(trigger, a_storm_of_signals, 60) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = strict_config(procs);
        CHECK_EQ(weft_run(weather_the_storm, NULL, &c, NULL), 0);
    }
}
