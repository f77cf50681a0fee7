/* stress/sync.c: mutex, waitgroup and event. Exclusion is exact, nobody is forgotten, and the object may
 * be freed the moment the call that depends on it has returned: here it lies on the waiter's stack, or
 * is freed at once, so that AddressSanitizer sees a late touch.
 */
#include "stress.h"

/* Parties are green, or plain threads: every scene has both. */
static int crowd_left; /* not atomic: guarded by the mutex under test */

/* ---- exclusion ---- */

static weft_mutex shared;
static struct {
    uint64_t a, b;
    atomic_int inside;
} guarded;
static _Atomic uint64_t locked_times;

static bool lock_somehow(uint64_t *seed) {
    switch (chance(seed) % 4) {
    case 0:
        return weft_mutex_try_lock(&shared);
    case 1: {
        int err = weft_mutex_lock_until(&shared, weft_in((weft_duration)(chance(seed) % 100000)));
        CHECK(err == 0 || err == -ETIMEDOUT);
        return err == 0;
    }
    default:
        weft_mutex_lock(&shared);
        return true;
    }
}

static int lock_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        if (!lock_somehow(&seed)) {
            weft_yield();
            continue;
        }
        CHECK_EQ(atomic_fetch_add(&guarded.inside, 1), 0);
        CHECK_EQ(guarded.a, guarded.b);
        guarded.a++;
        switch (chance(&seed) % 64) { /* held over a park now and then */
        case 0:
            weft_yield();
            break;
        case 1:
            weft_sleep((weft_duration)(chance(&seed) % 100) * WEFT_MICROSECOND);
            break;
        case 2:
            weft_sleep(2 * WEFT_MILLISECOND); /* long enough for those who wait to be handed it */
            break;
        default:
            break;
        }
        guarded.b++;
        CHECK_EQ(atomic_fetch_sub(&guarded.inside, 1), 1);
        weft_mutex_unlock(&shared);
        atomic_fetch_add(&locked_times, 1);
        progress();
        if (chance(&seed) % 8 == 0) {
            weft_yield();
        }
    }
    weft_mutex_lock(&shared);
    crowd_left--;
    weft_mutex_unlock(&shared);
    return 0;
}

static void *lock_thread(void *arg) {
    lock_on(arg);
    return NULL;
}

static int exclude(void *arg) {
    (void)arg;
    enum { GREEN = 12, PLAIN = 2 };
    pthread_t t[PLAIN];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    crowd_left = GREEN + PLAIN;
    for (intptr_t i = 0; i < GREEN; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, lock_on, (void *)i), 0);
    }
    for (intptr_t i = 0; i < PLAIN; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, lock_thread, (void *)(i + 50)), 0);
    }
    weft_waitgroup_wait(&w);
    for (int i = 0; i < PLAIN; i++) {
        pthread_join(t[i], NULL); /* they wait for nobody any more */
    }
    CHECK_EQ(crowd_left, 0);
    CHECK_EQ(guarded.a, atomic_load(&locked_times));
    CHECK_EQ(guarded.b, atomic_load(&locked_times));
    return 0;
}

static void excludes(int procs) {
    stress_begin(2);
    stress_run(procs, exclude, NULL);
    stress_over();
}

TEST_IN(sync, exclusion_1, 40) { excludes(1); }
TEST_IN(sync, exclusion_2, 40) { excludes(2); }
TEST_IN(sync, exclusion_4, 40) { excludes(4); }

/* ---- the last user frees ---- */

/* A reference count guarded by the mutex in the object itself: who brings it to zero unlocks and frees,
   while another's unlock may still be under way inside. */
struct counted {
    weft_mutex mutex;
    int refs;
};

static _Atomic int64_t counted_live;

static int drop_counted(void *arg) {
    struct counted *c = arg;
    weft_mutex_lock(&c->mutex);
    bool last = --c->refs == 0;
    weft_mutex_unlock(&c->mutex);
    if (last) {
        memset(c, 0xee, sizeof *c); /* whoever touches it now meets garbage */
        free(c);
        atomic_fetch_sub(&counted_live, 1);
        progress();
    }
    return 0;
}

