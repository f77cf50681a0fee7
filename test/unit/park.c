/* unit/park.c: the wait word and its claims by themselves, on Gs that never run; the queue of waiters;
 * and a park that is claimed in every way at once.
 */
#include "world.h"

#include <stdlib.h>

static weft__g *new_g(void) {
    weft__g *g = calloc(1, sizeof *g);
    CHECK(g != NULL);
    return g;
}

static uint64_t state_of(weft__g *g) { return atomic_load(&g->word) & WEFT__STATE; }
static uint64_t gen_of(weft__g *g) { return atomic_load(&g->word) >> WEFT__GEN_SHIFT; }
static uint64_t cause_of(weft__g *g) { return atomic_load(&g->word) >> WEFT__CAUSE_SHIFT & 3; }

/* As the far side of a switch does. */
static void arm(weft__g *g) {
    uint64_t w = atomic_load(&g->word);
    atomic_store(&g->word, (w & ~(uint64_t)WEFT__STATE) | WEFT__ARMED);
}

/* ---- one claim ---- */

TEST(park, a_new_wait_has_a_new_generation) {
    weft__g *g = new_g();
    uint64_t last = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t gen = weft__park_begin(g, i % 2 == 0);
        CHECK_GT(gen, last);
        CHECK_EQ(gen_of(g), gen);
        CHECK_EQ(state_of(g), WEFT__ARMING);
        CHECK_EQ((atomic_load(&g->word) & WEFT__CANCELLABLE) != 0, i % 2 == 0);
        CHECK_EQ(weft__claim(g, gen, WEFT__BY_SOURCE), WEFT__WON);
        last = gen;
    }
    free(g);
}

TEST(park, arming_is_won_without_readying) {
    static const weft__cause causes[] = {WEFT__BY_SOURCE, WEFT__BY_DEADLINE, WEFT__BY_CANCEL,
                                         WEFT__BY_NOMEM};
    weft__g *g = new_g();
    for (size_t i = 0; i < WEFT_COUNT(causes); i++) {
        uint64_t gen = weft__park_begin(g, true);
        CHECK_EQ(weft__claim(g, gen, causes[i]), WEFT__WON);
        CHECK_EQ(state_of(g), WEFT__CLAIMED);
        CHECK_EQ(cause_of(g), causes[i]);
        for (size_t k = 0; k < WEFT_COUNT(causes); k++) { /* once won, it is won */
            CHECK_EQ(weft__claim(g, gen, causes[k]), WEFT__LOST);
        }
        CHECK_EQ(cause_of(g), causes[i]);
        gen = weft__park_begin(g, true);
        arm(g);
        CHECK_EQ(weft__claim(g, gen, causes[i]), WEFT__WON_READY);
        CHECK_EQ(weft__claim(g, gen, WEFT__BY_SOURCE), WEFT__LOST);
        CHECK_EQ(cause_of(g), causes[i]);
    }
    free(g);
}

TEST(park, another_generation_is_lost) {
    weft__g *g = new_g();
    uint64_t old = weft__park_begin(g, true);
    CHECK_EQ(weft__claim(g, old, WEFT__BY_SOURCE), WEFT__WON);
    uint64_t gen = weft__park_begin(g, true);
    CHECK_EQ(weft__claim(g, old, WEFT__BY_DEADLINE), WEFT__LOST);
    CHECK_EQ(weft__claim(g, gen + 1, WEFT__BY_DEADLINE), WEFT__LOST);
    CHECK_EQ(state_of(g), WEFT__ARMING);
    arm(g);
    CHECK_EQ(weft__claim(g, old, WEFT__BY_DEADLINE), WEFT__LOST);
    CHECK_EQ(state_of(g), WEFT__ARMED);
    CHECK_EQ(weft__claim(g, gen, WEFT__BY_SOURCE), WEFT__WON_READY);
    free(g);
}

