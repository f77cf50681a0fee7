/* unit/heap.c: the timer heap against a plain list, with every invariant of heap.h checked from
   outside after each step. */
#define _GNU_SOURCE 1
#include "heap/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0 /* a sanitizer's malloc does not fail, it ends the process */
#endif

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t next_random(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int64_t random_below(int64_t n) { return (int64_t)(next_random() % (uint64_t)n); }

static void check_invariants(const weft__heap *h) {
    CHECK_LE(h->len, h->cap);
    for (uint32_t i = 0; i < h->len; i++) {
        const weft__heap_entry *e = &h->entries[i];
        CHECK_LE(e->key, e->timer->when);
        CHECK_EQ(e->timer->pos, i + 1);
        if (i > 0) CHECK_LE(h->entries[(i - 1) / 4].key, e->key);
    }
}

/* The least time in the heap, found the long way. */
static int64_t least_when(const weft__heap *h) {
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < h->len; i++) {
        int64_t when = h->entries[i].timer->when;
        if (when < least) least = when;
    }
    return least;
}

static void insert(weft__heap *h, weft__timer *t, int64_t when) {
    t->when = when;
    CHECK_EQ(weft__heap_insert(h, t), 0);
}

TEST(heap, empty) {
    weft__heap h = {0};
    CHECK_EQ(weft__heap_min_key(&h), INT64_MAX);
    CHECK_EQ(weft__heap_min(&h), INT64_MAX);
    CHECK(!weft__heap_due(&h, INT64_MAX));
    weft__heap_fini(&h);
    weft__heap_fini(&h);
    CHECK(!h.entries);
}

TEST(heap, in_order) {
    enum { N = 1000 };
    static weft__timer t[N];
    weft__heap h = {0};
    for (int i = 0; i < N; i++) {
        insert(&h, &t[i], (i * 7919) % N);
        check_invariants(&h);
    }
    for (int i = 0; i < N; i++) {
        CHECK_EQ(weft__heap_min(&h), i);
        CHECK(!weft__heap_due(&h, i - 1));
        weft__timer *due = weft__heap_due(&h, i);
        CHECK(due);
        CHECK_EQ(due->when, i);
        CHECK_EQ(due->pos, 0);
        check_invariants(&h);
    }
    CHECK(!weft__heap_due(&h, INT64_MAX));
    weft__heap_fini(&h);
}

/* The last possible time is a time: WEFT_NEVER in a heap is not the same as an empty heap. */
TEST(heap, extreme_times) {
    weft__timer never = {0}, past = {0}, zero = {0};
    weft__heap h = {0};
    insert(&h, &never, INT64_MAX);
    CHECK_EQ(weft__heap_min(&h), INT64_MAX);
    CHECK(!weft__heap_due(&h, INT64_MAX - 1));
    insert(&h, &zero, 0);
    insert(&h, &past, INT64_MIN);
    CHECK_EQ(weft__heap_min(&h), INT64_MIN);
    CHECK(weft__heap_due(&h, INT64_MIN) == &past);
    CHECK(!weft__heap_due(&h, -1));
    CHECK(weft__heap_due(&h, 0) == &zero);
    CHECK(weft__heap_due(&h, INT64_MAX) == &never);
    CHECK(!weft__heap_due(&h, INT64_MAX));
    weft__heap_fini(&h);
}

/* A later time is one store: not an entry is written, not even its own. */
TEST(heap, reset_to_later_moves_nothing) {
    enum { N = 500 };
    static weft__timer t[N];
    weft__heap h = {0};
    for (int i = 0; i < N; i++) insert(&h, &t[i], random_below(1000));
    weft__heap_entry before[N];
    memcpy(before, h.entries, sizeof before);
    for (int i = 0; i < N; i++) {
        CHECK(!weft__heap_reset(&h, &t[i], t[i].when));
        CHECK(!weft__heap_reset(&h, &t[i], t[i].when + random_below(100000)));
        CHECK(h.entries[t[i].pos - 1].timer == &t[i]);
    }
    CHECK_MEM(before, h.entries, sizeof before);
    /* Back to a time that is still later than the key: the same. */
    for (int i = 0; i < N; i++) {
        int64_t key = h.entries[t[i].pos - 1].key;
        CHECK(!weft__heap_reset(&h, &t[i], key + (t[i].when - key) / 2));
    }
    CHECK_MEM(before, h.entries, sizeof before);
    int64_t last = INT64_MIN;
    for (int i = 0; i < N; i++) {
        weft__timer *due = weft__heap_due(&h, INT64_MAX);
        CHECK_GE(due->when, last);
        last = due->when;
        check_invariants(&h);
    }
    weft__heap_fini(&h);
}

