/* unit/exceptions.c: the record that a C++ runtime keeps for each thread goes with the green thread. The
 * runtime here is our own two words; the real one is tried in test/api/exceptions.cc.
 */
#include "world.h"

void *__cxa_get_globals(void);
static __thread weft__eh record;
WEFT__NOINLINE void *__cxa_get_globals(void) {
    __asm__ volatile("" ::: "memory");
    return &record;
}

static WEFT__NOINLINE weft__eh *here(void) { return __cxa_get_globals(); }

static atomic_int wrong;

/* "Handles an exception" of its own and waits in between; some Gs do, some never. */
static int handles(void *arg) {
    int n = (int)(intptr_t)arg;
    for (int i = 0; i < 30; i++) {
        bool handling = (i + n) % 3 != 0;
        int exception;
        atomic_fetch_add(&wrong, weft__eh_busy(here()));
        if (handling) {
            here()->caught = &exception;
            here()->uncaught = (unsigned)n;
        }
        weft_yield();
        if (i % 5 == 0) {
            CHECK_EQ(weft_sleep(20 * WEFT_MICROSECOND), 0);
        }
        weft__eh *eh = here();
        void *caught = handling ? &exception : NULL;
        atomic_fetch_add(&wrong,
                         eh->caught != caught || eh->uncaught != (handling ? (unsigned)n : 0));
        *eh = (weft__eh){0};
    }
    if (n % 4 == 0) { /* ends in a handler */
        here()->caught = &wrong;
        weft_exit(0);
    }
    return 0;
}

static int many_handle(void *arg) {
    weft_waitgroup wg = WEFT_WAITGROUP_INIT;
    (void)arg;
    atomic_fetch_add(&wrong, weft__eh_busy(here()));
    for (int i = 0; i < rounds(2000); i++) {
        CHECK_EQ(weft_waitgroup_go(&wg, handles, (void *)(intptr_t)i), 0);
    }
    weft_waitgroup_wait(&wg);
    return 0;
}

TEST(exceptions, go_with_the_green_thread) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = config_of(procs);
        CHECK_EQ(weft_run(many_handle, NULL, &c, NULL), 0);
        CHECK_EQ(atomic_load(&wrong), 0);
    }
}

/* weft_run called in a handler: main does not see it, and it is there afterwards. */
TEST(exceptions, of_the_host_are_kept) {
    int exception;
    weft_config c = config_of(2);
    here()->caught = &exception;
    here()->uncaught = 2;
    CHECK_EQ(weft_run(many_handle, NULL, &c, NULL), 0);
    CHECK_EQ(atomic_load(&wrong), 0);
    CHECK(here()->caught == &exception);
    CHECK_EQ(here()->uncaught, 2);
}
