/* unit/config.c: what weft_start and weft_run make of a configuration and of the environment. */
#include "world.h"

#include "os/cpu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    int lines, level;
    void *arg;
    char last[512];
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_line(void *arg, int level, const char *line) {
    pthread_mutex_lock(&logged.lock);
    logged.lines++;
    logged.level = level;
    logged.arg = arg;
    snprintf(logged.last, sizeof logged.last, "%s", line);
    pthread_mutex_unlock(&logged.lock);
}

static weft_config logging(void) {
    weft_config c = weft_config_default();
    c.log = keep_line;
    c.hook_arg = &logged;
    logged.lines = 0;
    return c;
}

/* Starts with c, which must work, and stops: how many Ps it had. */
static int procs_with(const weft_config *c) {
    weft_runtime *r = NULL;
    CHECK_EQ(weft_start(&r, c), 0);
    int n = weft_procs(r);
    CHECK_EQ(weft_stop(r, WEFT_SECOND * 10), 0);
    return n;
}

static void refused(const weft_config *c, int error) {
    weft_runtime *const before = (weft_runtime *)&logged;
    weft_runtime *r = before;
    CHECK_EQ(weft_start(&r, c), error);
    CHECK(r == before);
}

static int seven(void *arg) {
    (void)arg;
    return 7;
}

TEST(config, null_and_default_are_the_same) {
    unsetenv("WEFT_PROCS");
    unsetenv("WEFT_STACK");
    weft_config c = weft_config_default();
    CHECK_EQ(c.size, sizeof c);
    CHECK_EQ(procs_with(NULL), weft__cpu_default_procs(""));
    CHECK_EQ(procs_with(&c), weft__cpu_default_procs(""));
    int status = 0;
    CHECK_EQ(weft_run(seven, NULL, NULL, NULL), 0);
    CHECK_EQ(weft_run(seven, NULL, NULL, &status), 0);
    CHECK_EQ(status, 7);
}

TEST(config, no_function_or_result_to_start_with) {
    int status = 5;
    CHECK_EQ(weft_run(NULL, NULL, NULL, &status), -EINVAL);
    CHECK_EQ(status, 5);
    CHECK_EQ(weft_start(NULL, NULL), -EINVAL);
}

/* A caller built against an older header has a shorter struct: what it lacks is zero. */
TEST(config, shorter_struct) {
    weft_config c = config_of(3);
    memset((char *)&c + offsetof(weft_config, max_threads), 0xff,
           sizeof c - offsetof(weft_config, max_threads));
    c.size = offsetof(weft_config, max_threads);
    CHECK_EQ(procs_with(&c), 3);
    c.size = 0;
    refused(&c, -EINVAL);
    c.size = offsetof(weft_config, name);
    refused(&c, -EINVAL);
}

/* And one of a newer header a longer one: what we do not know must ask for nothing. */
TEST(config, longer_struct) {
    struct {
        weft_config c;
        char more[24];
    } newer = {config_of(2), {0}};
    newer.c.size = sizeof newer;
    CHECK_EQ(procs_with(&newer.c), 2);
    newer.more[23] = 1;
    refused(&newer.c, -EINVAL);
}

TEST(config, bad_values) {
    weft_config c = config_of(-1);
    refused(&c, -EINVAL);
    c = config_of(1025);
    refused(&c, -EINVAL);
    c = config_of(2);
    c.max_threads = -1;
    refused(&c, -EINVAL);
    c.max_threads = 2;
    refused(&c, -EINVAL);
    c = config_of(2);
    c.stack_size = 1;
    refused(&c, -EINVAL);
    c.stack_size = 16 * 1024 - 1;
    refused(&c, -EINVAL);
    c.stack_size = SIZE_MAX;
    refused(&c, -EINVAL);
    int status = 9;
    CHECK_EQ(weft_run(seven, NULL, &c, &status), -EINVAL);
    CHECK_EQ(status, 9);
}

TEST(config, a_refused_start_leaves_nothing) {
    weft_config bad = config_of(2);
    bad.stack_size = SIZE_MAX; /* found out when parts have been made */
    CHECK_EQ(procs_with(NULL) > 0, 1);
    int threads = threads_now(), fds = fds_now();
    for (int i = 0; i < 20; i++) {
        refused(&bad, -EINVAL);
    }
    UNTIL(threads_now() <= threads); /* a joined thread is listed until the kernel buries it */
    CHECK_EQ(fds_now(), fds);
}

TEST(config, as_many_procs_as_there_may_be) {
    weft_config c = config_of(1024);
    int status = 0;
    CHECK_EQ(weft_run(seven, NULL, &c, &status), 0);
    CHECK_EQ(status, 7);
    CHECK_EQ(procs_with(&c), 1024);
}