/* A stop takes what may be cancelled, and only while it waits. */
TEST(park, cancel) {
    weft__g *g = new_g();
    CHECK(!weft__cancel_claim(g)); /* running */
    weft__park_begin(g, false);
    CHECK(!weft__cancel_claim(g));
    arm(g);
    CHECK(!weft__cancel_claim(g)); /* not cancellable */
    CHECK_EQ(state_of(g), WEFT__ARMED);
    weft__park_begin(g, true);
    CHECK(!weft__cancel_claim(g)); /* claimed, but it is still on its stack: not to be readied */
    CHECK_EQ(state_of(g), WEFT__CLAIMED);
    CHECK_EQ(cause_of(g), WEFT__BY_CANCEL);
    CHECK(!weft__cancel_claim(g));
    weft__park_begin(g, true);
    arm(g);
    CHECK(weft__cancel_claim(g));
    CHECK_EQ(cause_of(g), WEFT__BY_CANCEL);
    CHECK(!weft__cancel_claim(g)); /* once */
    free(g);
}

/* The held form: a waker under the source's lock, and a stop. */
static void hold(weft__g *g, bool cancellable) {
    uint64_t gen = gen_of(g) + 1;
    atomic_store(&g->taken, 0);
    atomic_store(&g->word, gen << WEFT__GEN_SHIFT | WEFT__HELD | WEFT__ARMED |
                               (cancellable ? WEFT__CANCELLABLE : 0));
}

TEST(park, held_by_a_waker_or_a_stop) {
    weft__g *g = new_g();
    weft__waiter w;
    hold(g, true);
    weft__waiter_init(&w, g, 0, NULL);
    CHECK_EQ(weft__waiter_claim(&w), WEFT__WON_READY);
    CHECK(!weft__cancel_claim(g)); /* taken */
    hold(g, false);
    CHECK(!weft__cancel_claim(g));
    CHECK_EQ(weft__waiter_claim(&w), WEFT__WON_READY);
    hold(g, true);
    atomic_store(&g->cancel, 1); /* a stop is about: the word decides */
    CHECK(weft__cancel_claim(g));
    CHECK_EQ(weft__waiter_claim(&w), WEFT__LOST);
    hold(g, true);
    CHECK_EQ(weft__waiter_claim(&w), WEFT__WON_READY);
    CHECK(!weft__cancel_claim(g));
    free(g);
}

/* ---- the queue ---- */

static void queue_is(weft__waitq *q, weft__waiter *w, const char *names) {
    weft__waiter *at = q->head, *before = NULL;
    for (; *names; names++) {
        CHECK(at == &w[*names - 'a']);
        CHECK(at->prev == before);
        CHECK(at->linked);
        before = at;
        at = at->next;
    }
    CHECK(at == NULL);
    CHECK(q->tail == before);
}

TEST(park, queue) {
    weft__g *g = new_g();
    weft__waitq q = {NULL, NULL};
    weft__waiter w[5];
    for (int i = 0; i < 5; i++) {
        weft__waiter_init(&w[i], g, 7, NULL);
        CHECK(!w[i].linked);
    }
    queue_is(&q, w, "");
    weft__waitq_push(&q, &w[0]);
    queue_is(&q, w, "a");
    weft__waitq_push(&q, &w[1]);
    weft__waitq_push_front(&q, &w[2]);
    weft__waitq_push(&q, &w[3]);
    queue_is(&q, w, "cabd");
    weft__waitq_unlink(&q, &w[0]);
    CHECK(!w[0].linked);
    queue_is(&q, w, "cbd");
    weft__waitq_unlink(&q, &w[3]);
    weft__waitq_unlink(&q, &w[2]);
    queue_is(&q, w, "b");
    weft__waitq_unlink(&q, &w[1]);
    queue_is(&q, w, "");
    weft__waitq_push_front(&q, &w[4]);
    queue_is(&q, w, "e");
    free(g);
}

