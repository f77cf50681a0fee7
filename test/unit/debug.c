/* unit/debug.c: what WEFT_DEBUG and weft_debug have the runtime say. */
#include "offers.h"
#include "test.h"
#include "unit/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was said -------------------------------------------------------------------------------- */

enum { MOST_LINES = 4000, MOST_TEXT = 400 };

static struct {
    pthread_mutex_t lock;
    int n;
    int levels[MOST_LINES];
    char lines[MOST_LINES][MOST_TEXT];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hear(void *arg, int level, const char *line) {
    (void)arg;
    pthread_mutex_lock(&said.lock);
    if (said.n < MOST_LINES) {
        said.levels[said.n] = level;
        snprintf(said.lines[said.n++], MOST_TEXT, "%s", line);
    }
    pthread_mutex_unlock(&said.lock);
}

static int heard_both(const char *part, const char *other) {
    int n = 0;
    pthread_mutex_lock(&said.lock);
    for (int i = 0; i < said.n; i++) {
        n += strstr(said.lines[i], part) != NULL && strstr(said.lines[i], other) != NULL;
    }
    pthread_mutex_unlock(&said.lock);
    return n;
}

static int heard(const char *part) { return heard_both(part, ""); }

static void show_unless(bool good) {
    for (int i = 0; i < said.n && !good; i++) {
        fprintf(stderr, "%s\n", said.lines[i]);
    }
}

static weft_config hearing(int procs) {
    weft_config c = config_of(procs);
    c.log = hear;
    said.n = 0;
    return c;
}

static void thread_sleep(int64_t ns) {
    struct timespec t = {.tv_sec = ns / WEFT_SECOND, .tv_nsec = ns % WEFT_SECOND};
    while (nanosleep(&t, &t) != 0) {
    }
}

/* ---- words ---------------------------------------------------------------------------------------- */

static int words(void *arg) {
    weft__debug *d = &weft_current()->debug;
    (void)arg;
    static const char *const bad[] = {"schedtrac",
                                      "schedtrace",
                                      "schedtrace=",
                                      "schedtrace=x",
                                      "schedtrace=5x",
                                      "schedtrace=-1",
                                      "watchdog",
                                      "watchdog=3600001",
                                      "scheddetail=2",
                                      "scheddetail= ",
                                      "watchdog=5,nosuch",
                                      " watchdog=5",
                                      "watchdog=99999999999999999999"};
    CHECK_EQ(weft_debug(NULL, NULL), -EINVAL);
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        CHECK_EQ(weft_debug(NULL, bad[i]), -EINVAL);
    }
    CHECK_EQ(d->schedtrace, 0);
    CHECK_EQ(d->watchdog, 0);
    CHECK_EQ(d->scheddetail, 0);
    CHECK_EQ(weft_debug(NULL, "scheddetail,watchdog=3600000,,"), 0);
    CHECK_EQ(d->watchdog, 3600 * WEFT_SECOND);
    CHECK_EQ(d->scheddetail, 1);
    CHECK_EQ(d->schedtrace, 0);
    CHECK_EQ(weft_debug(NULL, "scheddetail=0,watchdog=0"), 0);
    CHECK_EQ(weft_debug(NULL, ""), 0);
    CHECK_EQ(d->watchdog, 0);
    CHECK_EQ(d->scheddetail, 0);
    CHECK_EQ(said.n, 0);
    return 0;
}

TEST(debug, words) {
    CHECK_EQ(weft_debug(NULL, "watchdog=5"), WEFT_ENORUNTIME);
    weft_config c = hearing(1);
    CHECK_EQ(weft_run(words, NULL, &c, NULL), 0);
}

static int look_at_words(void *arg) {
    weft__debug *d = &weft_current()->debug;
    *(int *)arg = (int)(d->watchdog / WEFT_MILLISECOND);
    return 0;
}

