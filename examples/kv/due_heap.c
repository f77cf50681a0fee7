/* due_heap.c: a 4-ary heap of pointers whose nodes know their place. */
#include "due_heap.h"
#include <stdlib.h>

#define CHILDREN 4
#define SMALLEST 16

static void place(struct due_heap *h, size_t i, struct due *d) {
    h->slots[i] = d;
    d->place = i;
}

static void sift_up(struct due_heap *h, size_t i, struct due *d) {
    while (i > 0) {
        size_t parent = (i - 1) / CHILDREN;
        if (h->slots[parent]->at <= d->at) break;
        place(h, i, h->slots[parent]);
        i = parent;
    }
    place(h, i, d);
}

static void sift_down(struct due_heap *h, size_t i, struct due *d) {
    for (;;) {
        size_t child = i * CHILDREN + 1;
        size_t end = child + CHILDREN < h->n ? child + CHILDREN : h->n;
        if (child >= end) break;
        size_t least = child;
        for (size_t k = child + 1; k < end; k++)
            if (h->slots[k]->at < h->slots[least]->at) least = k;
        if (h->slots[least]->at >= d->at) break;
        place(h, i, h->slots[least]);
        i = least;
    }
    place(h, i, d);
}

static void settle(struct due_heap *h, size_t i, struct due *d) {
    if (i > 0 && h->slots[(i - 1) / CHILDREN]->at > d->at)
        sift_up(h, i, d);
    else
        sift_down(h, i, d);
}

static bool resize(struct due_heap *h, size_t room) {
    struct due **slots = realloc(h->slots, room * sizeof *slots);
    if (slots == NULL) return false;
    h->slots = slots;
    h->room = room;
    return true;
}

static void take_out(struct due_heap *h, struct due *d) {
    struct due *last = h->slots[--h->n];

    if (last != d) settle(h, d->place, last);
    d->at = DUE_NEVER;
    if (h->n == 0) {
        due_free(h); /* thousands may have expired at once: none of that memory is kept */
    } else if (h->room > SMALLEST && h->n < h->room / 4) {
        resize(h, h->room / 2); /* a refusal does no harm */
    }
}

bool due_set(struct due_heap *h, struct due *d, int64_t at) {
    bool inside = d->at != DUE_NEVER;

    if (at == DUE_NEVER) {
        if (inside) take_out(h, d);
        return true;
    }
    if (!inside) {
        if (h->n == h->room && !resize(h, h->room != 0 ? h->room * 2 : SMALLEST)) return false;
        d->at = at;
        sift_up(h, h->n++, d);
        return true;
    }
    d->at = at;
    settle(h, d->place, d);
    return true;
}

void due_free(struct due_heap *h) {
    free(h->slots);
    *h = (struct due_heap){0};
}
