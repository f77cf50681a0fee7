/* unit/canary_fence.c: the asymmetric fences order a store before a load behind them, as two full ones would.
 * Two threads each raise a flag and then look at the other's: not both may miss. */
#include "os/os.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { LINE = 64, AHEAD = 16 };
static struct {
    /* Written by both sides in turn: what the light side has to write before its flag. */
    struct {
        _Alignas(LINE) _Atomic uint32_t round;
    } ahead[AHEAD];
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

/* This thread on the nth of the CPUs that it may use. False: there are not so many. */
static bool stay_on(int nth) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && nth-- == 0) {
            CPU_SET(cpu, &one);
            CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
            return true;
        }
    }
    return false;
}

static void write_ahead(uint32_t round) {
    for (int i = 0; i < AHEAD; i++) {
        atomic_store_explicit(&duel.ahead[i].round, round, memory_order_relaxed);
    }
}

/* Its flag stands behind other stores to memory that the other side has, so it is long on its way. */
static void *light_side(void *arg) {
    (void)arg;
    if (!stay_on(1)) {
        test_skip("two threads at once need two CPUs");
    }
    for (uint32_t round = 1;; round++) {
        while (atomic_load_explicit(&duel.begun, memory_order_acquire) != round) {
            if (atomic_load(&duel.over)) {
                return NULL;
            }
        }
        (void)atomic_load_explicit(&duel.heavy, memory_order_relaxed); /* at hand from here */
        write_ahead(round);
        atomic_store_explicit(&duel.light, round, memory_order_relaxed);
        weft__fence_light();
        duel.light_saw = atomic_load_explicit(&duel.heavy, memory_order_relaxed);
        atomic_store_explicit(&duel.ended, round, memory_order_release);
    }
}

/* The heavy side calls the rounds. It waits a little longer or shorter before its flag, so that the two
   sides meet at every distance. */
static void fight(uint32_t round) {
    write_ahead(round);
    weft__fence_full(); /* all there: the light side has to fetch it back */
    atomic_store_explicit(&duel.begun, round, memory_order_release);
    for (volatile uint32_t i = round * 5 % 512; i > 0; i--) {
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
    double end = now() + 1;
    weft__fence_init();
    CHECK_EQ(pthread_create(&t, NULL, light_side, NULL), 0);
    CHECK(stay_on(0));
    for (uint32_t round = 1; now() < end; round++) {
        fight(round);
    }
    atomic_store(&duel.over, true);
    pthread_join(t, NULL);
}