TEST(debug, the_environment) {
    int ms = 0;
    weft_config c = hearing(1);
    CHECK_EQ(setenv("WEFT_DEBUG", "watchdog=70,nosuch=3,scheddetail=7", 1), 0);
    CHECK_EQ(weft_run(look_at_words, &ms, &c, NULL), 0); /* config_of: not read */
    CHECK_EQ(ms, 0);
    CHECK_EQ(said.n, 0);
    c.flags &= ~(unsigned)WEFT_IGNORE_ENV;
    CHECK_EQ(weft_run(look_at_words, &ms, &c, NULL), 0);
    CHECK_EQ(ms, 70);
    CHECK_EQ(said.n, 2);
    CHECK_STR(said.lines[0], "WEFT_DEBUG: unknown word \"nosuch=3\"; known are schedtrace=MS, "
                             "scheddetail, watchdog=MS");
    CHECK_STR(said.lines[1], "WEFT_DEBUG: \"scheddetail=7\": scheddetail is what can be said");
    CHECK_EQ(said.levels[0], WEFT_LOG_WARNING);
    CHECK_EQ(unsetenv("WEFT_DEBUG"), 0);
}

/* However long a word is, those that are known are listed behind it. */
TEST(debug, a_long_word_in_the_environment) {
    char text[1000];
    int ms;
    weft_config c = hearing(1);
    c.flags &= ~(unsigned)WEFT_IGNORE_ENV;
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    CHECK_EQ(setenv("WEFT_DEBUG", text, 1), 0);
    CHECK_EQ(weft_run(look_at_words, &ms, &c, NULL), 0);
    CHECK_EQ(said.n, 1);
    CHECK_EQ(heard("xxx\"; known are schedtrace=MS, scheddetail, watchdog=MS"), 1);
    CHECK_EQ(unsetenv("WEFT_DEBUG"), 0);
}

/* ---- schedtrace ----------------------------------------------------------------------------------- */

static atomic_bool stop;

static int waits(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        weft_sleep(WEFT_MILLISECOND);
    }
    return 0;
}

static int traced(void *arg) {
    (void)arg;
    CHECK_EQ(weft_go(waits, NULL), 0);
    CHECK_EQ(weft_sleep(20 * WEFT_MILLISECOND), 0);
    CHECK_EQ(heard("sched "), 0); /* off */
    CHECK_EQ(weft_debug(NULL, "schedtrace=2"), 0);
    UNTIL(heard("sched ") >= 3);
    CHECK_EQ(heard("  P "), 0);
    CHECK_EQ(weft_debug(NULL, "scheddetail"), 0);
    UNTIL(heard("  P 0: ") >= 2 && heard("  P 1: ") >= 2 && heard("  thread ") >= 1);
    CHECK_EQ(weft_debug(NULL, "schedtrace=0"), 0);
    for (int n = 0, before = -1; n != before;) { /* one may be under way; but they end */
        before = n;
        CHECK_EQ(weft_sleep(50 * WEFT_MILLISECOND), 0);
        n = heard("sched ");
    }
    CHECK_EQ(heard("sched "), heard(" ms: procs=2 idle="));
    atomic_store(&stop, true);
    return 0;
}

TEST(debug, schedtrace) {
    weft_config c = hearing(2);
    CHECK_EQ(weft_run(traced, NULL, &c, NULL), 0);
}

/* ---- the watchdog --------------------------------------------------------------------------------- */

static atomic_bool release;
static atomic_int ended;

