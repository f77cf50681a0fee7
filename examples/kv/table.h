/*
 * table.h: keys, their values and the times at which they end: one part of the store, without a
 * lock or a timer of its own.
 *
 * - A key whose time has come is not there, whether or not somebody has cleared it away yet.
 * - Nothing is freed here: what goes is chained up in `garbage`, so that the caller can drop his
 *   lock first.
 */
#ifndef KV_TABLE_H
#define KV_TABLE_H
#include "bytes.h"
#include "due_heap.h"
#include "value.h"
#include <uthash.h>

struct table_key {
    struct bytes name;
    uint64_t hash; /* the table uses the low half; the high bits may choose the table */
};

struct entry {
    struct due due;
    struct value *value; /* never NULL */
    UT_hash_handle hh;   /* hh.next also chains the garbage */
    char key[];          /* hh.keylen bytes */
};

struct table {
    struct entry *entries; /* uthash's head; NULL when empty */
    struct due_heap due;
    struct entry *garbage;
    int64_t (*clock)(void); /* microseconds; the clock of all `at` here */
    uint64_t hits, misses, expired;
};

void table_init(struct table *t, int64_t (*clock)(void));
size_t table_count(const struct table *t);

struct entry *table_find(struct table *t, struct table_key k); /* NULL: not there */
/* The same, and counts a hit or a miss */
struct entry *table_read(struct table *t, struct table_key k);

/* *v becomes the value of k, to end at `at` (DUE_NEVER: not); *v is then what was there before, or
   NULL. False: no memory, nothing changed. */
bool table_put(struct table *t, struct table_key k, struct value **v, int64_t at);
bool table_set_due(struct table *t, struct entry *e, int64_t at);
void table_remove(struct table *t, struct entry *e);
void table_clear(struct table *t);

/* Removes keys whose time has come, at most `limit`; says how many. */
size_t table_expire(struct table *t, size_t limit);

struct entry *table_take_garbage(struct table *t);
size_t entries_free(struct entry *chain); /* says how many bytes that was, more or less */

static inline struct bytes entry_key(const struct entry *e) {
    return (struct bytes){e->key, e->hh.keylen};
}
#endif
