/* unit/cpu.c: the default number of Ps. Control groups are files in a tree of our own, laid out as
   machines and containers have them. */
#define _GNU_SOURCE 1
#include "os/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "test.h"

static char root[SCRATCH_BYTES];

static void tree_remove(void) { scratch_remove(root); }

static void tree_begin(void) { CHECK(scratch_dir(root)); }

static void put_bytes(const char *path, const char *bytes, size_t n) {
    char full[8192];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        CHECK(mkdir(full, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK_GE(fd, 0);
    CHECK_EQ(write(fd, bytes, n), n);
    close(fd);
}

static void put(const char *path, const char *text) { put_bytes(path, text, strlen(text)); }

#define MOUNT_ROOT "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
#define MOUNT_V2 "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1_CPU                                                                               \
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
#define MOUNT_V1_OTHER                                                                             \
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw master:3 propagate_from:2 - cgroup cgroup rw,cpuset\n"

static void process(const char *cgroup, const char *mountinfo) {
    put("/proc/self/cgroup", cgroup);
    put("/proc/self/mountinfo", mountinfo);
}

static int quota(void) { return weft__cpu_quota(root); }

static int at_most(int cpus) {
    int allowed = weft__cpu_allowed();
    return cpus < allowed ? cpus : allowed;
}

static void v2_quota(const char *cpu_max) { put("/sys/fs/cgroup/job/cpu.max", cpu_max); }

/* C68 */
TEST(cpu, version_2) {
    tree_begin();
    process("0::/job\n", MOUNT_ROOT MOUNT_V2);
    CHECK_EQ(quota(), INT_MAX);
    v2_quota("150000 100000\n");
    CHECK_EQ(quota(), 2);
    CHECK_EQ(weft__cpu_default_procs(root), at_most(2));
    v2_quota("50000 100000\n");
    CHECK_EQ(quota(), 1);
    CHECK_EQ(weft__cpu_default_procs(root), 1);
    v2_quota("max 100000\n");
    CHECK_EQ(quota(), INT_MAX);
    CHECK_EQ(weft__cpu_default_procs(root), weft__cpu_allowed());
    tree_remove();
}

static void v1_quota(const char *quota_us, const char *period_us) {
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", quota_us);
    put("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", period_us);
}

TEST(cpu, version_1) {
    tree_begin();
    process("5:cpuset:/elsewhere\n4:cpu,cpuacct:/job\n1:name=systemd:/x\n",
            MOUNT_ROOT MOUNT_V1_OTHER MOUNT_V1_CPU);
    CHECK_EQ(quota(), INT_MAX);
    v1_quota("150000\n", "100000\n");
    CHECK_EQ(quota(), 2);
    v1_quota("50000\n", "100000\n");
    CHECK_EQ(quota(), 1);
    CHECK_EQ(weft__cpu_default_procs(root), 1);
    v1_quota("-1\n", "100000\n");
    CHECK_EQ(quota(), INT_MAX);
    tree_remove();
}

/* A controller whose name only contains "cpu" is another one. */
TEST(cpu, version_1_by_the_controller_cpu_only) {
    tree_begin();
    process("5:cpuset:/job\n6:cpuacct:/job\n", MOUNT_ROOT MOUNT_V1_OTHER MOUNT_V1_CPU);
    v1_quota("100000\n", "100000\n");
    CHECK_EQ(quota(), INT_MAX);
    process("7:cpuacct,cpu:/job\n", MOUNT_ROOT MOUNT_V1_OTHER);
    put("/sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpuset/job/cpu.cfs_period_us", "100000\n");
    CHECK_EQ(quota(), INT_MAX);
    process("7:cpuacct,cpu:/job\n", MOUNT_ROOT MOUNT_V1_OTHER MOUNT_V1_CPU);
    CHECK_EQ(quota(), 1);
    tree_remove();
}

TEST(cpu, rounded_up_with_odd_periods) {
    tree_begin();
    process("0::/job\n", MOUNT_V2);
    static const struct {
        const char *text;
        int cpus;
    } cases[] = {
        {"1000 1000000", 1},
        {"33333 33333", 1},
        {"33334 33333", 2},
        {"99999 33333", 3},
        {"100000 33333", 4},
        {"400001 100000", 5},
        {"9223372036854775807 1", INT_MAX},
        {"1 9223372036854775807", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        v2_quota(cases[i].text);
        CHECK_EQ(quota(), cases[i].cpus);
    }
    tree_remove();
}

/* More than there are CPUs to run on. */
TEST(cpu, quota_beyond_the_cpus) {
    tree_begin();
    process("0::/job\n", MOUNT_V2);
    v2_quota("6400000 100000\n");
    CHECK_EQ(quota(), 64);
    CHECK_EQ(weft__cpu_default_procs(root), at_most(64));
    tree_remove();
}

TEST(cpu, tightest_ancestor) {
    tree_begin();
    process("0::/a/b/c\n", MOUNT_ROOT MOUNT_V2);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    CHECK_EQ(quota(), 8);
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    CHECK_EQ(quota(), 8);
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    CHECK_EQ(quota(), 3);
    put("/sys/fs/cgroup/a/b/cpu.max", "500000 100000\n");
    CHECK_EQ(quota(), 3);
    /* The mount's top counts, what is beside or above it does not. */
    put("/sys/fs/cgroup/a/b/other/cpu.max", "100000 100000\n");
    put("/sys/fs/cpu.max", "100000 100000\n");
    CHECK_EQ(quota(), 3);
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    CHECK_EQ(quota(), 2);
    tree_remove();
}

/* The group was removed under the process: its ancestors still hold. */
TEST(cpu, deleted_group) {
    tree_begin();
    process("0::/a/gone (deleted)\n", MOUNT_V2);
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    CHECK_EQ(quota(), 3);
    tree_remove();
}

/* Version 1 has the controller and version 2 is mounted for other purposes; or the other way about. */
TEST(cpu, both_versions) {
    tree_begin();
    process("4:cpu,cpuacct:/job\n0::/job\n", MOUNT_ROOT
            "40 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" MOUNT_V1_CPU);
    v1_quota("250000\n", "100000\n");
    put("/sys/fs/cgroup/unified/job/cgroup.procs", "1\n");
    CHECK_EQ(quota(), 3);
    v1_quota("-1\n", "100000\n");
    CHECK_EQ(quota(), INT_MAX);
    put("/sys/fs/cgroup/unified/job/cpu.max", "400000 100000\n");
    CHECK_EQ(quota(), 4);
    tree_remove();
}

/* A container that sees only its own part: the name of the group is longer than the path. */
TEST(cpu, mounted_from_a_group_downwards) {
    tree_begin();
    process("0::/docker/0123/inner\n",
            MOUNT_ROOT "31 22 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/inner/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/docker/0123/inner/cpu.max", "100000 100000\n");
    CHECK_EQ(quota(), 2);
    process("4:cpu,cpuacct:/docker/0123\n",
            "32 31 0:29 /docker/0123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpuacct,cpu\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK_EQ(quota(), 4);
    tree_remove();
}

/* The group lies outside of what is mounted: what is mounted is all that can be known. */
TEST(cpu, group_outside_of_the_mount) {
    tree_begin();
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    process("0::/kubepods/pod7\n",
            "31 22 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    CHECK_EQ(quota(), 2);
    process("0::/../other\n", MOUNT_V2);
    CHECK_EQ(quota(), 2);
    process("0::/docker/01234\n", "31 22 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 c rw\n");
    CHECK_EQ(quota(), 2);
    /* Another mount shows it: then that one counts alone. */
    process("0::/job\n", "31 22 0:26 /else /sys/fs/cgroup ro - cgroup2 c rw\n"
                         "32 22 0:26 / /host/cgroup ro - cgroup2 c rw\n");
    put("/host/cgroup/job/cpu.max", "500000 100000\n");
    CHECK_EQ(quota(), 5);
    tree_remove();
}

TEST(cpu, escaped_mount_point) {
    tree_begin();
    process("0::/my job\n", "31 22 0:26 / /sys/fs/a\\040b\\134c rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/a b\\c/my job/cpu.max", "200000 100000\n");
    CHECK_EQ(quota(), 2);
    tree_remove();
}

TEST(cpu, nothing_there) {
    tree_begin();
    CHECK_EQ(quota(), INT_MAX);
    CHECK_EQ(weft__cpu_default_procs(root), weft__cpu_allowed());
    process("0::/job\n", MOUNT_ROOT);
    CHECK_EQ(quota(), INT_MAX);
    process("", "");
    CHECK_EQ(quota(), INT_MAX);
    tree_remove();
}

TEST(cpu, malformed_quotas) {
    static const char *const bad[] = {
        "",
        "\n",
        " ",
        "max",
        "150000",
        "150000 ",
        "150000 0",
        "0 100000",
        "-1 100000",
        "1e5 1000",
        "150000 max",
        "100000 100000x",
        "0x10 100000",
        "100000  100000",
        "99999999999999999999 1",
        "100000 99999999999999999999",
        "100000\t100000",
        "+1 100000",
    };
    tree_begin();
    process("0::/job\n", MOUNT_V2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v2_quota(bad[i]);
        CHECK_EQ(quota(), INT_MAX);
    }
    put_bytes("/sys/fs/cgroup/job/cpu.max", "100000\0 100000", 14);
    CHECK_EQ(quota(), INT_MAX);
    char endless[5000];
    memset(endless, '1', sizeof endless);
    put_bytes("/sys/fs/cgroup/job/cpu.max", endless, sizeof endless);
    CHECK_EQ(quota(), INT_MAX);
    tree_remove();
}

/* Lines that are not what they should be hide nothing of those behind them. */
TEST(cpu, malformed_tables) {
    static char cgroup[20000], mountinfo[40000];
    tree_begin();
    put("/sys/fs/cgroup/job/cpu.max", "200000 100000\n");
    memset(cgroup, 'x', 9000);
    snprintf(cgroup + 9000, sizeof cgroup - 9000,
             "\n\n:\n::\n0\n0:\n0::\n0::job\n9:cpu\n0::/job\n");
    memset(mountinfo, 'y', 9000);
    snprintf(mountinfo + 9000, sizeof mountinfo - 9000,
             "\n\n \n- - -\n1 2 3 4 5 6 - cgroup2\n1 2 3 / relative rw - cgroup2 x rw\n"
             "1 2 3 / /sys/fs/cgroup rw cgroup2 x rw\n%s",
             MOUNT_V2);
    process(cgroup, mountinfo);
    CHECK_EQ(quota(), 2);
    /* A path too long to be one. */
    size_t n = (size_t)snprintf(cgroup, sizeof cgroup, "0::");
    for (int i = 0; i < 2030; i++) n += (size_t)snprintf(cgroup + n, sizeof cgroup - n, "/a");
    process(cgroup, MOUNT_V2);
    quota();
    tree_remove();
}

/* Any bytes in any of the files: no crash, at least one P. */
TEST(cpu, random_files) {
    static const char letters[] = "01:/- ,\n\\acgroup2cpumax\0";
    static const char *const files[] = {"/proc/self/cgroup", "/proc/self/mountinfo",
                                        "/sys/fs/cgroup/job/cpu.max"};
    char bytes[6000];
    tree_begin();
    srand(7);
    for (int round = 0; round < 500; round++) {
        process("0::/job\n4:cpu:/job\n", MOUNT_V2 MOUNT_V1_CPU);
        v2_quota("100000 100000\n");
        size_t n = (size_t)rand() % sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = letters[(size_t)rand() % sizeof letters];
        put_bytes(files[round % 3], bytes, n);
        CHECK_GE(weft__cpu_default_procs(root), 1);
        CHECK_LE(weft__cpu_default_procs(root), weft__cpu_allowed());
    }
    tree_remove();
}

/* On whatever machine this runs. */
TEST(cpu, this_process) {
    cpu_set_t one;
    int allowed = weft__cpu_allowed();
    CHECK_GE(allowed, 1);
    CHECK_LE(allowed, sysconf(_SC_NPROCESSORS_CONF));
    CHECK_GE(weft__cpu_default_procs(""), 1);
    CHECK_LE(weft__cpu_default_procs(""), allowed);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(weft__cpu_allowed(), 1);
    CHECK_EQ(weft__cpu_default_procs(""), 1);
    CHECK(weft__cpu_env_allowed());
}
