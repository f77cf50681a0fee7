/* test_db.c: the store under many green threads at once. The thread sanitizer's build says most. */
#include "check.h"
#include "db.h"
#include "number.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <weft.h>

#define WORKERS 8
#define ROUNDS 2000

static struct db *db;
static atomic_int wrong;

/* Runs fn(0), fn(1), ... each in a G, and waits for all. */
static void all_at_once(weft_fn fn, int n) {
    weft_waitgroup group = WEFT_WAITGROUP_INIT;
    for (int i = 0; i < n; i++)
        if (weft_waitgroup_go(&group, fn, (void *)(intptr_t)i) < 0) atomic_fetch_add(&wrong, 1);
    weft_waitgroup_wait(&group);
}

static bool value_is(const char *key, const char *want) {
    struct value *v = db_get(db, bytes_of(key));
    bool good = v != NULL && bytes_equal(value_bytes(v), bytes_of(want));
    value_unref(v);
    return good;
}

static int count_up(void *arg) {
    (void)arg;
    int64_t sum;
    for (int i = 0; i < ROUNDS; i++) {
        if (db_add(db, bytes_of("one"), 1, &sum) != DB_OK) atomic_fetch_add(&wrong, 1);
        if (db_add(db, bytes_of("minus two"), -2, &sum) != DB_OK) atomic_fetch_add(&wrong, 1);
    }
    return 0;
}

static void no_increment_is_lost(void) {
    all_at_once(count_up, WORKERS);
    CHECK(value_is("one", "16000"));
    CHECK(value_is("minus two", "-32000"));
}

/* One writes both keys, one reads both: never one old and one new. */
static int pairs(void *arg) {
    char text[NUMBER_TEXT_MAX];
    struct bytes left = bytes_of("left"), right = bytes_of("right");
    for (int i = 0; i < ROUNDS; i++) {
        struct bytes v = {text, number_format(text, (intptr_t)arg * ROUNDS + i)};
        struct bytes set[] = {left, v, right, v};
        struct bytes keys[] = {right, left};
        struct value *got[2];
        if (db_set_many(db, set, 2) != DB_OK || db_get_many(db, keys, 2, got) != DB_OK) {
            atomic_fetch_add(&wrong, 1);
            continue;
        }
        if (!bytes_equal(value_bytes(got[0]), value_bytes(got[1]))) atomic_fetch_add(&wrong, 1);
        value_unref(got[0]);
        value_unref(got[1]);
    }
    return 0;
}

static void many_keys_one_moment(void) {
    all_at_once(pairs, WORKERS);
    CHECK(atomic_load(&wrong) == 0);
}

/* A reader's value stands still, whatever is done to the key meanwhile. */
static int read_and_change(void *arg) {
    struct bytes key = bytes_of("text");
    size_t length;
    for (int i = 0; i < ROUNDS; i++) {
        struct value *v = db_get(db, key);
        if (v != NULL) {
            size_t n = v->n;
            weft_yield();
            for (size_t k = 0; k < n; k++)
                if (v->n != n || v->data[k] != 'x') atomic_fetch_add(&wrong, 1);
            value_unref(v);
        }
        if (i % 50 == (int)(intptr_t)arg)
            db_set(db, key, bytes_of("x"), DB_ALWAYS, DUE_NEVER);
        else
            db_append(db, key, bytes_of("xx"), &length);
    }
    return 0;
}

static void readers_see_no_change(void) {
    all_at_once(read_and_change, WORKERS);
    CHECK(atomic_load(&wrong) == 0);
}

/* Keys of many lengths of life; each is seen while it lives, and none a moment longer. */
static int live_and_end(void *arg) {
    char key[32];
    for (int i = 0; i < ROUNDS; i++) {
        int n = snprintf(key, sizeof key, "%d:%d", (int)(intptr_t)arg, i);
        struct bytes name = {key, (size_t)n};
        int64_t life = 1 + rand() % 30000;
        weft_time before = weft_now();
        if (db_set(db, name, bytes_of("v"), DB_IF_ABSENT, db_now() + life) != DB_OK)
            atomic_fetch_add(&wrong, 1);
        bool there = db_exists(db, &name, 1) == 1;
        int64_t lived = weft_time_sub(weft_now(), before) / 1000;
        if (!there && lived < life) atomic_fetch_add(&wrong, 1);
        if (i % 64 == 0) weft_sleep(WEFT_MILLISECOND);
    }
    return 0;
}

static void keys_end_unread(void) {
    db_clear(db);
    all_at_once(live_and_end, WORKERS);
    CHECK(atomic_load(&wrong) == 0);
    weft_time patience = weft_in(20 * WEFT_SECOND);
    while (db_count(db) > 0 && weft_time_cmp(weft_now(), patience) < 0)
        weft_sleep(WEFT_MILLISECOND);
    struct db_counts c;
    db_counts(db, &c);
    CHECK(c.keys == 0 && c.keys_with_end == 0);
    CHECK(c.expired == WORKERS * ROUNDS);
}

/* An end that is moved: earlier, later, away. */
static void moved_ends(void) {
    struct bytes key = bytes_of("k"), other = bytes_of("other");
    db_set(db, key, key, DB_ALWAYS, db_now() + 3600 * INT64_C(1000000));
    CHECK(db_expire(db, key, db_now() + 5000)); /* the timer must learn of it */
    db_set(db, other, key, DB_ALWAYS, db_now() + 5000);
    CHECK(db_persist(db, other));
    weft_time patience = weft_in(20 * WEFT_SECOND);
    while (db_count(db) > 1 && weft_time_cmp(weft_now(), patience) < 0)
        weft_sleep(WEFT_MILLISECOND);
    CHECK(db_left(db, key) == DB_ABSENT);
    CHECK(db_left(db, other) == DB_NO_END);
    CHECK(db_expire(db, other, db_now() - 1));
    CHECK(db_count(db) == 0);
    CHECK(!db_expire(db, other, DUE_NEVER));
}

static int clear_often(void *arg) {
    char key[32];
    for (int i = 0; i < ROUNDS; i++) {
        struct bytes name = {key, (size_t)snprintf(key, sizeof key, "%d", i % 100)};
        if (arg == NULL && i % 20 == 0)
            db_clear(db);
        else
            db_set(db, name, name, DB_ALWAYS, i % 2 ? db_now() + 1000 : DUE_NEVER);
        struct value *v = db_get(db, name);
        if (v != NULL && !bytes_equal(value_bytes(v), name)) atomic_fetch_add(&wrong, 1);
        value_unref(v);
    }
    return 0;
}

static void clearing_under_use(void) {
    all_at_once(clear_often, WORKERS);
    db_clear(db);
    CHECK(db_count(db) == 0);
    CHECK(atomic_load(&wrong) == 0);
}

static int test_main(void *arg) {
    (void)arg;
    if (!CHECK(db_new(&db) == 0)) return 1;
    no_increment_is_lost();
    many_keys_one_moment();
    readers_see_no_change();
    keys_end_unread();
    moved_ends();
    clearing_under_use();
    db_stop(db);
    return 0;
}

int main(void) {
    weft_config config = weft_config_default();
    config.procs = 4;
    CHECK(weft_run(test_main, NULL, &config, NULL) == 0);
    db_free(db);
    return check_end();
}