/* ---- environment ---- */

TEST(config, procs_from_the_environment) {
    setenv("WEFT_PROCS", "3", 1);
    CHECK_EQ(procs_with(NULL), 3);
    weft_config c = weft_config_default();
    c.procs = 2;
    CHECK_EQ(procs_with(&c), 2);
    c.procs = 0;
    c.flags = WEFT_IGNORE_ENV;
    CHECK_EQ(procs_with(&c), weft__cpu_default_procs(""));
    setenv("WEFT_PROCS", "", 1);
    CHECK_EQ(procs_with(NULL), weft__cpu_default_procs(""));
}

TEST(config, bad_procs_in_the_environment_are_reported_and_ignored) {
    static const char *const bad[] = {"0", "-2", "1025", "two", "2x", " ", "99999999999999999999"};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        setenv("WEFT_PROCS", bad[i], 1);
        weft_config c = logging();
        CHECK_EQ(procs_with(&c), weft__cpu_default_procs(""));
        CHECK_EQ(logged.lines, 1);
        CHECK_EQ(logged.level, WEFT_LOG_WARNING);
        CHECK(logged.arg == &logged);
        CHECK(strstr(logged.last, "WEFT_PROCS") != NULL);
        c.flags = WEFT_IGNORE_ENV;
        logged.lines = 0;
        procs_with(&c);
        CHECK_EQ(logged.lines, 0);
    }
}

/* How many bytes one green thread's stack has. */
static int stack_bytes(void *arg) {
    weft_stats s;
    CHECK_EQ(weft_stats_read(NULL, &s, sizeof s), 0);
    *(uint64_t *)arg = s.stack_bytes_reserved; /* of main alone */
    return 0;
}

static uint64_t stack_with(weft_config c) {
    uint64_t bytes = 0;
    CHECK_EQ(weft_run(stack_bytes, &bytes, &c, NULL), 0);
    return bytes;
}

TEST(config, stack_sizes) {
    unsetenv("WEFT_STACK");
    weft_config c = weft_config_default();
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    CHECK_EQ(stack_with(c), 256 * 1024);
    c.stack_size = 16 * 1024;
    CHECK_EQ(stack_with(c), 16 * 1024);
    c.stack_size = 64 * 1024 + 1;
    CHECK_EQ(stack_with(c), 64 * 1024 + page);
    c.stack_size = 8 << 20;
    CHECK_EQ(stack_with(c), 8 << 20);
}

TEST(config, stack_size_from_the_environment) {
    weft_config c = weft_config_default();
    setenv("WEFT_STACK", "65536", 1);
    CHECK_EQ(stack_with(c), 65536);
    setenv("WEFT_STACK", "32K", 1);
    CHECK_EQ(stack_with(c), 32 * 1024);
    setenv("WEFT_STACK", "1m", 1);
    CHECK_EQ(stack_with(c), 1 << 20);
    c.stack_size = 128 * 1024;
    CHECK_EQ(stack_with(c), 128 * 1024);
    c.stack_size = 0;
    c.flags = WEFT_IGNORE_ENV;
    CHECK_EQ(stack_with(c), 256 * 1024);
}

TEST(config, bad_stack_size_in_the_environment_is_reported_and_ignored) {
    static const char *const bad[] = {"0", "16383", "15K", "-1", "64G", "K", "64K "};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        setenv("WEFT_STACK", bad[i], 1);
        weft_config c = logging();
        CHECK_EQ(stack_with(c), 256 * 1024);
        CHECK_EQ(logged.lines, 1);
        CHECK_EQ(logged.level, WEFT_LOG_WARNING);
        CHECK(strstr(logged.last, "WEFT_STACK") != NULL);
    }
}

/* ---- bounds ---- */

static int sleep_on(void *arg) {
    weft_event_wait(arg);
    return 0;
}

static int bounded_gs(void *arg) {
    (void)arg;
    static weft_event go_on; /* main ends before the last of them, who may not have begun */
    go_on = (weft_event)WEFT_EVENT_INIT;
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_go(sleep_on, &go_on), 0); /* with main: five */
    }
    CHECK_EQ(weft_go(sleep_on, &go_on), -EAGAIN);
    CHECK_EQ(weft_go_copy(sleep_on, &go_on, sizeof go_on), -EAGAIN);
    CHECK_EQ(weft_submit(NULL, sleep_on, &go_on), -EAGAIN);
    weft_waitgroup w = WEFT_WAITGROUP_INIT;
    CHECK_EQ(weft_waitgroup_go(&w, sleep_on, &go_on), -EAGAIN);
    weft_waitgroup_wait(&w); /* a failed go counts nothing */
    weft_event_set(&go_on);
    int err;
    while ((err = weft_waitgroup_go(&w, seven, NULL)) == -EAGAIN) {
        weft_yield();
    }
    CHECK_EQ(err, 0);
    weft_waitgroup_wait(&w);
    return 0;
}

