/*
 * db.c: 64 tables.
 *
 * Which table: the six highest bits of the key's hash (the table itself uses the low ones).
 * Sixty-four, because two threads that work on different keys then meet in one case of sixty-four,
 * and a whole-store command still takes few locks.
 *
 * Expiry: one function timer a table, armed for the first key that ends, under the table's lock:
 *   - `armed` is the time it is armed for. It is never later than the end of any key in the table,
 *     except while the timer's function is on its way, which looks at the table under the lock and arms
 *     anew, and except for `rest`: a table is swept at most once a millisecond, or else thousands of
 *     keys that end one after the other would start a green thread each.
 *   - a call that gives a key an earlier end arms the timer for that, before it unlocks.
 *   - a key that goes, or gets a later end, leaves the timer as it is: it fires once for nothing, and
 *     is armed anew.
 * A key that has ended and is not swept yet is not seen by anybody but DBSIZE.
 */
#include "db.h"
#include "glob.h"
#include "hash.h"
#include "number.h"
#include "table.h"
#include "trim.h"
#include <stdlib.h>
#include <sys/random.h>
#include <weft.h>

#define SHARD_BITS 6
#define SHARDS (1 << SHARD_BITS)
#define EXPIRE_BATCH 256 /* keys cleared away in one hold of the lock */
#define REST 1000        /* microseconds between two rounds of that */
#define FEW 16           /* so many keys need no memory for their hashes */

struct shard {
    _Alignas(128) weft_mutex lock; /* the rest is under it */
    struct table table;
    weft_timer *timer;
    int64_t armed; /* microseconds; DUE_NEVER: it is not */
    int64_t rest;  /* microseconds: not before */
};

struct db {
    struct shard shards[SHARDS];
    struct hash_secret secret;
};

/* Rounded down: something is over only once its time has wholly come. */
static int64_t clock_us(void) { return weft_now().ns / 1000; }

int64_t db_now(void) { return weft_now().ns / 1000 + 1; }

static struct table_key locate(const struct db *db, struct bytes name) {
    return (struct table_key){name, hash_key(&db->secret, name)};
}

static unsigned shard_index(uint64_t hash) { return (unsigned)(hash >> (64 - SHARD_BITS)); }

/* Lock and unlock. */

static struct shard *lock_shard(struct db *db, unsigned i) {
    struct shard *s = &db->shards[i];

    weft_mutex_lock(&s->lock);
    return s;
}

static struct shard *lock_key(struct db *db, struct table_key k) {
    return lock_shard(db, shard_index(k.hash));
}

static weft_time time_of(int64_t us) {
    return us > INT64_MAX / 1000 ? WEFT_NEVER : weft_time_at(us * 1000);
}

static void arm(struct shard *s) {
    const struct due *first = due_first(&s->table.due);

    if (first == NULL || s->timer == NULL) return;
    int64_t at = first->at > s->rest ? first->at : s->rest;
    if (at >= s->armed) return;
    s->armed = at;
    weft_timer_reset_at(s->timer, time_of(at));
}

static void unlock_shard(struct shard *s) {
    arm(s);
    struct entry *garbage = table_take_garbage(&s->table);
    weft_mutex_unlock(&s->lock);
    if (garbage != NULL) trim_after(entries_free(garbage));
}

/* Many keys, one moment. */

struct many {
    uint64_t set; /* bit i: shard i is ours */
    uint64_t *hashes;
    uint64_t few[FEW];
};

static void lock_set(struct db *db, uint64_t set) {
    for (unsigned i = 0; i < SHARDS; i++)
        if (set >> i & 1) lock_shard(db, i);
}

static void unlock_set(struct db *db, uint64_t set) {
    for (unsigned i = 0; i < SHARDS; i++)
        if (set >> i & 1) unlock_shard(&db->shards[i]);
}

static bool lock_many(struct db *db, struct many *m, const struct bytes *keys, size_t n,
                      size_t step) {
    m->set = 0;
    m->hashes = n <= FEW ? m->few : malloc(n * sizeof *m->hashes);
    if (m->hashes == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        m->hashes[i] = hash_key(&db->secret, keys[i * step]);
        m->set |= UINT64_C(1) << shard_index(m->hashes[i]);
    }
    lock_set(db, m->set);
    return true;
}

static void unlock_many(struct db *db, struct many *m) {
    unlock_set(db, m->set);
    if (m->hashes != m->few) free(m->hashes);
}

static struct table *table_of(struct db *db, uint64_t hash) {
    return &db->shards[shard_index(hash)].table;
}

/* Expiry. */

static int expire_shard(void *arg) {
    struct shard *s = arg;
    bool more = true;

    while (more) {
        weft_mutex_lock(&s->lock);
        more = table_expire(&s->table, EXPIRE_BATCH) == EXPIRE_BATCH;
        s->armed = more ? INT64_MIN : DUE_NEVER; /* nobody else arms while we go on */
        s->rest = clock_us() + REST;
        unlock_shard(s);
    }
    return 0;
}

/* Start and end. */

