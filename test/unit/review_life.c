/* The life of a runtime at its edges: how it ends, and who may still hold on to it. */
#include "test.h"

#include <weft.h>

static int run_on(int procs, weft_fn app, void *arg, int *status) {
    weft_config cfg = weft_config_default();
    cfg.procs = procs;
    cfg.flags = WEFT_IGNORE_ENV;
    return weft_run(app, arg, &cfg, status);
}

/* ---- weft_exit in main ------------------------------------------------------------------------- */

static int done_later(void *arg) {
    int err = weft_sleep(5 * WEFT_MILLISECOND);
    *(int *)arg = err == 0;
    return 0;
}

static int starts_and_exits(void *arg) {
    CHECK_EQ(weft_go(done_later, arg), 0);
    weft_exit(3);
}

TEST(review_life, rest_runs_on_after_weft_exit_in_main) {
    for (int procs = 1; procs <= 3; procs++) {
        int status = 0, done = 0;
        CHECK_EQ(run_on(procs, starts_and_exits, &done, &status), 0);
        CHECK_EQ(status, 3);
        CHECK_EQ(done, 1);
    }
}

static int waits_for_ever(void *arg) {
    return weft_chan_recv(arg, NULL);
}

static int leaves_one_stuck(void *arg) {
    CHECK_EQ(weft_go(waits_for_ever, arg), 0);
    weft_exit(0);
}

TEST(review_life, rest_that_is_stuck_is_reported) {
    static weft_chan *c; /* the dead stand in it for good */
    CHECK_EQ(weft_chan_new(&c, 1, 0), 0);
    for (int procs = 1; procs <= 2; procs++) {
        CHECK_EQ(run_on(procs, leaves_one_stuck, c, NULL), -EDEADLK);
    }
}

/* ---- stuck while somebody still sleeps in the poller -------------------------------------------- */

static int waits_on_timer(void *arg) {
    return weft_timer_wait(arg, NULL);
}

/* The other thread sleeps in the poller for the timer when it is stopped. */
static int stops_what_is_waited_for(void *arg) {
    weft_timer *t;
    CHECK_EQ(weft_timer_new(&t, WEFT_HOUR, NULL), 0);
    CHECK_EQ(weft_go(waits_on_timer, t), 0);
    CHECK_EQ(weft_sleep(20 * WEFT_MILLISECOND), 0);
    CHECK(weft_timer_stop(t));
    return weft_chan_recv(arg, NULL);
}

TEST(review_life, stuck_is_seen_behind_a_sleeper_in_the_poller) {
    static weft_chan *c;
    CHECK_EQ(weft_chan_new(&c, 1, 0), 0);
    CHECK_EQ(run_on(2, stops_what_is_waited_for, c, NULL), -EDEADLK);
}
