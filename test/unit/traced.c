/* unit/traced.c: in a process that a tool runs one thread at a time nobody is taken for blocked. The tools
 * are known by the environment, which is all that is put up here; api/traced.sh has a real one. */
#include "world.h"

#include "os/tracer.h"

#include <stdlib.h>

enum { ROUNDS = 3 };

static atomic_bool ran;

static int note(void *arg) {
    (void)arg;
    atomic_store(&ran, true);
    return 0;
}

/* Sleeps while another waits for its P, which may be lost for 10 ms of CPU time only. A round counts when
   that has not been used. */
static int sleep_before_another(void *arg) {
    weft__r *r = weft_current();
    (void)arg;
    for (int kept = 0; kept < ROUNDS;) {
        uint64_t computing = atomic_load(&r->handoff_computing);
        atomic_store(&ran, false);
        CHECK_EQ(weft_go(note, NULL), 0);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        bool meanwhile = atomic_load(&ran);
        CHECK_EQ(atomic_load(&r->handoff_blocked), 0);
        CHECK(!meanwhile || atomic_load(&r->handoff_computing) > computing);
        kept += !meanwhile;
        do { /* once at least: who has lost the P takes it again */
            weft_yield();
        } while (!atomic_load(&ran));
    }
    return 0;
}

static void traced_by(const char *name, const char *value) {
    weft_config c = config_of(1);
    CHECK_EQ(setenv(name, value, 1), 0);
    CHECK_EQ(weft_run(sleep_before_another, NULL, &c, NULL), 0);
    CHECK(weft__traced);
    CHECK(strstr(weft_features(), "traced") != NULL);
}

TEST(traced, who_sleeps_keeps_his_p_under_rr) { traced_by("RUNNING_UNDER_RR", "1"); }

TEST(traced, who_sleeps_keeps_his_p_under_valgrind) {
    traced_by("LD_PRELOAD", "mine.so:/usr/libexec/valgrind/vgpreload_core-amd64-linux.so");
}

/* Values that others may have set. */
TEST(traced, nobody_is_by_chance) {
    unsetenv("LD_PRELOAD");
    weft__tracer_look();
    CHECK(!weft__traced);
    CHECK_EQ(setenv("RUNNING_UNDER_RR", "", 1), 0);
    CHECK_EQ(setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2:/opt/vgpreload/mine.so", 1), 0);
    weft__tracer_look();
    CHECK(!weft__traced);
}