TEST(heap, reset_to_earlier_says_if_it_leads) {
    weft__timer a = {0}, b = {0}, c = {0};
    weft__heap h = {0};
    insert(&h, &a, 100);
    insert(&h, &b, 200);
    insert(&h, &c, 300);
    CHECK(!weft__heap_reset(&h, &c, 150));
    CHECK(!weft__heap_reset(&h, &c, 100)); /* as early as the head is no change of the head */
    CHECK(weft__heap_reset(&h, &c, 99));
    CHECK_EQ(weft__heap_min_key(&h), 99);
    CHECK(weft__heap_reset(&h, &c, 98));  /* the head itself, earlier still */
    CHECK(!weft__heap_reset(&h, &c, 98)); /* the same again */
    CHECK(!weft__heap_reset(&h, &c, 500));
    CHECK(weft__heap_reset(&h, &b, 97));
    CHECK(weft__heap_due(&h, 1000) == &b);
    CHECK(weft__heap_due(&h, 1000) == &a);
    CHECK(weft__heap_due(&h, 1000) == &c);
    weft__heap_fini(&h);
}

/* min gives the time to sleep until: exact, whatever stale keys lie before it. */
TEST(heap, min_is_exact_over_stale_keys) {
    enum { N = 64 };
    static weft__timer t[N];
    weft__heap h = {0};
    for (int i = 0; i < N; i++) insert(&h, &t[i], i);
    for (int i = 0; i < N; i++) weft__heap_reset(&h, &t[i], 1000 + (i * 37) % N);
    CHECK_EQ(weft__heap_min_key(&h), 0);
    CHECK_EQ(weft__heap_min(&h), 1000);
    CHECK_EQ(weft__heap_min_key(&h), 1000);
    check_invariants(&h);
    CHECK(!weft__heap_due(&h, 999));
    weft__heap_fini(&h);
}

static void random_step(weft__heap *h, weft__timer *t, int64_t now) {
    if (t->pos == 0) {
        insert(h, t, now + random_below(1000) - 100);
    } else if (random_below(4) == 0) {
        weft__heap_remove(h, t);
        CHECK_EQ(t->pos, 0);
    } else {
        int64_t when = now + random_below(2000) - 100;
        int64_t head = weft__heap_min_key(h);
        bool leads = weft__heap_reset(h, t, when);
        CHECK_EQ(leads, when < head);
        CHECK_EQ(t->when, when);
    }
}

static void random_run(int n, int steps) {
    weft__timer *t = calloc((size_t)n, sizeof *t);
    weft__heap h = {0};
    int64_t now = 0;
    for (int step = 0; step < steps; step++) {
        random_step(&h, &t[random_below(n)], now);
        check_invariants(&h);
        if (random_below(8) == 0) {
            CHECK_EQ(weft__heap_min(&h), least_when(&h));
            CHECK_EQ(weft__heap_min_key(&h), least_when(&h));
        }
        if (random_below(16) == 0) now += random_below(200);
        if (random_below(4) == 0) {
            int64_t least = least_when(&h);
            weft__timer *due = weft__heap_due(&h, now);
            CHECK_EQ(due != NULL, h.len + (due != NULL) > 0 && least <= now);
            if (due) CHECK_EQ(due->when, least);
        }
        check_invariants(&h);
    }
    weft__heap_fini(&h);
    free(t);
}

TEST(heap, random_against_a_list) {
    random_run(1, 1000);
    random_run(5, 20000);
    random_run(22, 20000);
    random_run(300, 20000);
}

