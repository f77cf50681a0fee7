/*
 * due_heap.h: the keys of one table that will expire, the next one first: a heap with four children
 * a node. A key that is given another time, or none, is found at once, since each node knows its
 * place; nothing stale stays behind.
 */
#ifndef KV_DUE_HEAP_H
#define KV_DUE_HEAP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUE_NEVER INT64_MAX

struct due {    /* in the object that is due */
    int64_t at; /* microseconds; DUE_NEVER when it is in no heap */
    size_t place;
};

struct due_heap {
    struct due **slots;
    size_t n, room;
};

/* Puts it in, moves it, or (DUE_NEVER) takes it out. False: no memory, nothing changed. */
bool due_set(struct due_heap *h, struct due *d, int64_t at);

/* The first, or NULL. */
static inline struct due *due_first(const struct due_heap *h) {
    return h->n > 0 ? h->slots[0] : NULL;
}

void due_free(struct due_heap *h);
#endif