static void *drop_thread(void *arg) {
    weft_chan *c = arg;
    void *object;
    while (weft_chan_recv(c, &object) == 0) {
        drop_counted(object);
    }
    return NULL;
}

static int count_down(void *arg) {
    (void)arg;
    enum { PLAIN = 2 };
    uint64_t seed = chance_seed(1);
    pthread_t t[PLAIN];
    weft_chan *to_plain;
    CHECK_EQ(weft_chan_new(&to_plain, sizeof(void *), 64), 0);
    for (int i = 0; i < PLAIN; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, drop_thread, to_plain), 0);
    }
    while (stress_more()) {
        struct counted *c = calloc(1, sizeof *c);
        CHECK(c != NULL);
        atomic_fetch_add(&counted_live, 1);
        c->refs = 2 + (int)(chance(&seed) % 5);
        for (int i = c->refs; i > 0; i--) { /* nobody looks at c but those we start: read before */
            if (chance(&seed) % 3 == 0) {
                CHECK_EQ(weft_chan_send(to_plain, &c), 0);
            } else {
                CHECK_EQ(weft_go(drop_counted, c), 0);
            }
        }
        while (atomic_load(&counted_live) > 200) {
            weft_yield();
        }
    }
    CHECK_EQ(weft_chan_close(to_plain), 0);
    while (atomic_load(&counted_live) > 0) {
        weft_sleep(WEFT_MILLISECOND);
    }
    for (int i = 0; i < PLAIN; i++) {
        pthread_join(t[i], NULL);
    }
    weft_chan_unref(to_plain);
    return 0;
}

static void count_downs(int procs) {
    stress_begin(1.5);
    stress_run(procs, count_down, NULL);
    stress_over();
}

TEST_IN(sync, last_user_frees_1, 30) { count_downs(1); }
TEST_IN(sync, last_user_frees_3, 30) { count_downs(3); }

/* ---- the waiter's stack ---- */

/* Waiters make an object in their own frame, hand it to helpers, wait, and return: the frame is used
   for something else at once. */
struct errand {
    weft_event *event;
    weft_waitgroup *group;
};

static weft_chan *errands; /* for plain helpers */

static int do_errand(void *arg) {
    struct errand *e = arg;
    weft_waitgroup *g = e->group;
    weft_event *v = e->event;
    if (v != NULL) {
        weft_event_set(v);
    } else {
        weft_waitgroup_done(g);
    }
    return 0;
}

static void *errand_thread(void *arg) {
    (void)arg;
    struct errand e;
    while (weft_chan_recv(errands, &e) == 0) {
        do_errand(&e);
    }
    return NULL;
}

static void hand_out(struct errand e, uint64_t *seed) {
    if (chance(seed) % 3 == 0) {
        CHECK_EQ(weft_chan_send(errands, &e), 0);
    } else {
        CHECK_EQ(weft_go_copy(do_errand, &e, sizeof e), 0);
    }
}

static __attribute__((noinline)) void wait_in_frame(uint64_t *seed) {
    weft_event event = WEFT_EVENT_INIT;
    weft_waitgroup group = WEFT_WAITGROUP_INIT;
    if (chance(seed) % 2 == 0) {
        hand_out((struct errand){&event, NULL}, seed);
        if (chance(seed) % 2 == 0) {
            weft_event_wait(&event);
        } else {
            while (weft_event_wait_until(&event, weft_in((weft_duration)(chance(seed) % 20000))) !=
                   0) {
            }
        }
        CHECK(weft_event_is_set(&event));
    } else {
        int n = 1 + (int)(chance(seed) % 4);
        weft_waitgroup_add(&group, n);
        for (int i = 0; i < n; i++) {
            hand_out((struct errand){NULL, &group}, seed);
        }
        if (chance(seed) % 2 == 0) {
            weft_waitgroup_wait(&group);
        } else {
            while (weft_waitgroup_wait_until(&group,
                                             weft_in((weft_duration)(chance(seed) % 20000))) != 0) {
            }
        }
    }
    memset(&event, 0xee, sizeof event);
    memset(&group, 0xee, sizeof group);
    __asm__ volatile("" : : "r"(&event), "r"(&group) : "memory");
}

