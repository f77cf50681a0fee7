/* unit/world.h: where a scene of the runtime is played, and by whom.
 *
 * A scene is a function that calls weft and may start parties: others who call weft at the same time.
 * PLAYED(suite, name) writes one test for each kind of caller and party that weft promises to serve
 * alike: green threads at 1, 2 and 4 Ps, plain threads, and green threads of another runtime.
 */
#ifndef WEFT_TEST_WORLD_H
#define WEFT_TEST_WORLD_H

#include "sched/sched.h"
#include "test.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

#include <weft.h>

enum parties { PARTIES_GREEN, PARTIES_PLAIN, PARTIES_FOREIGN };

static struct {
    enum parties parties;
    weft_runtime *foreign; /* with PARTIES_FOREIGN */
} world __attribute__((unused));

/* Gives the others time. What is waited for is always a condition, never the time itself. */
static inline void nap(void) {
    if (weft_current() != NULL) {
        weft_sleep(20 * WEFT_MICROSECOND);
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000}, NULL);
    }
}

/* Waits for something that must come; if it does not, the time limit of the test says so. */
#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        while (!(cond)) nap();                                                                     \
    } while (0)

/* ---- parties ---- */

typedef struct party {
    weft_fn fn;
    void *arg;
    _Atomic(weft__g *) g; /* once it runs */
    atomic_int ended;
    int result;
    pthread_t thread;
    bool plain;
} party;

static inline int party_body(void *arg) {
    party *p = arg;
    weft__m *m = weft__enter();
    atomic_store(&m->g->status, WEFT__G_RUNNING); /* a stand-in keeps what its last wait left */
    weft__leave(m);
    atomic_store(&p->g, m->g);
    p->result = p->fn(p->arg);
    atomic_store(&p->ended, 1); /* the starter's frame may go from here */
    return 0;
}

static inline void *party_thread(void *arg) {
    party_body(arg);
    return NULL;
}

static inline void party_start_as(party *p, enum parties kind, weft_fn fn, void *arg) {
    p->fn = fn;
    p->arg = arg;
    atomic_store(&p->g, NULL);
    atomic_store(&p->ended, 0);
    p->plain = kind == PARTIES_PLAIN;
    if (p->plain) {
        CHECK_EQ(pthread_create(&p->thread, NULL, party_thread, p), 0);
    } else if (kind == PARTIES_FOREIGN) {
        CHECK_EQ(weft_submit(world.foreign, party_body, p), 0);
    } else {
        CHECK_EQ(weft_go(party_body, p), 0);
    }
}

static inline void party_start(party *p, weft_fn fn, void *arg) {
    party_start_as(p, world.parties, fn, arg);
}

static inline bool party_is_parked(party *p) {
    weft__g *g = atomic_load(&p->g);
    return g != NULL && atomic_load(&g->status) == WEFT__G_WAITING;
}

/* Until it waits. It is in its source's queue then: a source is left locked until it is, and is queued
   in before the status says so. */
static inline void party_parked(party *p) {
    UNTIL(party_is_parked(p));
    CHECK_EQ(atomic_load(&p->ended), 0);
}

static inline int party_end(party *p) {
    UNTIL(atomic_load(&p->ended));
    if (p->plain) {
        pthread_join(p->thread, NULL);
    }
    return p->result;
}

/* ---- the stage ---- */

static inline weft_config config_of(int procs) {
    weft_config c = weft_config_default();
    c.procs = procs;
    c.flags = WEFT_IGNORE_ENV | WEFT_STUCK_IGNORE; /* plain threads may come to help */
    return c;
}

static inline int play_scene(void *arg) {
    void (*const *scene)(void) = arg;
    (*scene)();
    return 42;
}

/* procs 0: the scene is played by this plain thread. */
static inline void play(void (*scene)(void), int procs, enum parties parties) {
    world.parties = parties;
    world.foreign = NULL;
    if (parties == PARTIES_FOREIGN) {
        weft_config c = config_of(2);
        CHECK_EQ(weft_start(&world.foreign, &c), 0);
    }
    if (procs == 0) {
        scene();
    } else {
        weft_config c = config_of(procs);
        int status = 0;
        CHECK_EQ(weft_run(play_scene, &scene, &c, &status), 0);
        CHECK_EQ(status, 42);
    }
    if (world.foreign != NULL) {
        CHECK_EQ(weft_stop(world.foreign, WEFT_SECOND * 20), 0);
    }
}

#define PLAYED(suite, name)                                                                        \
    static void suite##_##name##_scene(void);                                                      \
    TEST(suite, name##_1) { play(suite##_##name##_scene, 1, PARTIES_GREEN); }                      \
    TEST(suite, name##_2) { play(suite##_##name##_scene, 2, PARTIES_GREEN); }                      \
    TEST(suite, name##_4) { play(suite##_##name##_scene, 4, PARTIES_GREEN); }                      \
    TEST(suite, name##_plain) { play(suite##_##name##_scene, 0, PARTIES_PLAIN); }                  \
    TEST(suite, name##_green_plain) { play(suite##_##name##_scene, 2, PARTIES_PLAIN); }            \
    TEST(suite, name##_plain_green) { play(suite##_##name##_scene, 0, PARTIES_FOREIGN); }          \
    TEST(suite, name##_two_runtimes) { play(suite##_##name##_scene, 2, PARTIES_FOREIGN); }         \
    static void suite##_##name##_scene(void)

/* Green callers only, whose parties are green too. */
#define PLAYED_GREEN(suite, name)                                                                  \
    static void suite##_##name##_scene(void);                                                      \
    TEST(suite, name##_1) { play(suite##_##name##_scene, 1, PARTIES_GREEN); }                      \
    TEST(suite, name##_2) { play(suite##_##name##_scene, 2, PARTIES_GREEN); }                      \
    TEST(suite, name##_4) { play(suite##_##name##_scene, 4, PARTIES_GREEN); }                      \
    static void suite##_##name##_scene(void)

/* ---- small things ---- */

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int entries_of(const char *path) {
    DIR *d = opendir(path);
    CHECK(d != NULL);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static inline int threads_now(void) { return entries_of("/proc/self/task"); }
static inline int fds_now(void) { return entries_of("/proc/self/fd") - 1; } /* less its own */

/* Fewer rounds where a sanitizer makes each one dear. */
static inline int rounds(int n) {
#if defined(WEFT__TSAN) || defined(WEFT__ASAN)
    return n / 10 > 0 ? n / 10 : 1;
#else
    return n;
#endif
}

#endif
