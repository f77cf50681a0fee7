/* heap/heap.h: the 4-ary heap that timers wait in. A data structure: it knows no scheduler, has no
   lock and makes no call that sleeps; the caller holds a lock of its own around every call here, and
   `home` tells it which.

   An entry's key is a *lower bound* of its timer's time:

       entries[i].key <= entries[i].timer->when

   so a timer that is moved to a later time costs one store, and nothing in the heap moves. A key that
   has become too low is found out when it reaches the head, and only then sifts down. Deadlines that
   are pushed on with every request are thus sifted once a period. A timer that is moved to an earlier
   time sifts up at once, and one that is stopped is taken out at once by its position: what is in
   the heap is armed, and a timer's memory may go as soon as it is out.

   The other invariants: a key is not greater than those of its children, and each timer knows where
   it is, entries[t->pos - 1].timer == t. The four children of an entry share one cache line. */
#ifndef WEFT_HEAP_HEAP_H
#define WEFT_HEAP_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct weft__heap;

typedef struct weft__timer {
    struct weft__heap *home; /* the heap whose lock guards this timer; set by the caller only */
    uint32_t pos;            /* 1 + index in home, 0: in no heap */
    uint32_t kind;           /* the caller's */
    int64_t when;            /* due time, ns; set by the caller before insert, by reset after it */
} weft__timer;

typedef struct weft__heap_entry {
    int64_t key; /* ns, a lower bound of timer->when */
    weft__timer *timer;
} weft__heap_entry;

/* All zero is an empty heap. */
typedef struct weft__heap {
    weft__heap_entry *entries; /* NULL while cap is 0 */
    uint32_t len, cap;
} weft__heap;

/* t is in no heap and t->when is set. 0, or -ENOMEM and t is still in no heap. */
int weft__heap_insert(weft__heap *h, weft__timer *t);
/* t is in h. Exact: t is out when this returns. */
void weft__heap_remove(weft__heap *h, weft__timer *t);
/* t is in h and shall be due at `when`. True if the time of the head has become earlier by it. */
bool weft__heap_reset(weft__heap *h, weft__timer *t, int64_t when);
/* Takes out a timer with when <= now, the earliest first. NULL: there is none. */
weft__timer *weft__heap_due(weft__heap *h, int64_t now);
/* The earliest `when`, exactly, INT64_MAX if the heap is empty: for somebody who will sleep till then. */
int64_t weft__heap_min(weft__heap *h);
/* Makes room, so that the next `more` inserts cannot fail if nobody else inserts or removes before:
   keep the lock. 0 or -ENOMEM. */
int weft__heap_reserve(weft__heap *h, uint32_t more);
/* Frees the entries. The heap is empty, or nobody will use the timers that were in it. */
void weft__heap_fini(weft__heap *h);

/* Not later than the earliest `when`, INT64_MAX if the heap is empty. */
static inline int64_t weft__heap_min_key(const weft__heap *h) {
    return h->len ? h->entries[0].key : INT64_MAX;
}

#endif