static int blocks(void *arg) {
    (void)arg;
    weft_set_name("blocker");
    while (!atomic_load(&release)) {
        thread_sleep(5 * WEFT_MILLISECOND);
    }
    weft_sleep(WEFT_MILLISECOND);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int computes(void *arg) {
    (void)arg;
    weft_set_name("computer");
    while (!atomic_load(&release)) {
    }
    weft_sleep(WEFT_MILLISECOND);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static int parks_often(void *arg) {
    (void)arg;
    weft_set_name("innocent");
    while (atomic_load(&ended) < 2) {
        weft_sleep(100 * WEFT_MICROSECOND);
        weft_yield();
    }
    return 0;
}

static void play_round(bool on) {
    atomic_store(&release, false);
    atomic_store(&ended, 0);
    CHECK_EQ(weft_go(parks_often, NULL), 0);
    CHECK_EQ(weft_go(blocks, NULL), 0);
    CHECK_EQ(weft_go(computes, NULL), 0);
    if (on) {
        UNTIL(heard("(blocker), started at ") > 0 && heard("(computer), started at ") > 0);
    }
    CHECK_EQ(weft_sleep(150 * WEFT_MILLISECOND), 0);
    atomic_store(&release, true);
    UNTIL(atomic_load(&ended) == 2);
}

static int watched(void *arg) {
    (void)arg;
    play_round(false);
    CHECK_EQ(heard("watchdog"), 0);
    CHECK_EQ(weft_debug(NULL, "watchdog=60"), 0);
    play_round(true);
    return 0;
}

static void watch(int procs, unsigned flags) {
    weft_config c = hearing(procs);
    c.flags |= flags;
    CHECK_EQ(weft_run(watched, NULL, &c, NULL), 0);
    /* Whoever looks for lines waits for the lock of who writes them, which gets no CPU for long at times:
       then it has blocked, too. It has no name. */
    show_unless(heard("(blocker), started at ") == 1 && heard("(computer), started at ") == 1);
    CHECK_EQ(heard("(blocker), started at "), 1);
    CHECK_EQ(heard("(computer), started at "), 1);
    CHECK_EQ(heard("(innocent), started at "), 0);
    if (offers_thread_state()) { /* else who gets no CPU looks blocked */
        CHECK_EQ(heard_both("(blocker)", ": has blocked for "), 1);
        CHECK_EQ(heard_both("(computer)", ": has computed for "), 1);
    }
}

TEST(debug, watchdog) { watch(2, 0); }
TEST(debug, watchdog_of_one) { watch(1, 0); }
TEST(debug, watchdog_exclusive) { watch(4, WEFT_EXCLUSIVE); }

/* ---- on and off while it runs ---------------------------------------------------------------------- */

enum { BLOCKERS = 4 };
static atomic_int in_block;

static int blocks_once(void *arg) {
    weft_set_name("%s", (const char *)arg);
    weft_block_begin();
    atomic_fetch_add(&in_block, 1);
    while (!atomic_load(&release)) {
        thread_sleep(2 * WEFT_MILLISECOND);
    }
    weft_sleep(WEFT_MILLISECOND);
    atomic_fetch_add(&ended, 1);
    return 0;
}

static void start_blockers(const char *name) {
    atomic_store(&release, false);
    atomic_store(&in_block, 0);
    atomic_store(&ended, 0);
    for (int i = 0; i < BLOCKERS; i++) {
        CHECK_EQ(weft_go(blocks_once, (void *)(uintptr_t)name), 0);
    }
    UNTIL(atomic_load(&in_block) == BLOCKERS);
}

static void end_blockers(void) {
    atomic_store(&release, true);
    UNTIL(atomic_load(&ended) == BLOCKERS);
}

/* The threads that the second ones block on are those of the first. */
static int switched(void *arg) {
    (void)arg;
    CHECK_EQ(weft_debug(NULL, "watchdog=30"), 0);
    start_blockers("first");
    UNTIL(heard("(first)") == BLOCKERS);
    CHECK_EQ(weft_debug(NULL, "watchdog=0"), 0);
    end_blockers();
    start_blockers("second");
    CHECK_EQ(weft_sleep(100 * WEFT_MILLISECOND), 0);
    CHECK_EQ(heard("(second)"), 0); /* off */
    CHECK_EQ(weft_debug(NULL, "watchdog=30"), 0);
    int64_t end = clock_ns() + 8 * WEFT_SECOND;
    while (heard("(second)") < BLOCKERS && clock_ns() < end) {
        nap();
    }
    CHECK_EQ(heard("(second)"), BLOCKERS);
    CHECK_EQ(weft_sleep(100 * WEFT_MILLISECOND), 0);
    CHECK_EQ(heard("(second)"), BLOCKERS);
    end_blockers();
    CHECK_EQ(heard("(first)"), BLOCKERS);
    return 0;
}

TEST(debug, watchdog_switched_off_and_on) {
    weft_config c = hearing(2);
    CHECK_EQ(weft_run(switched, NULL, &c, NULL), 0);
}

static int wait_for_end(void *arg) {
    (void)arg;
    start_blockers("idle");
    return 0;
}

/* All Ps are idle and sysmon sleeps for ever: then it is switched on. */
TEST(debug, watchdog_switched_on_in_sleep) {
    weft_runtime *rt;
    weft_config c = hearing(2);
    CHECK_EQ(weft_start(&rt, &c), 0);
    CHECK_EQ(weft_submit(rt, wait_for_end, NULL), 0);
    UNTIL(atomic_load(&in_block) == BLOCKERS &&
          atomic_load(&rt->sysmon_sleep) == WEFT__SYSMON_FOR_EVER);
    CHECK_EQ(weft_debug(rt, "watchdog=20"), 0);
    int64_t end = clock_ns() + 8 * WEFT_SECOND;
    while (heard("(idle), started at ") < BLOCKERS && clock_ns() < end) {
        nap();
    }
    CHECK_EQ(heard("(idle), started at "), BLOCKERS);
    CHECK_EQ(weft_debug(rt, "watchdog=0"), 0);
    UNTIL(atomic_load(&rt->sysmon_sleep) == WEFT__SYSMON_FOR_EVER); /* and sleeps so again */
    end_blockers();
    CHECK_EQ(weft_stop(rt, -1), 0);
}

static int stays_twice(void *arg) {
    (void)arg;
    CHECK_EQ(weft_debug(NULL, "watchdog=20"), 0);
    weft_set_name("twice");
    for (int i = 1; i <= 3; i++) {
        while (heard("(twice)") < i) {
            thread_sleep(WEFT_MILLISECOND);
        }
        thread_sleep(60 * WEFT_MILLISECOND);
        CHECK_EQ(heard("(twice)"), i); /* no more of this stay */
        CHECK_EQ(weft_sleep(WEFT_MILLISECOND), 0);
    }
    return 0;
}

TEST(debug, watchdog_tells_each_stay) {
    for (int procs = 1; procs <= 2; procs++) {
        weft_config c = hearing(procs);
        CHECK_EQ(weft_run(stays_twice, NULL, &c, NULL), 0);
        CHECK_EQ(heard("watchdog: "), 3);
    }
}

/* ---- who runs where, and since when ------------------------------------------------------------------ */

static int detailed(void *arg) {
    char want[64];
    (void)arg;
    start_blockers("detail");
    CHECK_EQ(weft_debug(NULL, "schedtrace=5,scheddetail"), 0);
    for (weft_id id = 2; id <= 1 + BLOCKERS; id++) {
        snprintf(want, sizeof want, "no P, runs green thread %llu for ", (unsigned long long)id);
        UNTIL(heard(want) >= 2);
    }
    UNTIL(heard("without_p=4 ") >= 1);
    end_blockers();
    return 0;
}

TEST(debug, scheddetail_shows_since_when) {
    weft_config c = hearing(1);
    CHECK_EQ(weft_run(detailed, NULL, &c, NULL), 0);
}

/* ---- short stays, one after another ------------------------------------------------------------------ */

static int blocks_shortly(void *arg) {
    int64_t longest = 0;
    weft_set_name("short");
    CHECK_EQ(weft_debug(NULL, "watchdog=100"), 0);
    for (int64_t end = clock_ns() + 500 * WEFT_MILLISECOND, now; (now = clock_ns()) < end;) {
        weft_block_begin();
        thread_sleep(3 * WEFT_MILLISECOND);
        weft_block_end();
        int64_t took = clock_ns() - now;
        longest = took > longest ? took : longest;
    }
    *(int64_t *)arg = longest;
    return 0;
}

/* Each look sees the same green thread blocked on the same thread; it has called weft in between. */
TEST(debug, watchdog_tells_no_short_stays_together) {
    int64_t longest = INT64_MAX;
    while (longest >= 100 * WEFT_MILLISECOND) { /* else it has stayed so long, on a busy machine */
        weft_config c = hearing(2);
        CHECK_EQ(weft_run(blocks_shortly, &longest, &c, NULL), 0);
    }
    CHECK_EQ(heard("watchdog: "), 0);
}
