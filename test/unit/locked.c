/* unit/locked.c: green threads that are locked to their threads. */
#include "test.h"
#include "unit/world.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long tid(void) { return syscall(SYS_gettid); }

static void thread_sleep(int64_t ns) {
    nanosleep(&(struct timespec){.tv_sec = ns / WEFT_SECOND, .tv_nsec = ns % WEFT_SECOND}, NULL);
}

static bool is_listed(long thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld", thread);
    return access(path, F_OK) == 0;
}

/* ---- it stays, and is alone there ----------------------------------------------------------------- */

enum { LOCKED = 6, FREE = 20, MOST_TIDS = 1 << 22 };

static struct {
    weft_chan *to, *fro;
    weft_mutex mutex;
    atomic_int left, free_left;
    _Atomic unsigned char taken[MOST_TIDS]; /* threads that somebody is locked to */
} s;

static int stays(void *arg) {
    (void)arg;
    weft_lock_thread();
    long mine = tid();
    CHECK_EQ(atomic_exchange(&s.taken[mine], 1), 0);
    for (int i = 0; i < 60; i++) {
        int v = i;
        switch (i % 6) {
        case 0:
            CHECK_EQ(weft_chan_send(s.to, &v), 0);
            break;
        case 1:
            CHECK_EQ(weft_chan_recv(s.fro, &v), 0);
            break;
        case 2:
            CHECK_EQ(weft_sleep(50 * WEFT_MICROSECOND), 0);
            break;
        case 3:
            weft_yield();
            break;
        case 4:
            weft_mutex_lock(&s.mutex);
            weft_yield();
            weft_mutex_unlock(&s.mutex);
            break;
        default:
            thread_sleep(200 * WEFT_MICROSECOND); /* its P goes to others */
            break;
        }
        CHECK_EQ(tid(), mine);
    }
    atomic_store(&s.taken[mine], 0);
    weft_unlock_thread();
    atomic_fetch_sub(&s.left, 1);
    return 0;
}

static int runs_elsewhere(void *arg) {
    (void)arg;
    while (atomic_load(&s.left) > 0) {
        CHECK_EQ(atomic_load(&s.taken[tid()]), 0);
        weft_yield();
    }
    atomic_fetch_sub(&s.free_left, 1);
    return 0;
}

static int echoes(void *arg) {
    (void)arg;
    int v;
    while (weft_chan_recv(s.to, &v) == 0) {
        CHECK_EQ(weft_chan_send(s.fro, &v), 0);
    }
    return 0;
}

static void stays_scene(void) {
    WEFT_MUST(weft_chan_new(&s.to, sizeof(int), 0));
    WEFT_MUST(weft_chan_new(&s.fro, sizeof(int), LOCKED));
    atomic_store(&s.left, LOCKED);
    atomic_store(&s.free_left, FREE);
    CHECK_EQ(weft_go(echoes, NULL), 0);
    for (int i = 0; i < LOCKED; i++) {
        CHECK_EQ(weft_go(stays, NULL), 0);
    }
    for (int i = 0; i < FREE; i++) {
        CHECK_EQ(weft_go(runs_elsewhere, NULL), 0);
    }
    UNTIL(atomic_load(&s.left) == 0 && atomic_load(&s.free_left) == 0);
    CHECK_EQ(weft_chan_close(s.to), 0);
    CHECK_EQ(atomic_load(&weft_current()->nlocked), 0);
    weft_yield();
    weft_chan_unref(s.to);
    weft_chan_unref(s.fro);
}

PLAYED_GREEN(locked, stays_on_its_thread_alone) { stays_scene(); }

/* ---- depth ------------------------------------------------------------------------------------------ */

static int nests(void *arg) {
    (void)arg;
    weft__g *g = weft__m_self()->g;
    weft_unlock_thread(); /* too many: nothing */
    CHECK_EQ(g->locked, 0);
    weft_lock_thread();
    weft_lock_thread();
    CHECK_EQ(g->locked, 2);
    weft_unlock_thread();
    CHECK_EQ(g->locked, 1);
    CHECK(weft__m_self()->locked == g);
    weft_unlock_thread();
    CHECK_EQ(g->locked, 0);
    CHECK(weft__m_self()->locked == NULL);
    CHECK_EQ(atomic_load(&weft__m_self()->ticket), 1);
    return 0;
}

TEST(locked, nests) {
    weft_lock_thread(); /* a plain thread */
    weft_unlock_thread();
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(nests, NULL, &c, NULL), 0);
}

/* ---- ending while locked ------------------------------------------------------------------------------ */

static atomic_long died[8];
static atomic_int ended, hooked;

