/* heap/heap.c: see heap.h for what the heap promises.

   The children of entry i are 4i+1 .. 4i+4. Entry 0 stands at the end of a cache line of its own, so
   each four children fill one:

       line 0: [  -  ] [  -  ] [  -  ] [  0  ]
       line 1: [  1  ] [  2  ] [  3  ] [  4  ]
       line 2: [  5  ] [  6  ] [  7  ] [  8  ] */
#include "heap/heap.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"

enum {
    ARITY = 4,
    ROOT_OFFSET = 3,    /* entries before entry 0 */
    MIN_CAP = 13,       /* three whole lines behind the first */
    KEEP_CAP = 1 << 10, /* a heap up to this does not shrink */
    MAX_CAP = 1 << 30
};

_Static_assert(ARITY * sizeof(weft__heap_entry) <= WEFT__LINE,
               "the children of an entry share a cache line");

/* Memory. */

static size_t block_bytes(uint32_t cap) {
    return ((size_t)cap + ROOT_OFFSET) * sizeof(weft__heap_entry);
}

static weft__heap_entry *entries_new(uint32_t cap) {
    weft__heap_entry *block = weft__mem_alloc_aligned(block_bytes(cap), WEFT__LINE);
    return block ? block + ROOT_OFFSET : NULL;
}

static void entries_free(weft__heap_entry *entries, uint32_t cap) {
    if (entries) weft__mem_free_aligned(entries - ROOT_OFFSET, block_bytes(cap), WEFT__LINE);
}

static int set_cap(weft__heap *h, uint32_t cap) {
    weft__heap_entry *entries = entries_new(cap);
    if (!entries) return -ENOMEM;
    if (h->len) memcpy(entries, h->entries, h->len * sizeof *entries);
    entries_free(h->entries, h->cap);
    h->entries = entries;
    h->cap = cap;
    return 0;
}

int weft__heap_reserve(weft__heap *h, uint32_t more) {
    if (more <= h->cap - h->len) return 0;
    if (more > MAX_CAP - h->len) return -ENOMEM;
    uint32_t cap = h->cap < MIN_CAP ? MIN_CAP : h->cap;
    while (cap < h->len + more) cap = cap > MAX_CAP / 2 ? MAX_CAP : cap * 2;
    return set_cap(h, cap);
}

/* Gives memory back once three quarters stand empty. Half stays empty, so that it takes many inserts
   before the heap grows again; if there is no memory for the smaller one, the larger one will do. */
static void shrink(weft__heap *h) {
    if (h->cap > KEEP_CAP && h->len < h->cap / 4) (void)set_cap(h, h->cap / 2);
}

void weft__heap_fini(weft__heap *h) {
    entries_free(h->entries, h->cap);
    *h = (weft__heap){0};
}

/* Order. Both walk a hole to where e belongs and put e there. */

static void put(weft__heap *h, uint32_t i, weft__heap_entry e) {
    h->entries[i] = e;
    e.timer->pos = i + 1;
}

static void sift_up(weft__heap *h, uint32_t i, weft__heap_entry e) {
    while (i > 0) {
        uint32_t parent = (i - 1) / ARITY;
        if (h->entries[parent].key <= e.key) break;
        put(h, i, h->entries[parent]);
        i = parent;
    }
    put(h, i, e);
}

/* The child of i with the least key; h->len: it has none. */
static uint32_t least_child(const weft__heap *h, uint32_t i) {
    uint64_t first = (uint64_t)i * ARITY + 1;
    if (first >= h->len) return h->len;
    uint32_t least = (uint32_t)first;
    uint32_t end = h->len - least < ARITY ? h->len : least + ARITY;
    for (uint32_t c = least + 1; c < end; c++) {
        if (h->entries[c].key < h->entries[least].key) least = c;
    }
    return least;
}

static void sift_down(weft__heap *h, uint32_t i, weft__heap_entry e) {
    for (;;) {
        uint32_t child = least_child(h, i);
        if (child == h->len || h->entries[child].key >= e.key) break;
        put(h, i, h->entries[child]);
        i = child;
    }
    put(h, i, e);
}

int weft__heap_insert(weft__heap *h, weft__timer *t) {
    if (h->len == h->cap) {
        int err = weft__heap_reserve(h, 1);
        if (err) return err;
    }
    weft__heap_entry e = {.key = t->when, .timer = t};
    sift_up(h, h->len++, e);
    return 0;
}

void weft__heap_remove(weft__heap *h, weft__timer *t) {
    uint32_t i = t->pos - 1;
    weft__heap_entry last = h->entries[--h->len];
    t->pos = 0;
    if (i < h->len) {
        /* The last entry goes to the hole, and from there to where it belongs: it comes from another
           branch, so it may be too small for this one as well as too great. */
        if (i > 0 && last.key < h->entries[(i - 1) / ARITY].key) {
            sift_up(h, i, last);
        } else {
            sift_down(h, i, last);
        }
    }
    shrink(h);
}

bool weft__heap_reset(weft__heap *h, weft__timer *t, int64_t when) {
    uint32_t i = t->pos - 1;
    t->when = when;
    if (when >= h->entries[i].key) return false;
    weft__heap_entry e = {.key = when, .timer = t};
    sift_up(h, i, e);
    return t->pos == 1;
}

/* Re-keys heads until the head's key is its timer's time. Each step raises a key that was too low,
   and no key is raised twice without a reset between, so this ends. The heap is not empty. */
static weft__heap_entry settle_head(weft__heap *h) {
    for (;;) {
        weft__heap_entry head = h->entries[0];
        if (head.key == head.timer->when) return head;
        head.key = head.timer->when;
        sift_down(h, 0, head);
    }
}

weft__timer *weft__heap_due(weft__heap *h, int64_t now) {
    /* A lower bound in the future is enough to say no, without a look at the timer. */
    if (weft__heap_min_key(h) > now || h->len == 0) return NULL;
#ifdef WEFT_CANARY_DUE_BY_STALE_KEY
    weft__heap_entry head = h->entries[0];
#else
    weft__heap_entry head = settle_head(h);
#endif
    if (head.key > now) return NULL;
    weft__heap_remove(h, head.timer);
    return head.timer;
}

int64_t weft__heap_min(weft__heap *h) {
#ifdef WEFT_CANARY_HEAD_NOT_REKEYED
    return weft__heap_min_key(h);
#else
    return h->len ? settle_head(h).key : INT64_MAX;
#endif
}
