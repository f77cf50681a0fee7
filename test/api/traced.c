/* traced.c free|traced: a green thread sleeps in plain C while another waits for its P, which is the only
 * one. `free`: it loses the P, as one that is blocked. `traced`: a tool runs this process whose threads all
 * seem blocked, so nobody is taken for that; the P goes only to pay for 10 ms of CPU time, which the tool
 * may need to run us at all. Status 0: so it was. run by traced.sh. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <weft.h>

enum { ROUNDS = 20 };

static bool traced;
static atomic_bool ran;

static int note(void *arg) {
    (void)arg;
    atomic_store(&ran, true);
    return 0;
}

static weft_stats stats_now(void) {
    weft_stats s;
    WEFT_MUST(weft_stats_read(NULL, &s, sizeof s));
    return s;
}

/* True: the other one ran meanwhile. */
static bool sleep_before_another(void) {
    atomic_store(&ran, false);
    WEFT_MUST(weft_go(note, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    bool meanwhile = atomic_load(&ran);
    do { /* once at least: who has lost the P takes it again */
        weft_yield();
    } while (!atomic_load(&ran));
    return meanwhile;
}

static int watch(void *arg) {
    (void)arg;
    int kept = 0, lost = 0, broken = 0;
    for (int i = 0; i < ROUNDS && (traced ? kept : lost) < 3; i++) {
        weft_stats before = stats_now();
        bool meanwhile = sleep_before_another();
        weft_stats after = stats_now();
        bool computed = after.handoff_computing != before.handoff_computing;
        if (traced && (after.handoff_blocked != 0 || (meanwhile && !computed))) {
            broken++;
        }
        kept += !meanwhile;
        lost += after.handoff_blocked != before.handoff_blocked;
    }
    printf("%s: %d kept, %d lost, %d broken; %s\n", traced ? "traced" : "free", kept, lost, broken,
           weft_features());
    return broken != 0 || (traced ? kept : lost) < 3 ||
           (strstr(weft_features(), "traced") != NULL) != traced;
}

int main(int argc, char **argv) {
    weft_config c = weft_config_default();
    int status = -1;
    traced = argc == 2 && strcmp(argv[1], "traced") == 0;
    c.procs = 1;
    c.flags = WEFT_IGNORE_ENV;
    WEFT_MUST(weft_run(watch, NULL, &c, &status));
    return status;
}