/* The first that can be claimed is; those lost to something else stay where they are. */
TEST(park, queue_claims) {
    weft__g *g[4];
    weft__waiter w[4];
    weft__waitq q = {NULL, NULL};
    weft__won won;
    for (int i = 0; i < 4; i++) {
        g[i] = new_g();
        weft__waiter_init(&w[i], g[i], weft__park_begin(g[i], true), NULL);
        weft__waitq_push(&q, &w[i]);
    }
    CHECK_EQ(weft__claim(g[0], w[0].gen, WEFT__BY_DEADLINE), WEFT__WON);
    arm(g[1]);
    CHECK(weft__waitq_claim(&q, &won) == &w[1]);
    CHECK_EQ(won, WEFT__WON_READY);
    queue_is(&q, w, "acd");
    CHECK_EQ(weft__claim(g[2], w[2].gen, WEFT__BY_CANCEL), WEFT__WON);
    weft__waiter *chain = weft__waitq_claim_all(&q);
    CHECK(chain == &w[3]);
    CHECK(chain->next == NULL);
    CHECK_EQ(chain->result, WEFT__WON);
    queue_is(&q, w, "ac");
    CHECK(weft__waitq_claim(&q, &won) == NULL);
    CHECK(weft__waitq_claim_all(&q) == NULL);
    queue_is(&q, w, "ac");
    for (int i = 0; i < 4; i++) {
        free(g[i]);
    }
}

/* ---- many claimers, one wait ---- */

enum { CLAIMERS = 3 };

static struct {
    weft__g *g;
    _Atomic uint64_t round; /* the generation to claim */
    atomic_int won, tried;
    atomic_bool over;
} race;

static void *claim_on(void *arg) {
    weft__cause cause = (weft__cause)(intptr_t)arg;
    uint64_t seen = 0;
    while (!atomic_load(&race.over)) {
        uint64_t gen = atomic_load(&race.round);
        if (gen == seen) {
            weft_yield();
            continue;
        }
        seen = gen;
        if (weft__claim(race.g, gen, cause) != WEFT__LOST) {
            atomic_fetch_add(&race.won, 1 + ((int)cause << 8));
        }
        atomic_fetch_add(&race.tried, 1);
    }
    return NULL;
}

TEST(park, one_claimer_wins) {
    pthread_t t[CLAIMERS];
    race.g = new_g();
    for (intptr_t i = 0; i < CLAIMERS; i++) {
        CHECK_EQ(pthread_create(&t[i], NULL, claim_on, (void *)i), 0);
    }
    for (int i = 0; i < rounds(3000); i++) {
        atomic_store(&race.won, 0);
        atomic_store(&race.tried, 0);
        uint64_t gen = weft__park_begin(race.g, true);
        if (i % 2) {
            arm(race.g);
        }
        atomic_store(&race.round, gen);
        while (atomic_load(&race.tried) < CLAIMERS) {
            weft_yield();
        }
        CHECK_EQ(atomic_load(&race.won) & 0xff, 1);
        CHECK_EQ(atomic_load(&race.won) >> 8, cause_of(race.g));
    }
    atomic_store(&race.over, true);
    for (int i = 0; i < CLAIMERS; i++) {
        pthread_join(t[i], NULL);
    }
    free(race.g);
}

/* ---- a wait that ends in three ways at once: one result, and the source agrees with it ---- */

struct contest {
    weft_chan *chan;
    weft_time until;
    int value;
};

static int send_value(void *arg) {
    struct contest *c = arg;
    return weft_chan_try_send(c->chan, &c->value);
}

PLAYED(park, value_and_deadline) {
    int got = 0, late = 0;
    for (int i = 0; i < rounds(300); i++) {
        struct contest c = {.value = i};
        party p;
        int v = -1;
        CHECK_EQ(weft_chan_new(&c.chan, sizeof(int), 0), 0);
        party_start(&p, send_value, &c);
        int err = weft_chan_recv_until(c.chan, &v, weft_in(i % 100 * WEFT_MICROSECOND));
        int sent = party_end(&p);
        if (err == 0) {
            CHECK_EQ(sent, 0);
            CHECK_EQ(v, i);
            got++;
        } else {
            CHECK_EQ(err, -ETIMEDOUT);
            CHECK_EQ(sent, -EAGAIN);
            CHECK_EQ(v, -1);
            late++;
        }
        weft_chan_unref(c.chan);
    }
    CHECK_EQ(got + late, rounds(300));
}