TEST(heap, a_hundred_thousand) {
    enum { N = 100000 };
    weft__timer *t = calloc(N, sizeof *t);
    weft__heap h = {0};
    for (int i = 0; i < N; i++) insert(&h, &t[i], random_below(1000000));
    check_invariants(&h);
    for (int i = 0; i < N; i += 3) weft__heap_reset(&h, &t[i], random_below(2000000));
    for (int i = 1; i < N; i += 3) weft__heap_remove(&h, &t[i]);
    check_invariants(&h);
    int64_t last = 0;
    uint32_t taken = 0;
    for (weft__timer *due; (due = weft__heap_due(&h, INT64_MAX)); taken++) {
        CHECK_GE(due->when, last);
        last = due->when;
    }
    CHECK_EQ(taken, N - N / 3);
    for (int i = 0; i < N; i++) CHECK_EQ(t[i].pos, 0);
    CHECK_LT(h.cap, 2000); /* it has given its memory back */
    weft__heap_fini(&h);
    free(t);
}

TEST(heap, equal_times) {
    enum { N = 777 };
    static weft__timer t[N];
    weft__heap h = {0};
    for (int i = 0; i < N; i++) insert(&h, &t[i], 5);
    for (int i = 0; i < N; i += 2) weft__heap_remove(&h, &t[i]);
    check_invariants(&h);
    int taken = 0;
    while (weft__heap_due(&h, 5)) taken++;
    CHECK_EQ(taken, N / 2);
    weft__heap_fini(&h);
}

TEST(heap, children_share_a_line) {
    static weft__timer t[200];
    weft__heap h = {0};
    for (int i = 0; i < 200; i++) insert(&h, &t[i], i);
    if (sizeof(weft__heap_entry) == 16) {
        for (uint32_t i = 0; i < 49; i++) CHECK_EQ((uintptr_t)&h.entries[4 * i + 1] % 64, 0);
    }
    weft__heap_fini(&h);
}

TEST(heap, reserve) {
    static weft__timer t[3000];
    weft__heap h = {0};
    CHECK_EQ(weft__heap_reserve(&h, 0), 0);
    CHECK_EQ(weft__heap_reserve(&h, 3000), 0);
    CHECK_GE(h.cap, 3000);
    weft__heap_entry *entries = h.entries;
    for (int i = 0; i < 3000; i++) insert(&h, &t[i], i);
    CHECK(h.entries == entries);
    CHECK_EQ(weft__heap_reserve(&h, UINT32_MAX), -ENOMEM);
    CHECK_EQ(weft__heap_reserve(&h, UINT32_MAX - 3000), -ENOMEM);
    check_invariants(&h);
    weft__heap_fini(&h);
}

/* Memory runs out while the heap grows: the insert fails whole, and all else goes on. */
TEST(heap, no_memory) {
    enum { N = 4000000 };
    if (SANITIZED) test_skip("a sanitizer's malloc does not fail");
    weft__timer *t = calloc(N, sizeof *t);
    weft__heap h = {0};
    CHECK(t);
    for (int i = 0; i < 1000; i++) insert(&h, &t[i], i);
    struct rlimit limit = {.rlim_cur = 200 << 20, .rlim_max = RLIM_INFINITY};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    int n = 1000, err = 0;
    for (; n < N && !err; n++) {
        t[n].when = n;
        err = weft__heap_insert(&h, &t[n]);
    }
    CHECK_EQ(err, -ENOMEM);
    CHECK_EQ(t[--n].pos, 0);
    CHECK_EQ(h.len, n);
    CHECK_EQ(weft__heap_reserve(&h, 1), -ENOMEM);
    CHECK(weft__heap_due(&h, INT64_MAX) == &t[0]);
    CHECK_EQ(weft__heap_insert(&h, &t[0]), 0);
    CHECK_EQ(weft__heap_insert(&h, &t[n]), -ENOMEM);
    check_invariants(&h);
    /* Shrinking needs memory too, and does without. */
    for (int i = 0; i < n; i++) weft__heap_remove(&h, &t[i]);
    CHECK_EQ(h.len, 0);
    weft__heap_fini(&h);
    free(t);
}
