/* unit/local.c: data local to a green thread, or to a plain one. */
#include "world.h"

#include <stdlib.h>

/* ---- get and set ---- */

static weft_local first = WEFT_LOCAL_INIT(NULL), second = WEFT_LOCAL_INIT(NULL);
static int here, there;

static int has_its_own(void *arg) {
    (void)arg;
    CHECK(weft_local_get(&first) == NULL);
    CHECK_EQ(weft_local_set(&first, &there), 0);
    for (int i = 0; i < 20; i++) {
        CHECK(weft_local_get(&first) == &there);
        CHECK(weft_local_get(&second) == NULL);
        weft_yield();
        nap();
    }
    return 0;
}

PLAYED(local, each_has_its_own) {
    party p[4];
    CHECK(weft_local_get(&first) == NULL);
    CHECK_EQ(weft_local_set(&first, &here), 0);
    CHECK_EQ(weft_local_set(&second, &there), 0);
    for (size_t i = 0; i < WEFT_COUNT(p); i++) {
        party_start(&p[i], has_its_own, NULL);
    }
    for (size_t i = 0; i < WEFT_COUNT(p); i++) {
        party_end(&p[i]);
    }
    CHECK(weft_local_get(&first) == &here);
    CHECK(weft_local_get(&second) == &there);
    CHECK_EQ(weft_local_set(&first, &there), 0);
    CHECK(weft_local_get(&first) == &there);
    CHECK_EQ(weft_local_set(&first, NULL), 0);
    CHECK(weft_local_get(&first) == NULL);
    CHECK(weft_local_get(&second) == &there);
    CHECK_EQ(weft_local_set(&second, NULL), 0);
}

/* What the G before had on the same memory is not seen. */
static int sets_one(void *arg) {
    CHECK(weft_local_get(&first) == NULL);
    CHECK_EQ(weft_local_set(&first, arg), 0);
    return 0;
}

PLAYED_GREEN(local, nothing_is_left_for_the_next) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(weft_waitgroup_go(&wg, sets_one, &here), 0);
        weft_waitgroup_wait(&wg);
    }
}

/* ---- more keys than anybody needs ---- */

enum { KEYS = 5000 };
static weft_local many[KEYS];
static atomic_int destroyed;

static void count(void *value) {
    (void)value;
    atomic_fetch_add(&destroyed, 1);
}

static int uses_all(void *arg) {
    int seed = (int)(intptr_t)arg;
    for (int i = 0; i < KEYS; i++) {
        int k = (int)(((int64_t)i * 4999 + seed) % KEYS);
        CHECK(weft_local_get(&many[k]) == NULL);
        CHECK_EQ(weft_local_set(&many[k], &many[(k + seed) % KEYS]), 0);
    }
    weft_yield();
    for (int k = 0; k < KEYS; k++) {
        CHECK(weft_local_get(&many[k]) == &many[(k + seed) % KEYS]);
    }
    return 0;
}

/* 4 at a time give the keys their slots. */
PLAYED(local, slots_never_run_out) {
    party p[4];
    for (int i = 0; i < KEYS; i++) {
        many[i] = (weft_local)WEFT_LOCAL_INIT(count);
    }
    atomic_store(&destroyed, 0);
    for (int i = 0; i < 4; i++) {
        party_start(&p[i], uses_all, (void *)(intptr_t)(i + 1));
    }
    for (int i = 0; i < 4; i++) {
        party_end(&p[i]);
    }
    UNTIL(atomic_load(&destroyed) == 4 * KEYS);
}

/* A key that comes to lie where another was is another key: both by unloading a library. */
PLAYED(local, memory_of_a_key_used_again) {
    weft_local key = WEFT_LOCAL_INIT(NULL);
    CHECK_EQ(weft_local_set(&key, &here), 0);
    key = (weft_local)WEFT_LOCAL_INIT(NULL);
    CHECK(weft_local_get(&key) == NULL);
    CHECK_EQ(weft_local_set(&key, &there), 0);
    CHECK(weft_local_get(&key) == &there);
}