TEST(config, max_gs) {
    for (int procs = 1; procs <= 4; procs *= 2) {
        weft_config c = config_of(procs);
        c.max_gs = 5;
        int status = 1;
        CHECK_EQ(weft_run(bounded_gs, NULL, &c, &status), 0);
        CHECK_EQ(status, 0);
    }
}

static int set_event(void *arg) {
    weft_event_set(arg);
    return 0;
}

/* A function timer that comes due at the bound fires once there is room. */
static int timer_at_the_bound(void *arg) {
    (void)arg;
    weft_event fired = WEFT_EVENT_INIT, go_on = WEFT_EVENT_INIT;
    CHECK_EQ(weft_go(sleep_on, &go_on), 0);
    CHECK_EQ(weft_after_func(NULL, 0, set_event, &fired, NULL), 0);
    CHECK_EQ(weft_event_wait_until(&fired, weft_in(20 * WEFT_MILLISECOND)), -ETIMEDOUT);
    weft_event_set(&go_on);
    weft_event_wait(&fired);
    return 0;
}

TEST(config, a_timer_waits_for_room) {
    weft_config c = config_of(1);
    c.max_gs = 2;
    CHECK_EQ(weft_run(timer_at_the_bound, NULL, &c, NULL), 0);
}

static int bounded_stacks(void *arg) {
    (void)arg;
    weft_event go_on = WEFT_EVENT_INIT;
    int made = 0, err;
    while ((err = weft_go(sleep_on, &go_on)) == 0) {
        CHECK_LT(++made, 100);
    }
    CHECK_EQ(err, -ENOMEM);
    CHECK_EQ(made, 3);
    weft_event_set(&go_on);
    while ((err = weft_go(seven, NULL)) == -ENOMEM) { /* the dead leave their stacks */
        weft_yield();
    }
    CHECK_EQ(err, 0);
    return 0;
}

TEST(config, max_stack_bytes) {
    weft_config c = config_of(2);
    c.stack_size = 64 * 1024;
    c.max_stack_bytes = 4 * 64 * 1024;
    CHECK_EQ(weft_run(bounded_stacks, NULL, &c, NULL), 0);
}

/* ---- names ---- */

static int named_threads(const char *name) {
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[64], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (f != NULL) {
            if (fgets(comm, sizeof comm, f) != NULL) {
                comm[strcspn(comm, "\n")] = 0;
                n += strcmp(comm, name) == 0;
            }
            fclose(f);
        }
    }
    closedir(d);
    return n;
}

TEST(config, thread_names) {
    weft_config c = config_of(2);
    weft_runtime *a, *b;
    CHECK_EQ(weft_start(&a, &c), 0);
    UNTIL(named_threads("weft") > 0);
    char name[] = "a-name-longer-than-threads-may-have";
    c.name = name;
    CHECK_EQ(weft_start(&b, &c), 0);
    memset(name, 'x', 5); /* it was copied */
    UNTIL(named_threads("a-name-longer-t") > 0);
    CHECK_EQ(weft_stop(a, -1), 0);
    UNTIL(named_threads("weft") == 0); /* as above: buried a moment later */
    CHECK_EQ(weft_stop(b, -1), 0);
}

/* ---- hooks ---- */

static void on_fatal(void *arg, const char *text) {
    static const char says[] = "hook called\n";
    (void)!write(STDERR_FILENO, says, sizeof says - 1);
    if (arg == &logged && strstr(text, "weft: fatal: ") != NULL) {
        static const char ok[] = "with its argument and the text\n";
        (void)!write(STDERR_FILENO, ok, sizeof ok - 1);
    }
}

static int unlock_the_unlocked(void *arg) {
    (void)arg;
    weft_mutex m = WEFT_MUTEX_INIT;
    weft_mutex_unlock(&m);
    return 0;
}

static void die(void *arg) {
    (void)arg;
    weft_config c = config_of(1);
    c.fatal = on_fatal;
    c.hook_arg = &logged;
    int err = weft_run(unlock_the_unlocked, NULL, &c, NULL);
    (void)err;
}

TEST(config, fatal_hook) {
    CHECK_FAILS(SIGABRT, "hook called\nwith its argument and the text\n", die, NULL);
    CHECK_FAILS(SIGABRT, "green thread 1", die, NULL);
}
