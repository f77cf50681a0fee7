/* unit/runq.c: the queues of a P by themselves, on a runtime that has nothing but them: the ring at
   every fill and at every position of its free-running indices, overflow, stealing, runnext. */
#include "world.h"

#include <stdlib.h>

enum { MANY = 1000 };

static weft__r *r;
static weft__p *ps[3];
static weft__g *gs; /* MANY, told apart by their numbers */

/* Just short of the turn of a 32-bit index, and at it. */
static const uint32_t starts[] = {
    0, 1, 200, UINT32_MAX - 300, UINT32_MAX - 255, UINT32_MAX - 100, UINT32_MAX};

static void *zeroed(size_t bytes) {
    void *p = NULL;
    CHECK_EQ(posix_memalign(&p, WEFT__LINE, bytes), 0);
    memset(p, 0, bytes);
    return p;
}

static void place(weft__p *p, uint32_t at) {
    CHECK(!weft__runq_has_ring(p));
    atomic_store(&p->head, at);
    atomic_store(&p->tail, at);
}

static void set_up(void) {
    r = zeroed(sizeof *r);
    r->nprocs = 3;
    gs = zeroed(MANY * sizeof *gs);
    for (int i = 0; i < MANY; i++) {
        gs[i].id = (uint64_t)i;
    }
    for (int i = 0; i < 3; i++) {
        ps[i] = zeroed(sizeof *ps[i]);
        ps[i]->r = r;
        ps[i]->index = (uint32_t)i;
    }
}

static void put(weft__p *p, int from, int n) {
    for (int i = 0; i < n; i++) {
        weft__runqput(p, &gs[from + i]);
    }
}

static void expect_ring(weft__p *p, int from, int n) {
    CHECK_EQ(weft__runq_len(p), n);
    for (int i = 0; i < n; i++) {
        CHECK(weft__runq_has_ring(p));
        weft__g *g = weft__runqget_ring(p);
        CHECK(g != NULL);
        CHECK_EQ(g->id, from + i);
    }
    CHECK(!weft__runq_has_ring(p));
    CHECK(weft__runqget_ring(p) == NULL);
}

static void expect_global(int from, int n) {
    uint32_t published = atomic_load(&r->globq_len);
    CHECK_EQ(r->globq.len, n);
    CHECK_EQ(published, n);
    for (int i = 0; i < n; i++) {
        weft__g *g = weft__glist_pop(&r->globq);
        CHECK(g != NULL);
        CHECK_EQ(g->id, from + i);
    }
    CHECK(weft__glist_pop(&r->globq) == NULL);
    atomic_store(&r->globq_len, 0);
}

TEST(runq, first_in_first_out_at_every_fill) {
    set_up();
    for (size_t s = 0; s < WEFT_COUNT(starts); s++) {
        for (int solo = 0; solo < 2; solo++) {
            ps[0]->solo = solo;
            for (int n = 0; n <= WEFT__RING; n++) {
                place(ps[0], starts[s]);
                put(ps[0], 0, n);
                expect_ring(ps[0], 0, n);
            }
        }
    }
    expect_global(0, 0);
}

TEST(runq, overflow_sends_the_older_half_to_the_global_queue) {
    set_up();
    for (size_t s = 0; s < WEFT_COUNT(starts); s++) {
        place(ps[0], starts[s]);
        put(ps[0], 0, WEFT__RING);
        CHECK_EQ(r->globq.len, 0);
        put(ps[0], WEFT__RING, 1);
        CHECK_EQ(r->globq.len, WEFT__RING / 2 + 1);
        CHECK_EQ(r->globq.tail->id, WEFT__RING); /* the newest behind the older half */
        r->globq.tail->id = WEFT__RING / 2;
        expect_global(0, WEFT__RING / 2 + 1);
        gs[WEFT__RING].id = WEFT__RING;
        expect_ring(ps[0], WEFT__RING / 2, WEFT__RING / 2);
    }
}

TEST(runq, a_list_goes_in_order_and_the_rest_to_the_global_queue) {
    set_up();
    static const int lengths[] = {0, 1, 100, 256, 257, 600};
    for (size_t s = 0; s < WEFT_COUNT(starts); s++) {
        for (size_t k = 0; k < WEFT_COUNT(lengths); k++) {
            for (int before = 0; before <= 256; before += 64) {
                weft__glist l = {0};
                place(ps[0], starts[s]);
                put(ps[0], 0, before);
                for (int i = 0; i < lengths[k]; i++) {
                    weft__glist_push(&l, &gs[before + i]);
                }
                weft__runqput_list(ps[0], &l);
                CHECK(l.head == NULL);
                CHECK_EQ(l.len, 0);
                int all = before + lengths[k];
                int ring = all < WEFT__RING ? all : WEFT__RING;
                expect_ring(ps[0], 0, ring);
                expect_global(ring, all - ring);
            }
        }
    }
}