static __attribute__((noinline)) void use_frame(void) {
    volatile char junk[512];
    memset((char *)junk, 0xdd, sizeof junk);
}

static int wait_on(void *arg) {
    uint64_t seed = chance_seed((uintptr_t)arg);
    while (stress_more()) {
        wait_in_frame(&seed);
        use_frame();
        progress();
    }
    return 0;
}

static int frames(void *arg) {
    (void)arg;
    enum { WAITERS = 8, PLAIN = 2 };
    pthread_t t[PLAIN];
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_chan_new(&errands, sizeof(struct errand), 16), 0);
    for (int i = 0; i < PLAIN; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, errand_thread, NULL), 0);
    }
    for (intptr_t i = 0; i < WAITERS; i++) {
        CHECK_EQ(weft_waitgroup_go(&w, wait_on, (void *)i), 0);
    }
    weft_waitgroup_wait(&w);
    CHECK_EQ(weft_chan_close(errands), 0);
    for (int i = 0; i < PLAIN; i++) {
        pthread_join(t[i], NULL);
    }
    weft_chan_unref(errands);
    return 0;
}

static void frames_at(int procs) {
    stress_begin(2);
    stress_run(procs, frames, NULL);
    stress_over();
}

TEST_IN(sync, frame_1, 30) { frames_at(1); }
TEST_IN(sync, frame_2, 30) { frames_at(2); }
TEST_IN(sync, frame_4, 30) { frames_at(4); }

/* ---- several waiters, one opener, and the object freed by the last of them ---- */

struct gate {
    weft_event event;
    weft_waitgroup group;
    atomic_int users;
    bool by_event;
};

static void leave(struct gate *g) {
    if (atomic_fetch_sub(&g->users, 1) == 1) {
        memset(g, 0xee, sizeof *g);
        free(g);
        progress();
    }
}

static _Atomic int64_t gates_live;

static int wait_at_gate(void *arg) {
    struct gate *g = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    int err = 0;
    bool timed = chance(&seed) % 3 == 0;
    weft_time until = timed ? weft_in((weft_duration)(chance(&seed) % 50000)) : WEFT_NEVER;
    if (g->by_event) {
        err = weft_event_wait_until(&g->event, until);
    } else {
        err = weft_waitgroup_wait_until(&g->group, until);
    }
    CHECK(err == 0 || (timed && err == -ETIMEDOUT));
    leave(g);
    atomic_fetch_sub(&gates_live, 1);
    return 0;
}

static int open_gate(void *arg) {
    struct gate *g = arg;
    uint64_t seed = chance_seed((uintptr_t)&seed);
    if (chance(&seed) % 2 == 0) {
        weft_yield();
    }
    if (g->by_event) {
        weft_event_set(&g->event);
    } else {
        weft_waitgroup_done(&g->group);
    }
    leave(g);
    atomic_fetch_sub(&gates_live, 1);
    return 0;
}

static int gates(void *arg) {
    (void)arg;
    uint64_t seed = chance_seed(8);
    while (stress_more()) {
        struct gate *g = calloc(1, sizeof *g);
        CHECK(g != NULL);
        int waiters = 1 + (int)(chance(&seed) % 5);
        g->by_event = chance(&seed) % 2 == 0;
        weft_waitgroup_add(&g->group, 1);
        atomic_store(&g->users, waiters + 1);
        atomic_fetch_add(&gates_live, waiters + 1);
        for (int i = 0; i < waiters; i++) {
            CHECK_EQ(weft_go(wait_at_gate, g), 0);
        }
        CHECK_EQ(weft_go(open_gate, g), 0);
        while (atomic_load(&gates_live) > 300) {
            weft_yield();
        }
    }
    while (atomic_load(&gates_live) > 0) {
        weft_sleep(WEFT_MILLISECOND);
    }
    return 0;
}

static void gates_at(int procs) {
    stress_begin(1.5);
    stress_run(procs, gates, NULL);
    stress_over();
}

TEST_IN(sync, gates_1, 30) { gates_at(1); }
TEST_IN(sync, gates_2, 30) { gates_at(2); }
TEST_IN(sync, gates_4, 30) { gates_at(4); }
