/* field/sync.c: what went wrong with locks elsewhere. Case C38. */
#include "field/field.h"

/* ---- C38: a hog cannot starve a polite locker ------------------------------------------------ */

enum { C38_TURNS = 200 };

static struct {
    weft_mutex lock;
    atomic_bool stop;
    long rounds; /* lock */
    int64_t longest, took;
    weft_waitgroup all;
} greed;

static int lock_long(void *arg) {
    (void)arg;
    while (!atomic_load(&greed.stop)) {
        weft_mutex_lock(&greed.lock);
        busy(100 * US);
        greed.rounds++;
        weft_mutex_unlock(&greed.lock);
    }
    return 0;
}

static int lock_rarely(void *arg) {
    (void)arg;
    int64_t begin = now();
    for (int i = 0; i < C38_TURNS; i++) {
        CHECK_EQ(weft_sleep(100 * US), 0);
        int64_t start = now();
        weft_mutex_lock(&greed.lock);
        greed.longest = most(greed.longest, now() - start);
        weft_mutex_unlock(&greed.lock);
    }
    greed.took = now() - begin;
    atomic_store(&greed.stop, true);
    return 0;
}

static int hog_and_victim(void *arg) {
    (void)arg;
    WEFT_MUST(weft_waitgroup_go(&greed.all, lock_long, NULL));
    WEFT_MUST(weft_waitgroup_go(&greed.all, lock_rarely, NULL));
    weft_waitgroup_wait(&greed.all);
    return 0;
}

/* A victim that starves never ends: that is the part which gates. */
TEST_IN(field, C38, 60) {
    run_at(2, hog_and_victim, NULL);
    double seconds = (double)greed.took / SEC;
    double rate = (double)greed.rounds / seconds;
    test_clock(within(greed.took, 2 * SEC), "the victim took %.0f ms, bound 2000", seconds * 1000);
    test_clock(within(greed.longest, 20 * MS), "its longest wait was %.2f ms, bound 20",
               (double)greed.longest / MS);
    test_clock(rate * test_slack() >= 5000, "the hog made %.0f rounds a second, bound 5000", rate);
}
