/* field/procs.c: the default number of Ps. Case C68. */
#include "field/field.h"
#include "offers.h"
#include "runner/refused.h"
#include "scratch.h"

#include <errno.h>
#include <sched.h>
#include <sys/stat.h>

/* While it is set, what the runtime opens of its control groups lies below it. */
static char root[SCRATCH_BYTES];

static void put(const char *path, const char *text) {
    char full[SCRATCH_BYTES + 256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        CHECK(mkdir(full, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *out = fopen(full, "we");
    CHECK(out != NULL);
    fputs(text, out);
    fclose(out);
}

static void new_root(void) {
    CHECK(scratch_dir(root));
    refused_root = root;
}

static void drop_root(void) {
    refused_root = NULL;
    scratch_remove(root);
}

#define ROOT_MOUNT "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"

static void version_2(const char *cpu_max) {
    put("/proc/self/cgroup", "0::/job\n");
    put("/proc/self/mountinfo",
        ROOT_MOUNT "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/job/cpu.max", cpu_max);
}

static void version_1(const char *quota, const char *period) {
    put("/proc/self/cgroup", "4:cpu,cpuacct:/job\n1:name=systemd:/x\n");
    put("/proc/self/mountinfo", ROOT_MOUNT
        "32 22 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n");
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota);
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", period);
}

static int ask(void *arg) {
    *(int *)arg = weft_procs(NULL);
    return 0;
}

static int procs_by_default(void) {
    int n = 0;
    CHECK_EQ(weft_run(ask, &n, NULL, NULL), 0);
    return n;
}

static int allowed(void) {
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

/* What a quota of n CPUs leaves. Without /proc nobody knows of it; and that is where states come from. */
static int at_most_allowed(int n) { return offers_thread_state() && n < allowed() ? n : allowed(); }

/* As taskset does it. */
static int procs_on_one_cpu(void) {
    cpu_set_t all, one;
    int cpu = 0;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    int n = procs_by_default();
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    return n;
}

/* ---- the default is followed ------------------------------------------------------------------------ */

static void expect_procs(int n) {
    while (weft_procs(NULL) != n) { /* there is work: it is looked at */
        CHECK_EQ(weft_sleep(MS), 0);
    }
}

static int follow(void *arg) {
    (void)arg;
    int all = weft_procs(NULL);
    version_2("50000 100000\n");
    expect_procs(1);
    version_2("max 100000\n");
    expect_procs(all);
    CHECK_EQ(weft_set_procs(NULL, all + 2), 0); /* not the default any more */
    version_2("50000 100000\n");
    CHECK_EQ(weft_sleep(1500 * MS), 0);
    CHECK_EQ(weft_procs(NULL), all + 2);
    CHECK_EQ(weft_set_procs(NULL, 0), 0);
    CHECK_EQ(weft_procs(NULL), 1);
    version_2("max 100000\n");
    expect_procs(all);
    return 0;
}

TEST_IN(field, quota_is_followed, 60) {
    if (!offers_thread_state() || allowed() == 1) {
        test_skip("no quota is seen without /proc, and none changes anything on one CPU");
    }
    unsetenv("WEFT_PROCS");
    new_root();
    version_2("max 100000\n");
    CHECK_EQ(weft_run(follow, NULL, NULL, NULL), 0);
    drop_root();
}

TEST_IN(field, C68, 60) {
    unsetenv("WEFT_PROCS");
    new_root(); /* empty: whatever this machine's own limits are */
    CHECK_EQ(procs_on_one_cpu(), 1);
    CHECK_EQ(procs_by_default(), allowed());

    CHECK_EQ(setenv("WEFT_PROCS", "3", 1), 0);
    CHECK_EQ(procs_by_default(), 3);
    version_2("50000 100000\n");
    CHECK_EQ(procs_by_default(), 3);
    CHECK_EQ(procs_on_one_cpu(), 3);
    unsetenv("WEFT_PROCS");

    version_2("150000 100000\n");
    CHECK_EQ(procs_by_default(), at_most_allowed(2));
    version_2("50000 100000\n");
    CHECK_EQ(procs_by_default(), at_most_allowed(1));
    version_2("max 100000\n");
    CHECK_EQ(procs_by_default(), allowed());
    drop_root();

    new_root();
    version_1("150000\n", "100000\n");
    CHECK_EQ(procs_by_default(), at_most_allowed(2));
    version_1("50000\n", "100000\n");
    CHECK_EQ(procs_by_default(), at_most_allowed(1));
    version_1("-1\n", "100000\n");
    CHECK_EQ(procs_by_default(), allowed());
    drop_root();
}