int db_new(struct db **out) {
    struct db *db = aligned_alloc(_Alignof(struct db), sizeof *db);

    if (db == NULL) return -ENOMEM;
    memset(db, 0, sizeof *db);
    if (getrandom(&db->secret, sizeof db->secret, 0) != (ssize_t)sizeof db->secret) {
        free(db);
        return -EIO;
    }
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = &db->shards[i];
        table_init(&s->table, clock_us);
        s->armed = DUE_NEVER;
        int err = weft_after_func(&s->timer, WEFT_FOREVER, expire_shard, s, NULL);
        if (err < 0) {
            db_stop(db);
            free(db);
            return err;
        }
    }
    *out = db;
    return 0;
}

void db_stop(struct db *db) {
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = &db->shards[i];
        weft_mutex_lock(&s->lock);
        weft_timer_free(s->timer);
        s->timer = NULL;
        weft_mutex_unlock(&s->lock);
    }
}

void db_free(struct db *db) {
    if (db == NULL) return;
    for (unsigned i = 0; i < SHARDS; i++) {
        struct table *t = &db->shards[i].table;
        table_clear(t);
        entries_free(table_take_garbage(t));
    }
    free(db);
}

/* Strings. */

struct value *db_get(struct db *db, struct bytes key) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    struct entry *e = table_read(&s->table, k);
    struct value *v = e != NULL ? value_ref(e->value) : NULL;

    unlock_shard(s);
    return v;
}

int db_get_many(struct db *db, const struct bytes *keys, size_t n, struct value **out) {
    struct many m;

    if (!lock_many(db, &m, keys, n, 1)) return DB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        struct table_key k = {keys[i], m.hashes[i]};
        struct entry *e = table_read(table_of(db, k.hash), k);
        out[i] = e != NULL ? value_ref(e->value) : NULL;
    }
    unlock_many(db, &m);
    return DB_OK;
}

static bool rule_met(struct table *t, struct table_key k, enum db_rule rule) {
    return rule == DB_ALWAYS || (table_find(t, k) != NULL) == (rule == DB_IF_PRESENT);
}

int db_set(struct db *db, struct bytes key, struct bytes content, enum db_rule rule, int64_t at) {
    struct value *v = value_new(content, 0);
    if (v == NULL) return DB_NO_MEMORY;

    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    int result = DB_OK;
    if (!rule_met(&s->table, k, rule))
        result = DB_NOT_MET;
    else if (!table_put(&s->table, k, &v, at))
        result = DB_NO_MEMORY;
    unlock_shard(s);
    value_unref(v); /* what was there before, or the new one that was not wanted */
    return result;
}

static void unref_all(struct value **values, size_t n) {
    for (size_t i = 0; i < n; i++) value_unref(values[i]);
}

static bool make_all(struct value **values, const struct bytes *pairs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        values[i] = value_new(pairs[2 * i + 1], 0);
        if (values[i] == NULL) {
            unref_all(values, i);
            return false;
        }
    }
    return true;
}

int db_set_many(struct db *db, const struct bytes *pairs, size_t n) {
    struct value *few[FEW];
    struct value **values = n <= FEW ? few : malloc(n * sizeof *values);
    struct many m;
    int result = DB_NO_MEMORY;

    if (values == NULL) return DB_NO_MEMORY;
    if (make_all(values, pairs, n)) {
        if (lock_many(db, &m, pairs, n, 2)) {
            result = DB_OK;
            for (size_t i = 0; i < n; i++) {
                struct table_key k = {pairs[2 * i], m.hashes[i]};
                if (!table_put(table_of(db, k.hash), k, &values[i], DUE_NEVER))
                    result = DB_NO_MEMORY;
            }
            unlock_many(db, &m);
        }
        unref_all(values, n);
    }
    if (values != few) free(values);
    return result;
}

/* Writes `sum` over the old digits if nobody else holds them. */
static bool store_number(struct value **v, int64_t sum) {
    char text[NUMBER_TEXT_MAX];
    struct bytes digits = {text, number_format(text, sum)};

    if (value_overwrite(*v, digits)) return true;
    struct value *fresh = value_new(digits, NUMBER_TEXT_MAX);
    if (fresh == NULL) return false;
    value_unref(*v);
    *v = fresh;
    return true;
}

static int add_to(struct table *t, struct table_key k, int64_t by, int64_t *sum) {
    struct entry *e = table_find(t, k);
    int64_t old = 0;

    if (e != NULL && !number_parse(value_bytes(e->value), &old)) return DB_NOT_NUMBER;
    if (__builtin_add_overflow(old, by, sum)) return DB_OVERFLOW;
    if (e != NULL) return store_number(&e->value, *sum) ? DB_OK : DB_NO_MEMORY;

    char text[NUMBER_TEXT_MAX];
    struct value *v = value_new((struct bytes){text, number_format(text, *sum)}, NUMBER_TEXT_MAX);
    if (v == NULL) return DB_NO_MEMORY;
    if (table_put(t, k, &v, DUE_NEVER)) return DB_OK;
    value_unref(v);
    return DB_NO_MEMORY;
}

int db_add(struct db *db, struct bytes key, int64_t by, int64_t *sum) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    int result = add_to(&s->table, k, by, sum);

    unlock_shard(s);
    return result;
}