static int dies_locked(void *arg) {
    weft_lock_thread();
    weft_lock_thread();
    CHECK_EQ(prctl(PR_SET_NAME, "tainted"), 0);
    atomic_store((atomic_long *)arg, tid());
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void thread_stops(void *arg) {
    (void)arg;
    char name[32];
    prctl(PR_GET_NAME, name);
    atomic_fetch_add(&hooked, strcmp(name, "tainted") == 0);
}

static int threads_die(void *arg) {
    bool from_here = *(bool *)arg;
    for (size_t i = 0; i < WEFT_COUNT(died); i++) {
        CHECK_EQ(weft_go(dies_locked, &died[i]), 0);
        weft_yield();
    }
    UNTIL(atomic_load(&ended) == (int)WEFT_COUNT(died));
    for (size_t i = 0; i < WEFT_COUNT(died); i++) {
        if (atomic_load(&died[i]) != getpid()) {
            UNTIL(!is_listed(atomic_load(&died[i])));
        } else {
            from_here = true;
        }
    }
    weft__r *r = weft_current();
    CHECK_EQ(atomic_load(&r->nlocked), 0);
    *(bool *)arg = from_here;
    return 7;
}

static void dies_at(int procs) {
    weft_config c = config_of(procs);
    c.thread_stop = thread_stops;
    bool main_thread_too = false;
    atomic_store(&ended, 0);
    atomic_store(&hooked, 0);
    int status = 0;
    CHECK_EQ(weft_run(threads_die, &main_thread_too, &c, &status), 0);
    CHECK_EQ(status, 7);
    CHECK_EQ(atomic_load(&hooked), (int)WEFT_COUNT(died) - main_thread_too);
    prctl(PR_SET_NAME, "test");
}

TEST(locked, who_ends_takes_its_thread_along_1) { dies_at(1); }
TEST(locked, who_ends_takes_its_thread_along_4) { dies_at(4); }

static int main_dies_locked(void *arg) {
    weft_lock_thread();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(dies_locked, &died[i]), 0);
    }
    CHECK_EQ(weft_sleep(*(int64_t *)arg), 0);
    return 9;
}

TEST(locked, main_may_end_locked) {
    for (int procs = 1; procs <= 2; procs++) {
        for (int64_t ns = 0; ns <= 2 * WEFT_MILLISECOND; ns += WEFT_MILLISECOND) {
            weft_config c = config_of(procs);
            int status = 0;
            CHECK_EQ(weft_run(main_dies_locked, &ns, &c, &status), 0);
            CHECK_EQ(status, 9);
        }
    }
}

/* ---- locked to the thread of weft_run ------------------------------------------------------------------ */

static atomic_int cancelled;
static atomic_bool is_locked;

static int waits_locked(void *arg) {
    (void)arg;
    weft_lock_thread();
    atomic_store(&is_locked, true);
    long mine = tid();
    int err;
    while ((err = weft_sleep(WEFT_SECOND)) == 0) {
    }
    CHECK_EQ(err, -ECANCELED);
    CHECK_EQ(tid(), mine);
    atomic_fetch_add(&cancelled, 1);
    return 0;
}

/* One P, and main yields to it: on the thread of weft_run. */
static int leaves_it(void *arg) {
    CHECK_EQ(weft_go(waits_locked, NULL), 0);
    weft_yield();
    UNTIL(atomic_load(&is_locked));
    if (*(bool *)arg) {
        weft_sleep(5 * WEFT_MILLISECOND); /* back on another thread */
    }
    return 3;
}

TEST(locked, who_is_locked_to_weft_runs_thread_is_cancelled) {
    for (int i = 0; i < 40; i++) {
        bool parks = i % 2;
        weft_config c = config_of(1 + i / 20);
        atomic_store(&is_locked, false);
        atomic_store(&cancelled, 0);
        int status = 0;
        CHECK_EQ(weft_run(leaves_it, &parks, &c, &status), 0);
        CHECK_EQ(status, 3);
        CHECK_EQ(atomic_load(&cancelled), 1);
    }
}

/* ---- the dead, and the many -------------------------------------------------------------------------- */

static void quiet(void *arg, int level, const char *line) {
    (void)arg;
    (void)level;
    (void)line;
}

static int waits_for_ever(void *arg) {
    weft_chan *c = arg;
    int v;
    weft_lock_thread();
    return weft_chan_recv(c, &v);
}

/* What the dead stand in stays; LeakSanitizer does not look at their stacks. */
static void keep(weft_chan *c) {
    static weft_chan *volatile kept[8];
    static int n;
    kept[n++] = c;
}

static int dead(void *arg) {
    weft_chan *c;
    WEFT_MUST(weft_chan_new(&c, sizeof(int), 0));
    keep(c);
    if (*(bool *)arg) {
        weft_lock_thread();
    }
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(weft_go(waits_for_ever, c), 0);
    }
    return waits_for_ever(c);
}

TEST(locked, the_dead_are_seen) {
    for (int i = 0; i < 4; i++) {
        weft_config c = config_of(1 + i / 2);
        c.flags = WEFT_IGNORE_ENV;
        c.log = quiet;
        CHECK_EQ(weft_run(dead, &(bool){i % 2}, &c, NULL), -EDEADLK);
    }
}

static int play_stays(void *arg) {
    (void)arg;
    stays_scene();
    return 0;
}

/* More are locked than there may be threads: those do not count. */
TEST(locked, they_do_not_count_as_threads) {
    weft_config c = config_of(2);
    c.max_threads = 3;
    CHECK_EQ(weft_run(play_stays, NULL, &c, NULL), 0);
}
