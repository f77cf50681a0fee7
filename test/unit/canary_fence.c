/* unit/canary_fence.c: the asymmetric fences order a store before a load behind them, as two full ones would.
 * Two threads each raise a flag and then look at the other's: not both may miss. */
#include "os/os.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { LINE = 64 };
static struct {
    _Alignas(LINE) _Atomic uint32_t light; /* the round of the light side's flag */
    _Alignas(LINE) _Atomic uint32_t heavy;
    _Alignas(LINE) _Atomic uint32_t begun; /* the round that both may begin */
    _Alignas(LINE) _Atomic uint32_t ended; /* the light side's last round */
    uint32_t light_saw, heavy_saw;
    atomic_bool over;
} duel;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *light_side(void *arg) {
    (void)arg;
    for (uint32_t round = 1;; round++) {
        while (atomic_load_explicit(&duel.begun, memory_order_acquire) != round) {
            if (atomic_load(&duel.over)) {
                return NULL;
            }
        }
        atomic_store_explicit(&duel.light, round, memory_order_relaxed);
        weft__fence_light();
        duel.light_saw = atomic_load_explicit(&duel.heavy, memory_order_relaxed);
        atomic_store_explicit(&duel.ended, round, memory_order_release);
    }
}

/* The heavy side calls the rounds: what it does first differs, so that the two sides meet at every
   distance. */
static void fight(uint32_t round) {
    atomic_store_explicit(&duel.begun, round, memory_order_release);
    for (uint32_t i = round % 64; i > 0; i--) {
        atomic_signal_fence(memory_order_seq_cst);
    }
    atomic_store_explicit(&duel.heavy, round, memory_order_relaxed);
    weft__fence_heavy();
    duel.heavy_saw = atomic_load_explicit(&duel.light, memory_order_relaxed);
    while (atomic_load_explicit(&duel.ended, memory_order_acquire) != round) {
    }
    if (duel.light_saw != round && duel.heavy_saw != round) {
        test_fail(__FILE__, __LINE__, "both missed the other's flag in round %u", round);
    }
}

TEST_IN(canary_fence, one_of_two_sees_the_other, 30) {
    pthread_t t;
    double end = now() + 2;
    weft__fence_init();
    CHECK_EQ(pthread_create(&t, NULL, light_side, NULL), 0);
    for (uint32_t round = 1; now() < end; round++) {
        fight(round);
    }
    atomic_store(&duel.over, true);
    pthread_join(t, NULL);
}
