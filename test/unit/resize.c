/* unit/resize.c: the number of Ps changes while everything goes on. */
#include "test.h"
#include "unit/world.h"

#include <stdlib.h>

static atomic_int ended, running;
static atomic_bool stop;

static weft_runtime *here;

/* ---- what it says -------------------------------------------------------------------------------- */

static int errors(void *arg) {
    (void)arg;
    CHECK_EQ(weft_procs(NULL), 2);
    CHECK_EQ(weft_set_procs(NULL, -1), -EINVAL);
    CHECK_EQ(weft_set_procs(NULL, 1025), -EINVAL);
    CHECK_EQ(weft_set_procs(NULL, 10), -EINVAL); /* max_threads */
    CHECK_EQ(weft_procs(NULL), 2);
    CHECK_EQ(weft_set_procs(NULL, 9), 0);
    CHECK_EQ(weft_procs(NULL), 9);
    CHECK_EQ(weft_set_procs(NULL, 9), 0);
    CHECK_EQ(weft_set_procs(NULL, 1), 0);
    CHECK_EQ(weft_procs(NULL), 1);
    CHECK_EQ(weft_proc_self(), 0);
    return 0;
}

TEST(resize, errors_and_bounds) {
    CHECK_EQ(weft_set_procs(NULL, 2), WEFT_ENORUNTIME);
    weft_config c = config_of(2);
    c.max_threads = 10;
    CHECK_EQ(weft_run(errors, NULL, &c, NULL), 0);
}

static int back_to_default(void *arg) {
    (void)arg;
    int def = weft_procs(NULL);
    CHECK_EQ(weft_set_procs(NULL, def + 3), 0);
    CHECK_EQ(weft_set_procs(NULL, 0), 0);
    CHECK_EQ(weft_procs(NULL), def);
    return 0;
}

TEST(resize, zero_is_the_default) {
    CHECK_EQ(weft_run(back_to_default, NULL, NULL, NULL), 0);
    CHECK_EQ(setenv("WEFT_PROCS", "5", 1), 0);
    CHECK_EQ(weft_run(back_to_default, NULL, NULL, NULL), 0);
    CHECK_EQ(unsetenv("WEFT_PROCS"), 0);
}

/* ---- as many run at once as there are Ps --------------------------------------------------------- */

