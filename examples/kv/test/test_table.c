/* test_table.c: one table under a clock of our own. */
#include "check.h"
#include "hash.h"
#include "table.h"
#include <stdlib.h>

static int64_t now;

static int64_t test_clock(void) { return now; }

static const struct hash_secret secret = {3, 4};

static struct table_key key_of(struct bytes name) {
    return (struct table_key){name, hash_key(&secret, name)};
}

static struct table_key key(const char *name) { return key_of(bytes_of(name)); }

static bool put(struct table *t, const char *name, const char *content, int64_t at) {
    struct value *v = value_new(bytes_of(content), 0);
    bool done = table_put(t, key(name), &v, at);
    value_unref(v);
    return done;
}

static bool holds(struct table *t, const char *name, const char *content) {
    struct entry *e = table_find(t, key(name));
    return e != NULL && bytes_equal(value_bytes(e->value), bytes_of(content));
}

static size_t sweep(struct table *t) {
    size_t n = 0;
    struct entry *chain = table_take_garbage(t);
    for (struct entry *e = chain; e != NULL; e = e->hh.next) n++;
    entries_free(chain);
    return n;
}

static void put_find_remove(void) {
    struct table t;
    table_init(&t, test_clock);
    CHECK(table_count(&t) == 0);
    CHECK(table_find(&t, key("a")) == NULL);
    CHECK(put(&t, "a", "1", DUE_NEVER));
    CHECK(put(&t, "b", "2", DUE_NEVER));
    CHECK(holds(&t, "a", "1") && holds(&t, "b", "2"));
    CHECK(put(&t, "a", "one", DUE_NEVER));
    CHECK(holds(&t, "a", "one"));
    CHECK(table_count(&t) == 2);
    table_remove(&t, table_find(&t, key("a")));
    CHECK(table_find(&t, key("a")) == NULL);
    CHECK(table_count(&t) == 1);
    CHECK(sweep(&t) == 1);
    CHECK(table_read(&t, key("b")) != NULL && table_read(&t, key("a")) == NULL);
    CHECK(t.hits == 1 && t.misses == 1);
    table_clear(&t);
    CHECK(table_count(&t) == 0 && sweep(&t) == 1);
    table_clear(&t);
    CHECK(sweep(&t) == 0);
}

/* The value that was there before comes back to the caller, and lives as long as somebody holds it. */
static void old_value(void) {
    struct table t;
    table_init(&t, test_clock);
    put(&t, "k", "old", DUE_NEVER);
    struct value *reader = value_ref(table_find(&t, key("k"))->value);
    struct value *v = value_new(bytes_of("new"), 0);
    CHECK(table_put(&t, key("k"), &v, DUE_NEVER));
    CHECK(v == reader);
    value_unref(v);
    CHECK(bytes_equal(value_bytes(reader), bytes_of("old")));
    value_unref(reader);
    CHECK(holds(&t, "k", "new"));
    table_clear(&t);
    sweep(&t);
}

static void binary_keys(void) {
    struct table t;
    table_init(&t, test_clock);
    static char large[10000];
    memset(large, 'x', sizeof large);
    struct bytes names[] = {LITERAL(""),     LITERAL("\0"),  LITERAL("\0\0"), LITERAL("a\0b"),
                            LITERAL("a\0c"), {large, 10000}, {large, 9999}};
    size_t n = sizeof names / sizeof names[0];
    for (size_t i = 0; i < n; i++) {
        struct value *v = value_new(names[i], 0);
        CHECK(table_put(&t, key_of(names[i]), &v, DUE_NEVER));
    }
    CHECK(table_count(&t) == n);
    for (size_t i = 0; i < n; i++) {
        struct entry *e = table_find(&t, key_of(names[i]));
        CHECK(e != NULL && bytes_equal(entry_key(e), names[i]) &&
              bytes_equal(value_bytes(e->value), names[i]));
    }
    table_clear(&t);
    CHECK(sweep(&t) == n);
}

static void expiry(void) {
    struct table t;
    table_init(&t, test_clock);
    now = 1000;
    put(&t, "stays", "v", DUE_NEVER);
    put(&t, "soon", "v", 1010);
    put(&t, "later", "v", 1020);
    CHECK(due_first(&t.due)->at == 1010);
    now = 1009;
    CHECK(table_find(&t, key("soon")) != NULL);
    now = 1010;
    CHECK(table_find(&t, key("soon")) == NULL); /* though nobody swept */
    CHECK(table_count(&t) == 2);
    CHECK(t.expired == 1);
    put(&t, "later", "v", DUE_NEVER); /* a new value has no end unless it is given one */
    now = 2000;
    CHECK(table_find(&t, key("later")) != NULL);
    CHECK(due_first(&t.due) == NULL);
    CHECK(table_set_due(&t, table_find(&t, key("later")), 2001));
    CHECK(table_expire(&t, 100) == 0);
    now = 2001;
    CHECK(table_expire(&t, 100) == 1);
    CHECK(t.expired == 2 && table_count(&t) == 1);
    table_clear(&t);
    CHECK(sweep(&t) == 3);
}

static void many(void) {
    struct table t;
    char name[16];
    int missing = 0;
    table_init(&t, test_clock);
    now = 0;
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "k%d", i);
        put(&t, name, name, i % 2 ? 100 + i : DUE_NEVER);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "k%d", i);
        missing += !holds(&t, name, name);
    }
    CHECK(missing == 0);
    CHECK(t.due.n == 10000);
    now = 100 + 9999;
    CHECK(table_expire(&t, 3000) == 3000);
    CHECK(table_expire(&t, 3000) == 2000);
    CHECK(table_expire(&t, 3000) == 0);
    now = 1000000;
    CHECK(table_expire(&t, 100000) == 5000);
    CHECK(table_count(&t) == 10000);
    CHECK(sweep(&t) == 10000);
    table_clear(&t);
    CHECK(sweep(&t) == 10000);
}

int main(void) {
    put_find_remove();
    old_value();
    binary_keys();
    expiry();
    many();
    return check_end();
}
