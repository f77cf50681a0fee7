/* stress/queue.c: run queues and stealing. Every green thread that was started runs once, however it
   was started and wherever it was stolen to; and work that waits is never left while a P is idle. */
#include "stress.h"

#include <sched.h>

/* ---- every G runs exactly once ---- */

enum { MOST = STRESS_TSAN ? 2000 : 100000, LIVE = STRESS_TSAN ? 500 : 30000 };

static atomic_uchar ran[MOST];
static atomic_int numbers, live;
static weft_waitgroup round_ends;

static int grow(void *arg);

static bool start_one(bool submit) {
    if (atomic_load(&live) >= LIVE) {
        return false;
    }
    int number = atomic_fetch_add(&numbers, 1);
    if (number >= MOST) {
        return false;
    }
    atomic_fetch_add(&live, 1);
    weft_waitgroup_add(&round_ends, 1);
    void *arg = (void *)(intptr_t)number;
    CHECK_EQ(submit ? weft_submit(NULL, grow, arg) : weft_go(grow, arg), 0);
    return true;
}

/* A G of the tree: starts some more, in one of several ways, and yields now and then. */
static int grow(void *arg) {
    int number = (int)(intptr_t)arg;
    CHECK_EQ(atomic_fetch_add(&ran[number], 1), 0);
    uint64_t seed = chance_seed((uint64_t)number);
    uint32_t way = chance(&seed) % 16;
    int children = way == 0 ? 400 : way == 1 ? 40 : (int)(chance(&seed) % 4);
    for (int i = 0; i < children && start_one(way == 2); i++) {
        if (chance(&seed) % 8 == 0) {
            weft_yield();
        }
    }
    for (uint32_t n = chance(&seed) % 4; n > 0; n--) {
        weft_yield();
    }
    progress();
    atomic_fetch_sub(&live, 1);
    weft_waitgroup_done(&round_ends);
    return 0;
}

static int tree(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(0);
    while (stress_more()) {
        memset((void *)ran, 0, sizeof ran);
        atomic_store(&numbers, 0);
        while (atomic_load(&numbers) < MOST) {
            if (!start_one(chance(&seed) % 4 == 0) || chance(&seed) % 64 == 0) {
                weft_yield();
            }
        }
        weft_waitgroup_wait(&round_ends);
        for (int i = 0; i < MOST; i++) {
            CHECK_EQ(atomic_load(&ran[i]), 1);
        }
        CHECK_EQ(atomic_load(&live), 0);
    }
    return 0;
}

static void trees(int procs) {
    stress_begin(2);
    stress_run(procs, tree, NULL);
    stress_over();
}

TEST_IN(queue, tree_1, 40) { trees(1); }
TEST_IN(queue, tree_2, 40) { trees(2); }
TEST_IN(queue, tree_5, 40) { trees(5); }

/* ---- work does not wait while a P is idle ---- */

/* A hog computes until another G has done something; at most procs - 1 hogs compute at a time, so
   there is always a P for the other. It becomes runnable in each of the ways there are. */
enum way { BY_GO, BY_SUBMIT, BY_SEND, BY_EVENT, BY_UNLOCK, BY_SLEEP, BY_TIMER, WAYS };
static const char *const way_text[] = {"go", "submit", "send", "event", "unlock", "sleep", "timer"};

struct hog {
    atomic_int flag;
    enum way way;
    weft_chan *chan;
    weft_event event;
    weft_mutex mutex;
    atomic_int waits;
};

static int raise_flag(void *arg) {
    struct hog *h = arg;
    atomic_store(&h->flag, 1);
    return 0;
}

static int receive_and_raise(void *arg) {
    struct hog *h = arg;
    char x;
    atomic_store(&h->waits, 1);
    CHECK_EQ(weft_chan_recv(h->chan, &x), 0);
    return raise_flag(arg);
}

static int wait_and_raise(void *arg) {
    struct hog *h = arg;
    atomic_store(&h->waits, 1);
    weft_event_wait(&h->event);
    return raise_flag(arg);
}

static int lock_and_raise(void *arg) {
    struct hog *h = arg;
    atomic_store(&h->waits, 1);
    weft_mutex_lock(&h->mutex);
    weft_mutex_unlock(&h->mutex);
    return raise_flag(arg);
}

static int sleep_and_raise(void *arg) {
    struct hog *h = arg;
    atomic_store(&h->waits, 1);
    CHECK_EQ(weft_sleep(50 * WEFT_MICROSECOND), 0);
    return raise_flag(arg);
}

static weft_waitgroup helpers;

static void help(struct hog *h, weft_fn fn) {
    CHECK_EQ(weft_waitgroup_go(&helpers, fn, h), 0);
    while (!atomic_load(&h->waits)) {
        weft_yield();
    }
}

/* Computes, with no call that could switch. */
static void compute_until(atomic_int *flag) {
    while (!atomic_load(flag)) {
        sched_yield(); /* the machine may have fewer CPUs than there are Ps */
    }
}

static int one_hog(enum way way) {
    struct hog h = {.way = way};
    char x = 0;
    weft_set_name("hog until %s", way_text[way]); /* for the dump */
    switch (way) {
    case BY_GO:
        CHECK_EQ(weft_waitgroup_go(&helpers, raise_flag, &h), 0);
        break;
    case BY_SUBMIT:
        weft_waitgroup_add(&helpers, 1);
        CHECK_EQ(weft_submit(NULL, raise_flag, &h), 0);
        weft_waitgroup_done(&helpers);
        break;
    case BY_SEND:
        CHECK_EQ(weft_chan_new(&h.chan, 1, 0), 0);
        help(&h, receive_and_raise);
        CHECK_EQ(weft_chan_send(h.chan, &x), 0);
        break;
    case BY_EVENT:
        help(&h, wait_and_raise);
        weft_event_set(&h.event);
        break;
    case BY_UNLOCK:
        weft_mutex_lock(&h.mutex);
        help(&h, lock_and_raise);
        weft_mutex_unlock(&h.mutex);
        break;
    case BY_SLEEP:
        help(&h, sleep_and_raise);
        break;
    default:
        CHECK_EQ(weft_after_func(NULL, 50 * WEFT_MICROSECOND, raise_flag, &h, NULL), 0);
    }
    compute_until(&h.flag);
    progress();
    weft_chan_unref(h.chan);
    return 0;
}

static int hogs_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        one_hog((enum way)(chance(&seed) % WAYS));
        if (chance(&seed) % 4 == 0) {
            weft_sleep((weft_duration)(chance(&seed) % 200) * WEFT_MICROSECOND);
        }
    }
    return 0;
}

static int all_hogs(void *arg) {
    (void)arg;
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    for (intptr_t i = 1; i < weft_procs(NULL); i++) {
        CHECK_EQ(weft_waitgroup_go(&w, hogs_on, (void *)i), 0);
    }
    weft_waitgroup_wait(&w);
    weft_waitgroup_wait(&helpers);
    return 0;
}

static void hogs(int procs) {
    stress_begin(2);
    stress_run(procs, all_hogs, NULL);
    stress_over();
}

TEST_IN(queue, hogs_2, 40) { hogs(2); }
TEST_IN(queue, hogs_4, 40) { hogs(4); }