/* ---- destructors ---- */

static struct { atomic_int deferred, locals, wrong; } order;

static void local_goes(void *value) {
    (void)value;
    if (atomic_load(&order.deferred) != atomic_load(&order.locals) + 1) {
        atomic_fetch_add(&order.wrong, 1);
    }
    atomic_fetch_add(&order.locals, 1);
}

static void deferred_call(void *arg) {
    weft_local *key = arg;
    CHECK(weft_local_get(key) == &here); /* it is still there */
    atomic_fetch_add(&order.deferred, 1);
}

static weft_local counted = WEFT_LOCAL_INIT(local_goes);

static int ends_some_way(void *arg) {
    weft_deferred d;
    CHECK_EQ(weft_local_set(&counted, &there), 0);
    CHECK_EQ(weft_local_set(&counted, &here), 0); /* the value before it is nobody's */
    weft_defer(&d, deferred_call, &counted);
    if (arg != NULL) {
        weft_exit(0);
    }
    return 0;
}

PLAYED_GREEN(local, destroyed_after_deferred_calls) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    memset(&order, 0, sizeof order);
    for (int i = 1; i <= 50; i++) {
        CHECK_EQ(weft_waitgroup_go(&wg, ends_some_way, i % 2 ? &here : NULL), 0);
        weft_waitgroup_wait(&wg);
        UNTIL(atomic_load(&order.locals) == i);
    }
    CHECK_EQ(atomic_load(&order.wrong), 0);
}

/* On a plain thread: when it ends. */
static void *plain_sets(void *arg) {
    CHECK_EQ(weft_local_set(&many[0], arg), 0);
    CHECK_EQ(atomic_load(&destroyed), 0);
    return arg;
}

TEST(local, of_a_plain_thread_goes_with_it) {
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        many[0] = (weft_local)WEFT_LOCAL_INIT(count);
        atomic_store(&destroyed, 0);
        CHECK_EQ(pthread_create(&t, NULL, plain_sets, &here), 0);
        pthread_join(t, NULL);
        CHECK_EQ(atomic_load(&destroyed), 1);
        CHECK(weft_local_get(&many[0]) == NULL);
    }
}

/* ---- destructors that use locals ---- */

static struct {
    atomic_int calls;
    atomic_int done;
} again;
static weft_local sets_itself_again, sets_another, parks_first;

static void set_it_again(void *value) {
    CHECK(weft_local_get(&sets_itself_again) == NULL);
    atomic_fetch_add(&again.calls, 1);
    CHECK_EQ(weft_local_set(&sets_itself_again, value), 0);
}
static weft_local sets_itself_again = WEFT_LOCAL_INIT(set_it_again);

/* The table grows under the walk. */
static void set_another(void *value) {
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(weft_local_set(&many[i], value), 0);
    }
}
static weft_local sets_another = WEFT_LOCAL_INIT(set_another);

static void park_first(void *value) {
    (void)value;
    if (weft_current() != NULL) {
        CHECK_EQ(atomic_load(&weft__m_self()->incall), 0);
    }
    for (int i = 0; i < 5; i++) {
        weft_yield();
        CHECK_EQ(weft_sleep(20 * WEFT_MICROSECOND), 0);
    }
    atomic_fetch_add(&again.done, 1);
}
static weft_local parks_first = WEFT_LOCAL_INIT(park_first);

static int uses_in_destructors(void *arg) {
    CHECK_EQ(weft_local_set(&sets_itself_again, arg), 0);
    CHECK_EQ(weft_local_set(&sets_another, arg), 0);
    CHECK_EQ(weft_local_set(&parks_first, arg), 0);
    return 0;
}

