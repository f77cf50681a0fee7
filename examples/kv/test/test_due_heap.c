/* test_due_heap.c: the heap against a plain scan. */
#include "check.h"
#include "due_heap.h"
#include <stdlib.h>

#define N 500

static bool in_order(const struct due_heap *h) {
    for (size_t i = 1; i < h->n; i++)
        if (h->slots[(i - 1) / 4]->at > h->slots[i]->at) return false;
    for (size_t i = 0; i < h->n; i++)
        if (h->slots[i]->place != i) return false;
    return true;
}

static void against_scan(void) {
    static struct due all[N];
    struct due_heap h = {0};
    int bad_order = 0, bad_first = 0, bad_count = 0;

    srand(2);
    for (int i = 0; i < N; i++) all[i].at = DUE_NEVER;
    for (int round = 0; round < 50000; round++) {
        struct due *d = &all[rand() % N];
        due_set(&h, d, rand() % 3 == 0 ? DUE_NEVER : rand() % 1000);
        int64_t least = DUE_NEVER;
        size_t count = 0;
        for (int i = 0; i < N; i++) {
            if (all[i].at < least) least = all[i].at;
            count += all[i].at != DUE_NEVER;
        }
        struct due *first = due_first(&h);
        bad_first += (first != NULL ? first->at : DUE_NEVER) != least;
        bad_count += count != h.n;
        if (round % 50 == 0) bad_order += !in_order(&h);
    }
    CHECK(bad_first == 0);
    CHECK(bad_count == 0);
    CHECK(bad_order == 0);
    due_free(&h);
}

static void memory_goes(void) {
    static struct due many[10000];
    struct due_heap h = {0};

    for (int i = 0; i < 10000; i++) {
        many[i].at = DUE_NEVER;
        due_set(&h, &many[i], 10000 - i);
    }
    CHECK(h.n == 10000);
    size_t wide = h.room;
    int64_t last = 0;
    bool sorted = true;
    for (int i = 0; i < 9900; i++) {
        struct due *d = due_first(&h);
        sorted = sorted && d->at > last;
        last = d->at;
        due_set(&h, d, DUE_NEVER);
    }
    CHECK(sorted);
    CHECK(h.room <= wide / 16);
    for (int i = 0; i < 100; i++) due_set(&h, due_first(&h), DUE_NEVER);
    CHECK(h.n == 0 && h.slots == NULL);
    CHECK(due_first(&h) == NULL);
}

int main(void) {
    against_scan();
    memory_goes();
    return check_end();
}