/* All of them meet: with one P fewer than Gs that wait without parking they never would. */
static int meets(void *arg) {
    int n = *(int *)arg;
    atomic_fetch_add(&running, 1);
    while (atomic_load(&running) < n) {
        weft_proc_self();
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int grows(void *arg) {
    (void)arg;
    for (int round = 0; round < 20; round++) {
        int n = 2 + round % 5;
        CHECK_EQ(weft_set_procs(NULL, n), 0);
        CHECK_EQ(weft_procs(NULL), n);
        atomic_store(&running, 1); /* this one */
        atomic_store(&ended, 0);
        for (int i = 1; i < n; i++) {
            CHECK_EQ(weft_go(meets, &n), 0);
        }
        while (atomic_load(&running) < n) {
        }
        UNTIL(atomic_load(&ended) == n - 1);
        CHECK_EQ(weft_set_procs(NULL, 1), 0);
    }
    return 0;
}

TEST(resize, as_many_run_at_once) {
    weft_config c = config_of(1);
    CHECK_EQ(weft_run(grows, NULL, &c, NULL), 0);
}

/* On return nobody runs with a P that has gone. */
static int looks_where(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        weft_yield();
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void check_gone(weft__r *r, int n) {
    int nps = atomic_load(&r->nps);
    weft__lock_take(&r->lock);
    for (int i = 0; i < nps; i++) {
        weft__p *p = r->ps[i];
        CHECK_EQ(p->gone, i >= n);
        if (i >= n) {
            CHECK(atomic_load(&p->m) == NULL);
            CHECK(!weft__runq_has_ring(p));
            CHECK(atomic_load(&p->runnext) == NULL);
            CHECK(atomic_load(&p->offered) == NULL);
            CHECK(p->gfree == NULL && p->gfree_spare == NULL);
        }
    }
    weft__lock_drop(&r->lock);
}

static int shrinks(void *arg) {
    weft__r *r = weft_current();
    int gs = *(int *)arg;
    atomic_store(&stop, false);
    atomic_store(&ended, 0);
    for (int i = 0; i < gs; i++) {
        CHECK_EQ(weft_go(looks_where, NULL), 0);
    }
    for (int round = 0; round < 100; round++) {
        int n = 1 + (round * 7 + round / 3) % 8;
        CHECK_EQ(weft_set_procs(NULL, n), 0);
        CHECK_EQ(weft_procs(NULL), n);
        check_gone(r, n);
        CHECK_LT(weft_proc_self(), n);
    }
    atomic_store(&stop, true);
    UNTIL(atomic_load(&ended) == gs);
    return 0;
}

TEST(resize, who_has_gone_runs_nothing) {
    weft_config c = config_of(8);
    CHECK_EQ(weft_run(shrinks, &(int){5}, &c, NULL), 0);
    CHECK_EQ(weft_run(shrinks, &(int){1000}, &c, NULL), 0); /* full queues */
}

/* ---- by whom, and beside whom -------------------------------------------------------------------- */

static int sets(void *arg) {
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(weft_set_procs(here, 1 + (*(int *)arg + i) % 5), 0);
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int setters(void *arg) {
    (void)arg;
    static int start[4] = {0, 1, 2, 3};
    atomic_store(&ended, 0);
    party p[4];
    for (int i = 0; i < 4; i++) {
        party_start(&p[i], sets, &start[i]);
    }
    for (int i = 0; i < 4; i++) {
        party_end(&p[i]);
    }
    CHECK_EQ(atomic_load(&ended), 4);
    int n = weft_procs(here);
    CHECK_GE(n, 1);
    CHECK_LE(n, 5);
    return 0;
}

static void set_from(enum parties who, int procs) {
    weft_config c = config_of(procs);
    CHECK_EQ(weft_start(&here, &c), 0);
    world.parties = who;
    world.foreign = NULL;
    if (who == PARTIES_FOREIGN) {
        CHECK_EQ(weft_start(&world.foreign, &c), 0);
    }
    CHECK_EQ(weft_call(here, setters, NULL, WEFT_NEVER, NULL), 0);
    if (who == PARTIES_FOREIGN) {
        CHECK_EQ(weft_stop(world.foreign, -1), 0);
    }
    CHECK_EQ(weft_stop(here, -1), 0);
}

TEST(resize, from_green_threads) { set_from(PARTIES_GREEN, 2); }
TEST(resize, from_plain_threads) { set_from(PARTIES_PLAIN, 1); }
TEST(resize, from_another_runtime) { set_from(PARTIES_FOREIGN, 3); }

/* Those that compute or block keep nobody waiting. */
static int hogs(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int sleeps(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int beside_hogs(void *arg) {
    weft_fn hog = *(weft_fn *)arg;
    atomic_store(&stop, false);
    atomic_store(&ended, 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_go(hog, NULL), 0);
    }
    for (int i = 0; i < 30; i++) {
        CHECK_EQ(weft_set_procs(NULL, 1 + i % 4), 0);
        weft_yield();
    }
    atomic_store(&stop, true);
    UNTIL(atomic_load(&ended) == 4);
    CHECK_EQ(weft_set_procs(NULL, 3), 0);
    check_gone(weft_current(), 3);
    return 0;
}

TEST(resize, beside_computing) {
    weft_config c = config_of(4);
    CHECK_EQ(weft_run(beside_hogs, &(weft_fn){hogs}, &c, NULL), 0);
}

TEST(resize, beside_blocked) {
    weft_config c = config_of(4);
    CHECK_EQ(weft_run(beside_hogs, &(weft_fn){sleeps}, &c, NULL), 0);
}

/* There no P is taken: it goes when its green thread yields. */
static int yields_at_last(void *arg) {
    (void)arg;
    atomic_fetch_add(&running, 1);
    while (!atomic_load(&stop)) {
    }
    while (atomic_load(&ended) == 0) {
        weft_yield();
    }
    return 0;
}

static void *shrink_to_one(void *rt) {
    CHECK_EQ(weft_set_procs(rt, 1), 0);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

TEST(resize, exclusive_waits_for_a_yield) {
    weft_config c = config_of(2);
    c.flags |= WEFT_EXCLUSIVE;
    weft_runtime *rt;
    pthread_t thread;
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_submit(rt, yields_at_last, NULL), 0);
    CHECK_EQ(weft_submit(rt, yields_at_last, NULL), 0);
    UNTIL(atomic_load(&running) == 2); /* on both Ps, and none will be taken */
    CHECK_EQ(pthread_create(&thread, NULL, shrink_to_one, rt), 0);
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    CHECK_EQ(atomic_load(&ended), 0);
    CHECK_EQ(weft_procs(rt), 2);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    CHECK_EQ(weft_procs(rt), 1);
    CHECK_EQ(weft_stop(rt, -1), 0);
}

/* ---- timers of Ps that have gone ------------------------------------------------------------------- */

enum { A_P = 50 };

static atomic_int fired;

static int fire(void *arg) {
    (void)arg;
    atomic_fetch_add(&fired, 1);
    return 0;
}

/* One on each of four Ps: none parks before all have come. */
static int arms(void *arg) {
    (void)arg;
    atomic_fetch_add(&running, 1);
    while (atomic_load(&running) < 4) {
    }
    for (int i = 0; i < A_P; i++) {
        CHECK_EQ(weft_after_func(NULL, (20 + i) * WEFT_MILLISECOND, fire, NULL, NULL), 0);
    }
    atomic_fetch_add(&ended, 1);
    return 0;
}

/* How many Ps that have gone hold some of them. Who computed for long before it armed has none. */
static int arm_and_shrink(weft__r *r) {
    CHECK_EQ(weft_set_procs(NULL, 4), 0);
    atomic_store(&running, 0);
    atomic_store(&ended, 0);
    atomic_store(&fired, 0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_go(arms, NULL), 0);
    }
    while (atomic_load(&ended) < 4) {
        weft_yield();
    }
    CHECK_EQ(weft_set_procs(NULL, 1), 0);
    int gone = 0;
    for (int i = 1; i < 4; i++) {
        gone += weft__tset_min(r->ps[i]->tset) != INT64_MAX;
    }
    return gone;
}

static int timers_stay(void *arg) {
    bool busy = *(bool *)arg;
    int gone;
    do {
        gone = arm_and_shrink(weft_current());
        while (atomic_load(&fired) < 4 * A_P) {
            if (busy) {
                weft_yield();
            } else {
                CHECK_EQ(weft_sleep(100 * WEFT_MILLISECOND), 0);
            }
        }
    } while (gone == 0);
    return 0;
}

TEST(resize, timers_of_ps_that_have_gone_fire) {
    weft_config c = config_of(4);
    CHECK_EQ(weft_run(timers_stay, &(bool){true}, &c, NULL), 0);
    CHECK_EQ(weft_run(timers_stay, &(bool){false}, &c, NULL), 0);
}

/* ---- the dead --------------------------------------------------------------------------------------- */

/* What the dead stand in stays; LeakSanitizer does not look at their stacks. */
static void keep(weft_chan *c) {
    static weft_chan *volatile kept[8];
    static int n;
    kept[n++] = c;
}

/* A program that is dead is seen with any number of Ps. */
static int dead(void *arg) {
    CHECK_EQ(weft_set_procs(NULL, *(int *)arg), 0);
    weft_chan *c;
    WEFT_MUST(weft_chan_new(&c, sizeof(int), 0));
    keep(c);
    int v;
    return weft_chan_recv(c, &v);
}

static void quiet(void *arg, int level, const char *line) {
    (void)arg;
    (void)level;
    (void)line;
}

TEST(resize, the_dead_are_seen) {
    weft_config c = config_of(3);
    c.flags = WEFT_IGNORE_ENV;
    c.log = quiet;
    CHECK_EQ(weft_run(dead, &(int){1}, &c, NULL), -EDEADLK);
    CHECK_EQ(weft_run(dead, &(int){6}, &c, NULL), -EDEADLK);
}