PLAYED(local, destructors_may_set_and_park) {
    party p;
    for (int i = 0; i < 100; i++) {
        many[i] = (weft_local)WEFT_LOCAL_INIT(count);
    }
    for (int i = 0; i < 10; i++) {
        memset(&again, 0, sizeof again);
        atomic_store(&destroyed, 0);
        party_start(&p, uses_in_destructors, &here);
        party_end(&p);
        UNTIL(atomic_load(&destroyed) == 100);
        UNTIL(atomic_load(&again.done) == 1);
        UNTIL(atomic_load(&again.calls) == WEFT_LOCAL_ROUNDS);
    }
    CHECK_EQ(atomic_load(&again.calls), WEFT_LOCAL_ROUNDS);
}

/* A chain of keys each of which sets the next: as many links as there are rounds. */
static weft_local chain[WEFT_LOCAL_ROUNDS + 2];

static void set_next(void *value) {
    weft_local *key = value;
    atomic_fetch_add(&again.calls, 1);
    if (key + 1 < chain + WEFT_COUNT(chain)) {
        CHECK_EQ(weft_local_set(key + 1, key + 1), 0);
    }
}

static int starts_the_chain(void *arg) {
    CHECK_EQ(weft_local_set(arg, arg), 0);
    return 0;
}

TEST(local, four_rounds) {
    pthread_t t;
    memset(&again, 0, sizeof again);
    for (size_t i = 0; i < WEFT_COUNT(chain); i++) {
        chain[i] = (weft_local)WEFT_LOCAL_INIT(set_next);
    }
    int status;
    weft_config c = config_of(2);
    CHECK_EQ(weft_run(starts_the_chain, &chain[0], &c, &status), 0);
    CHECK_EQ(atomic_load(&again.calls), WEFT_LOCAL_ROUNDS);
    CHECK_EQ(
        pthread_create(&t, NULL, (void *(*)(void *))(void (*)(void))starts_the_chain, &chain[0]),
        0);
    pthread_join(t, NULL);
    CHECK_EQ(atomic_load(&again.calls), 2 * WEFT_LOCAL_ROUNDS);
}

/* A destructor that ends the G: the others' turn comes all the same. */
static void exits(void *value) {
    atomic_fetch_add(&again.calls, 1);
    CHECK_EQ(weft_local_set(value, value), 0);
    weft_exit(3);
}
static weft_local ends_the_g[3];

static int exits_in_destructors(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_local_set(&ends_the_g[i], &ends_the_g[i]), 0);
    }
    return 0;
}

TEST(local, exit_in_a_destructor) {
    memset(&again, 0, sizeof again);
    for (int i = 0; i < 3; i++) {
        ends_the_g[i] = (weft_local)WEFT_LOCAL_INIT(exits);
    }
    weft_config c = config_of(2);
    int status = 0;
    CHECK_EQ(weft_run(exits_in_destructors, NULL, &c, &status), 0);
    CHECK_EQ(status, 3);
    CHECK_EQ(atomic_load(&again.calls), WEFT_LOCAL_ROUNDS);
}

/* ---- after a migration too ---- */

static weft_local mine = WEFT_LOCAL_INIT(free);

static int keeps_its_value(void *arg) {
    (void)arg;
    weft_id *p = malloc(sizeof *p);
    CHECK(p != NULL);
    *p = weft_self();
    CHECK_EQ(weft_local_set(&mine, p), 0);
    for (int i = 0; i < 50; i++) {
        weft_yield();
        if (i % 10 == 0) {
            CHECK_EQ(weft_sleep(20 * WEFT_MICROSECOND), 0);
        }
        CHECK_EQ(*(weft_id *)weft_local_get(&mine), weft_self());
    }
    return 0;
}

PLAYED_GREEN(local, stays_with_the_green_thread) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < rounds(1000); i++) {
        CHECK_EQ(weft_waitgroup_go(&wg, keeps_its_value, NULL), 0);
    }
    weft_waitgroup_wait(&wg);
}
