/*
 * Locals: values that belong to a G, or to a plain thread by its stand-in.
 *
 * A key is a static object of the user's that gets a number, its slot, when it is first set. A slot is
 * never given twice while the process lives: a key in a library that was unloaded and the one that comes
 * to lie in its place are two keys. Each G has a small open hash table of the values it has set, by slot.
 * Slots count up, so the few that a G uses do not collide in it: a get looks at one entry, mostly.
 *
 * Invariants:
 *   - Only the G itself touches its table, outside of enter and leave.
 *   - An entry is never taken out while the G lives: its value becomes NULL. The table only grows.
 *   - A value is NULL before its destructor runs, so no value is destroyed twice.
 *   - An end has WEFT_LOCAL_ROUNDS rounds. What a destructor sets is marked for the round behind the one
 *     that runs, so each round ends, and meets all that was there when it began even if the table moves.
 */
#include "sched/sched.h"

#include <string.h>

typedef struct entry {
    uint32_t slot;  /* 0: free */
    uint32_t round; /* the first of the end's rounds that destroys it */
    void *value;
    weft_cb destroy;
} entry;

typedef struct weft__locals {
    uint32_t mask;  /* entries - 1; a power of two less one */
    uint32_t used;  /* entries with a slot: three quarters at most */
    uint32_t round; /* of the end that is under way; 0: none */
    entry entries[];
} weft__locals;

enum { FIRST_ENTRIES = 4 };

static size_t bytes_of(uint32_t entries) {
    return sizeof(weft__locals) + (size_t)entries * sizeof(entry);
}

/* The entry of slot, or the free one where it would go. */
static entry *find(weft__locals *t, uint32_t slot) {
    uint32_t i = slot & t->mask;
    while (t->entries[i].slot != slot && t->entries[i].slot != 0) {
        i = (i + 1) & t->mask;
    }
    return &t->entries[i];
}

/* A table with room for one more. NULL: no memory, the old one stays. */
static weft__locals *grown(weft__g *g) {
    weft__locals *old = g->locals;
    uint32_t entries = old != NULL ? (old->mask + 1) * 2 : FIRST_ENTRIES;
    weft__locals *t = weft__mem_zalloc(bytes_of(entries));
    if (t == NULL) {
        return NULL;
    }
    t->mask = entries - 1;
    if (old != NULL) {
        t->used = old->used;
        t->round = old->round;
        for (uint32_t i = 0; i <= old->mask; i++) {
            if (old->entries[i].slot != 0) {
                *find(t, old->entries[i].slot) = old->entries[i];
            }
        }
        weft__mem_free(old, bytes_of(old->mask + 1));
    }
    g->locals = t;
    return t;
}

/* Two may set a key for the first time at once: one number is lost then. 0: all have been given. */
WEFT__COLD static uint32_t slot_new(weft_local *key) {
    static _Atomic uint32_t given;
    uint32_t n = atomic_load_explicit(&given, memory_order_relaxed);
    do {
        if (n == UINT32_MAX) {
            return 0;
        }
    } while (!atomic_compare_exchange_weak(&given, &n, n + 1));
    uint32_t slot = 0;
    return __atomic_compare_exchange_n(&key->slot, &slot, n + 1, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE)
               ? n + 1
               : slot;
}

WEFT_API void *weft_local_get(weft_local *key) {
    weft__locals *t = weft__g_self()->locals;
    uint32_t slot = __atomic_load_n(&key->slot, __ATOMIC_RELAXED);
    if (t == NULL || slot == 0) {
        return NULL;
    }
    return find(t, slot)->value; /* NULL in a free one */
}

WEFT_API int weft_local_set(weft_local *key, void *value) {
    weft__g *g = weft__g_self();
    weft__locals *t = g->locals;
    uint32_t slot = __atomic_load_n(&key->slot, __ATOMIC_RELAXED);
    if (value == NULL && (t == NULL || slot == 0)) {
        return 0;
    }
    if (weft__unlikely(slot == 0)) {
        slot = slot_new(key);
        if (slot == 0) {
            return -ENOMEM;
        }
    }
    entry *e = t != NULL ? find(t, slot) : NULL;
    if (weft__unlikely(e == NULL || e->slot == 0)) {
        if (value == NULL) {
            return 0;
        }
        if (t == NULL || t->used + 1 > (t->mask + 1) / 4 * 3) {
            t = grown(g);
            if (t == NULL) {
                return -ENOMEM;
            }
        }
        e = find(t, slot);
        e->slot = slot;
        t->used++;
    }
    e->value = value;
    e->destroy = key->destroy;
    e->round = t->round + 1;
    return 0;
}

/* Destroys all that is marked for this round or one before; true: there was something. A destructor may
   set, which may move the table: then the walk begins anew, and finds what is left. */
static bool run_round(weft__g *g, uint32_t round) {
    bool any = false;
    for (uint32_t i = 0; i <= g->locals->mask;) {
        uint32_t mask = g->locals->mask;
        entry *e = &g->locals->entries[i++];
        if (e->value == NULL || e->round > round) {
            continue;
        }
        void *value = e->value;
        weft_cb destroy = e->destroy;
        e->value = NULL;
        if (destroy != NULL) {
            any = true;
            destroy(value);
            i = g->locals->mask == mask ? i : 0;
        }
    }
    return any;
}

/* A destructor may end the G by weft_exit: that comes here again and goes on with the next round. */
void weft__locals_end(weft__g *g) {
    if (g->locals == NULL) {
        return;
    }
    while (g->locals->round < WEFT_LOCAL_ROUNDS) {
        uint32_t round = ++g->locals->round;
        if (!run_round(g, round)) {
            break;
        }
#ifdef WEFT_CANARY_LOCALS_ONE_ROUND
        break;
#endif
    }
    weft__locals *t = g->locals;
    g->locals = NULL;
    weft__mem_free(t, bytes_of(t->mask + 1));
}