TEST(runq, the_global_queue_is_first_in_first_out) {
    set_up();
    int at = 0;
    for (int n = 0; n < 20; n++) {
        weft__glist l = {0};
        for (int i = 0; i < n; i++) {
            weft__glist_push(&l, &gs[at++]);
        }
        weft__globq_put_list(r, &l);
        CHECK_EQ(l.len, 0);
    }
    expect_global(0, at);
}

TEST(runq, a_thief_takes_half_rounded_up) {
    set_up();
    for (size_t a = 0; a < WEFT_COUNT(starts); a++) {
        size_t b = (a * 3 + 1) % WEFT_COUNT(starts); /* thief and victim at different positions */
        for (int n = 1; n <= WEFT__RING; n++) {
            uint32_t seen = 0;
            int half = n - n / 2;
            place(ps[0], starts[a]);
            place(ps[1], starts[b]);
            put(ps[0], 0, n);
            uint64_t steals = atomic_load(&ps[1]->stats.steals);
            weft__g *g = weft__runqsteal(ps[1], ps[0], false, &seen);
            CHECK(g != NULL);
            CHECK_EQ(g->id, half - 1); /* the last one taken is run, the others wait in order */
            CHECK_EQ(atomic_load(&ps[1]->stats.steals), steals + (uint64_t)half);
            expect_ring(ps[1], 0, half - 1);
            expect_ring(ps[0], half, n - half);
        }
    }
}

TEST(runq, nothing_to_steal) {
    set_up();
    uint32_t seen = 0;
    CHECK(weft__runqsteal(ps[1], ps[0], true, &seen) == NULL);
    CHECK_EQ(atomic_load(&ps[1]->stats.steals), 0);
    CHECK(!weft__runq_has_ring(ps[1]));
}

/* ---- runnext ---- */

static weft__m m;

TEST(runq, runnext_kicks_the_one_before_to_the_tail) {
    set_up();
    m.p = ps[0];
    atomic_store(&ps[0]->owes, WEFT__OWED_NEXT | WEFT__OWED_WORK);
    put(ps[0], 0, 2);
    weft__runqput_next(&m, ps[0], &gs[10]);
    CHECK_EQ(m.owed, WEFT__OWED_NEXT);
    weft__runqput_next(&m, ps[0], &gs[11]);
    CHECK_EQ(m.owed, WEFT__OWED_NEXT | WEFT__OWED_WORK);
    CHECK_EQ(weft__runnext_take(ps[0])->id, 11);
    CHECK(weft__runnext_take(ps[0]) == NULL);
    CHECK_EQ(weft__runqget_ring(ps[0])->id, 0);
    CHECK_EQ(weft__runqget_ring(ps[0])->id, 1);
    CHECK_EQ(weft__runqget_ring(ps[0])->id, 10);
}

TEST(runq, runnext_of_a_full_ring_overflows) {
    set_up();
    m.p = ps[0];
    put(ps[0], 0, WEFT__RING);
    weft__runqput_next(&m, ps[0], &gs[500]);
    CHECK_EQ(r->globq.len, 0);
    weft__runqput_next(&m, ps[0], &gs[501]);
    CHECK_EQ(r->globq.len, WEFT__RING / 2 + 1);
    CHECK_EQ(r->globq.tail->id, 500);
    CHECK_EQ(weft__runnext_take(ps[0])->id, 501);
}

TEST(runq, what_is_not_offered_is_not_stolen) {
    set_up();
    m.p = ps[0];
    uint32_t seen = 0;
    weft__runqput_next(&m, ps[0], &gs[1]);
    for (int i = 0; i < 4; i++) {
        CHECK(weft__runqsteal(ps[1], ps[0], true, &seen) == NULL);
    }
    CHECK_EQ(weft__runnext_take(ps[0])->id, 1);
}

/* Left behind for user code, it is offered: stolen in the last pass only, and only if its holder has
   picked nothing between two looks of the thief. */
TEST(runq, what_is_offered_is_stolen_late) {
    set_up();
    m.p = ps[0];
    m.r = r;
    uint32_t seen = 0;
    atomic_store(&ps[0]->tick, 7);
    weft__runqput_next(&m, ps[0], &gs[1]);
    weft__pay(&m);
    CHECK_EQ(m.owed, 0);
    CHECK(weft__runqsteal(ps[1], ps[0], false, &seen) == NULL);
    CHECK_EQ(seen, 0);
    CHECK(weft__runqsteal(ps[1], ps[0], true, &seen) == NULL);
    CHECK_EQ(seen, 7);
    atomic_store(&ps[0]->tick, 8);
    CHECK(weft__runqsteal(ps[1], ps[0], true, &seen) == NULL);
    CHECK_EQ(seen, 8);
    CHECK(weft__runqsteal(ps[1], ps[0], false, &seen) == NULL);
    CHECK_EQ(weft__runqsteal(ps[1], ps[0], true, &seen)->id, 1);
    CHECK_EQ(atomic_load(&ps[1]->stats.steals), 1);
    CHECK(weft__runqsteal(ps[1], ps[0], true, &seen) == NULL);
    CHECK(weft__runnext_take(ps[0]) == NULL);
}

