/* table.c: uthash for finding a key, a heap for finding the next to expire. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) (added = false) /* `added` is a local of table_put's helper */
#include "table.h"
#include <stdlib.h>

void table_init(struct table *t, int64_t (*clock)(void)) { *t = (struct table){.clock = clock}; }

size_t table_count(const struct table *t) { return HASH_CNT(hh, t->entries); }

static void discard(struct table *t, struct entry *e) {
    e->hh.next = t->garbage;
    t->garbage = e;
}

void table_remove(struct table *t, struct entry *e) {
    due_set(&t->due, &e->due, DUE_NEVER);
    HASH_DELETE(hh, t->entries, e);
    discard(t, e);
}

static bool is_over(const struct table *t, const struct entry *e) {
    return e->due.at != DUE_NEVER && e->due.at <= t->clock();
}

struct entry *table_find(struct table *t, struct table_key k) {
    struct entry *e;

    HASH_FIND_BYHASHVALUE(hh, t->entries, k.name.at, k.name.n, (unsigned)k.hash, e);
    if (e != NULL && is_over(t, e)) {
        t->expired++;
        table_remove(t, e);
        e = NULL;
    }
    return e;
}

struct entry *table_read(struct table *t, struct table_key k) {
    struct entry *e = table_find(t, k);

    if (e != NULL)
        t->hits++;
    else
        t->misses++;
    return e;
}

static bool link_entry(struct table *t, struct entry *e, struct table_key k) {
    bool added = true;

    HASH_ADD_KEYPTR_BYHASHVALUE(hh, t->entries, e->key, k.name.n, (unsigned)k.hash, e);
    return added;
}

static bool add(struct table *t, struct table_key k, struct value *v, int64_t at) {
    struct entry *e = malloc(sizeof *e + k.name.n);

    if (e == NULL) return false;
    e->due.at = DUE_NEVER;
    e->value = v;
    memcpy(e->key, k.name.at, k.name.n);
    if (due_set(&t->due, &e->due, at)) {
        if (link_entry(t, e, k)) return true;
        due_set(&t->due, &e->due, DUE_NEVER);
    }
    free(e);
    return false;
}

bool table_put(struct table *t, struct table_key k, struct value **v, int64_t at) {
    struct entry *e = table_find(t, k);
    struct value *old = NULL;

    if (e == NULL) {
        if (!add(t, k, *v, at)) return false;
    } else {
        if (!due_set(&t->due, &e->due, at)) return false;
        old = e->value;
        e->value = *v;
    }
    *v = old;
    return true;
}

bool table_set_due(struct table *t, struct entry *e, int64_t at) {
    return due_set(&t->due, &e->due, at);
}

void table_clear(struct table *t) {
    if (t->entries == NULL) return;
    /* the list that uthash keeps of all entries becomes the chain */
    struct entry *first = t->entries;
    struct entry *last = ELMT_FROM_HH(first->hh.tbl, first->hh.tbl->tail);

    HASH_CLEAR(hh, t->entries);
    due_free(&t->due);
    last->hh.next = t->garbage;
    t->garbage = first;
}

size_t table_expire(struct table *t, size_t limit) {
    int64_t now = t->clock();
    size_t n = 0;

    for (struct due *d; n < limit && (d = due_first(&t->due)) != NULL && d->at <= now; n++)
        table_remove(t, (struct entry *)((char *)d - offsetof(struct entry, due)));
    t->expired += n;
    return n;
}

struct entry *table_take_garbage(struct table *t) {
    struct entry *chain = t->garbage;

    t->garbage = NULL;
    return chain;
}

size_t entries_free(struct entry *chain) {
    size_t bytes = 0;

    while (chain != NULL) {
        struct entry *next = chain->hh.next;
        bytes += sizeof *chain + chain->hh.keylen + sizeof *chain->value + chain->value->room;
        value_unref(chain->value);
        free(chain);
        chain = next;
    }
    return bytes;
}
