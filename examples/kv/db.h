/*
 * db.h: the store that the commands see: keys spread over many tables, a weft mutex each, and a
 * weft timer each that clears away what has expired though nobody asks for it.
 *
 * Each call is atomic, also one with many keys, as a client of Redis expects: it takes the locks of
 * all the tables it needs, in the order of their numbers. (Only db_keys and db_count look at one
 * table after the other.) No call waits for a client. The calls may park: on a mutex, and for
 * nothing else.
 */
#ifndef KV_DB_H
#define KV_DB_H
#include "bytes.h"
#include "due_heap.h"
#include "value.h"

struct db;

enum db_result {
    DB_OK = 0,
    DB_NOT_MET = -1, /* the key is there, or is not, against the rule */
    DB_NO_MEMORY = -2,
    DB_NOT_NUMBER = -3,
    DB_OVERFLOW = -4,
    DB_TOO_LONG = -5
};

enum db_rule { DB_ALWAYS, DB_IF_ABSENT, DB_IF_PRESENT };

/* A G makes it: the timers belong to its runtime. 0, or a negative error. */
int db_new(struct db **out);
void db_stop(struct db *db); /* timers end; from a G */
void db_free(struct db *db); /* when no G is left; NULL is fine */

/* Microseconds of the runtime's clock, rounded up: a time counted from it is never early. */
int64_t db_now(void);

/* A reference of the caller's own; NULL: not there */
struct value *db_get(struct db *db, struct bytes key);
int db_get_many(struct db *db, const struct bytes *keys, size_t n, struct value **out);
int db_set(struct db *db, struct bytes key, struct bytes content, enum db_rule rule, int64_t at);
/* Key, value, key, value, ... */
int db_set_many(struct db *db, const struct bytes *pairs, size_t n);
int db_add(struct db *db, struct bytes key, int64_t by, int64_t *sum);
int db_append(struct db *db, struct bytes key, struct bytes tail, size_t *length);
size_t db_length(struct db *db, struct bytes key);

/* How many of them were there; a key that is named twice is looked at twice. Negative:
   DB_NO_MEMORY. */
int64_t db_remove(struct db *db, const struct bytes *keys, size_t n);
int64_t db_exists(struct db *db, const struct bytes *keys, size_t n);

#define DB_ABSENT (-2)
#define DB_NO_END (-1)
/* Microseconds that it still has, or one of the two above */
int64_t db_left(struct db *db, struct bytes key);
/* DUE_NEVER: it stays. False: not there */
bool db_expire(struct db *db, struct bytes key, int64_t at);
bool db_persist(struct db *db, struct bytes key); /* false: not there, or it had no end */

size_t db_count(struct db *db);
void db_clear(struct db *db);

struct db_keys { /* each: its length as a size_t, then its bytes */
    char *data;
    size_t n, room, count;
};
/* The caller frees out->data */
int db_keys(struct db *db, struct bytes pattern, struct db_keys *out);

struct db_counts {
    size_t keys, keys_with_end;
    uint64_t hits, misses, expired;
};
void db_counts(struct db *db, struct db_counts *out);
#endif