TEST(runq, the_holder_takes_back_what_it_offered) {
    set_up();
    m.p = ps[0];
    m.r = r;
    weft__runqput_next(&m, ps[0], &gs[1]);
    weft__pay(&m);
    weft__runqput_next(&m, ps[0], &gs[2]); /* goes before it, it to the ring */
    CHECK_EQ(weft__runnext_take(ps[0])->id, 2);
    CHECK_EQ(weft__runqget_ring(ps[0])->id, 1);
    weft__runqput_next(&m, ps[0], &gs[3]);
    weft__pay(&m);
    CHECK_EQ(weft__runnext_take(ps[0])->id, 3);
    CHECK(weft__runnext_take(ps[0]) == NULL);
}

TEST(runq, the_ring_is_stolen_before_what_is_offered) {
    set_up();
    m.p = ps[0];
    m.r = r;
    uint32_t seen = 0;
    put(ps[0], 20, 1);
    weft__runqput_next(&m, ps[0], &gs[1]);
    weft__pay(&m);
    CHECK_EQ(weft__runqsteal(ps[1], ps[0], true, &seen)->id, 20);
    CHECK_EQ(weft__runqsteal(ps[1], ps[0], true, &seen)->id, 1);
}

/* ---- together ---- */

static atomic_int taken[MANY];
static atomic_bool over;

static void take(weft__g *g) {
    if (g != NULL) {
        CHECK_EQ(atomic_fetch_add(&taken[g->id], 1), 0);
    }
}

static void *steal_on(void *arg) {
    weft__p *me = arg;
    uint32_t seen = 0;
    while (!atomic_load(&over)) {
        weft__g *g = weft__runqsteal(me, ps[0], true, &seen);
        take(g);
        while (g != NULL && (g = weft__runqget_ring(me)) != NULL) {
            take(g);
        }
    }
    return NULL;
}

/* A holder that puts and takes in every way, two thieves: each G comes out once, at any index. */
TEST(runq, each_comes_out_once) {
    set_up();
    m.p = ps[0];
    m.r = r;
    pthread_t t[2];
    place(ps[0], UINT32_MAX - 20000);
    for (int i = 0; i < 2; i++) {
        place(ps[1 + i], UINT32_MAX - 9000);
        CHECK_EQ(pthread_create(&t[i], NULL, steal_on, ps[1 + i]), 0);
    }
    uint64_t rand = 88172645463325252u;
    for (int round = 0; round < rounds(300); round++) {
        for (int i = 0; i < MANY; i++) {
            atomic_store(&taken[i], 0);
        }
        for (int i = 0; i < MANY; i++) {
            switch (weft__rand(&rand) % 8) {
            case 0:
                weft__runqput_next(&m, ps[0], &gs[i]);
                break;
            case 1:
                weft__runqput_next(&m, ps[0], &gs[i]);
                weft__pay(&m);
                break;
            case 2:
                weft__runqput(ps[0], &gs[i]);
                take(weft__runnext_take(ps[0]));
                break;
            case 3:
                weft__runqput(ps[0], &gs[i]);
                take(weft__runqget_ring(ps[0]));
                break;
            default:
                weft__runqput(ps[0], &gs[i]);
            }
        }
        weft__g *g;
        while ((g = weft__runnext_take(ps[0])) != NULL || (g = weft__runqget_ring(ps[0])) != NULL ||
               (g = weft__glist_pop(&r->globq)) != NULL) {
            take(g);
        }
        for (int i = 0; i < MANY; i++) {
            UNTIL(atomic_load(&taken[i]) == 1); /* the last may still be with a thief */
        }
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
}

/* ---- orders of stealing ---- */

static int common(int a, int b) { return b == 0 ? a : common(b, a % b); }

TEST(runq, orders_of_stealing_visit_everybody_once) {
    for (int procs = 1; procs <= 40; procs++) {
        weft_runtime *rt;
        weft_config c = config_of(procs);
        CHECK_EQ(weft_start(&rt, &c), 0);
        uint32_t coprime = 0;
        for (int i = 1; i <= procs; i++) {
            coprime += common(i, procs) == 1;
        }
        CHECK_EQ(rt->order->nstrides, coprime);
        for (uint32_t s = 0; s < rt->order->nstrides; s++) {
            bool seen[40] = {false};
            for (int i = 0, at = procs / 2; i < procs; i++) {
                CHECK(!seen[at]);
                seen[at] = true;
                at = (at + (int)rt->order->strides[s]) % procs;
            }
        }
        CHECK_EQ(weft_stop(rt, -1), 0);
    }
}