static int append_to(struct table *t, struct table_key k, struct bytes tail, size_t *length) {
    struct entry *e = table_find(t, k);

    if (e != NULL) {
        if (tail.n > VALUE_MAX - e->value->n) return DB_TOO_LONG;
        if (!value_append(&e->value, tail)) return DB_NO_MEMORY;
        *length = e->value->n;
        return DB_OK;
    }
    struct value *v = value_new(tail, 0);
    if (v == NULL) return DB_NO_MEMORY;
    *length = v->n;
    if (table_put(t, k, &v, DUE_NEVER)) return DB_OK;
    value_unref(v);
    return DB_NO_MEMORY;
}

int db_append(struct db *db, struct bytes key, struct bytes tail, size_t *length) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    int result = append_to(&s->table, k, tail, length);

    unlock_shard(s);
    return result;
}

size_t db_length(struct db *db, struct bytes key) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    struct entry *e = table_read(&s->table, k);
    size_t n = e != NULL ? e->value->n : 0;

    unlock_shard(s);
    return n;
}

/* Keys. */

int64_t db_remove(struct db *db, const struct bytes *keys, size_t n) {
    struct many m;
    int64_t found = 0;

    if (!lock_many(db, &m, keys, n, 1)) return DB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        struct table_key k = {keys[i], m.hashes[i]};
        struct table *t = table_of(db, k.hash);
        struct entry *e = table_find(t, k);
        if (e == NULL) continue;
        table_remove(t, e);
        found++;
    }
    unlock_many(db, &m);
    return found;
}

int64_t db_exists(struct db *db, const struct bytes *keys, size_t n) {
    struct many m;
    int64_t found = 0;

    if (!lock_many(db, &m, keys, n, 1)) return DB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        struct table_key k = {keys[i], m.hashes[i]};
        if (table_read(table_of(db, k.hash), k) != NULL) found++;
    }
    unlock_many(db, &m);
    return found;
}

int64_t db_left(struct db *db, struct bytes key) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    struct entry *e = table_read(&s->table, k);
    int64_t left = DB_ABSENT;

    if (e != NULL && e->due.at == DUE_NEVER) {
        left = DB_NO_END;
    } else if (e != NULL) {
        left = e->due.at - db_now();
        if (left < 0) left = 0;
    }
    unlock_shard(s);
    return left;
}

bool db_expire(struct db *db, struct bytes key, int64_t at) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    struct entry *e = table_find(&s->table, k);
    bool done = e != NULL && table_set_due(&s->table, e, at);

    if (done) table_find(&s->table, k); /* a time that is past takes the key away at once */
    unlock_shard(s);
    return done;
}

bool db_persist(struct db *db, struct bytes key) {
    struct table_key k = locate(db, key);
    struct shard *s = lock_key(db, k);
    struct entry *e = table_find(&s->table, k);
    bool had_end = e != NULL && e->due.at != DUE_NEVER;

    if (had_end) table_set_due(&s->table, e, DUE_NEVER);
    unlock_shard(s);
    return had_end;
}

/* The whole. */

size_t db_count(struct db *db) {
    struct db_counts c;

    db_counts(db, &c);
    return c.keys;
}

void db_counts(struct db *db, struct db_counts *out) {
    *out = (struct db_counts){0};
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = lock_shard(db, i);
        out->keys += table_count(&s->table);
        out->keys_with_end += s->table.due.n;
        out->hits += s->table.hits;
        out->misses += s->table.misses;
        out->expired += s->table.expired;
        unlock_shard(s);
    }
}

void db_clear(struct db *db) {
    lock_set(db, ~UINT64_C(0));
    for (unsigned i = 0; i < SHARDS; i++) table_clear(&db->shards[i].table);
    unlock_set(db, ~UINT64_C(0));
}

static bool note_key(struct db_keys *out, struct bytes key) {
    size_t need = sizeof key.n + key.n;

    if (out->room - out->n < need) {
        size_t room = (out->n + need) * 2;
        char *data = realloc(out->data, room);
        if (data == NULL) return false;
        out->data = data;
        out->room = room;
    }
    memcpy(out->data + out->n, &key.n, sizeof key.n);
    memcpy(out->data + out->n + sizeof key.n, key.at, key.n);
    out->n += need;
    out->count++;
    return true;
}

static bool note_matches(struct table *t, struct bytes pattern, struct db_keys *out) {
    int64_t now = clock_us();

    for (const struct entry *e = t->entries; e != NULL; e = e->hh.next) {
        if (e->due.at <= now || !glob_match(pattern, entry_key(e))) continue;
        if (!note_key(out, entry_key(e))) return false;
    }
    return true;
}

int db_keys(struct db *db, struct bytes pattern, struct db_keys *out) {
    *out = (struct db_keys){0};
    for (unsigned i = 0; i < SHARDS; i++) {
        struct shard *s = lock_shard(db, i);
        bool good = note_matches(&s->table, pattern, out);
        unlock_shard(s);
        if (!good) {
            free(out->data);
            return DB_NO_MEMORY;
        }
    }
    return DB_OK;
}
