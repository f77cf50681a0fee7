/* os/cpu.c: counts CPUs: the affinity mask, and the CPU quotas of Linux control groups.

   A quota holds for a group and everything below it, so the one that counts is the tightest from the
   process's own group up to the top of what is mounted here. Where these are is told by two files:

       /proc/self/cgroup      which group: "0::/user/job", or for version 1 "4:cpu,cpuacct:/user/job"
       /proc/self/mountinfo   where groups are mounted, and from which group downwards

   Both versions may be there at once; the controller belongs to one of them, and the files of the
   other say nothing. In a container the group's name may be one that is outside of the mount; then
   the mount's top is what we can see of it.

   Everything is read into small buffers on the stack. A line that does not fit or does not read as
   it should counts as not there. */
#define _GNU_SOURCE 1
#include "os/cpu.h"
#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096, CHUNK_BYTES = 512, MAX_CPUS = 1 << 16 };

enum version { CGROUP_V1 = 1, CGROUP_V2 = 2 };

struct lines {
    int fd;
    size_t at, len; /* what is left of the chunk */
    char chunk[CHUNK_BYTES];
};

/* One line of mountinfo, cut into the fields that matter. They point into the line. */
struct mount {
    char *top;   /* the group that is mounted */
    char *point; /* where */
    char *type;
    char *options; /* of the file system: for version 1 these name the controllers */
};

/* Reading. */

static bool lines_open(struct lines *r, const char *root, const char *path) {
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || n >= (int)sizeof full) return false;
    r->fd = weft__file_open_raw(full); /* sysmon asks, too */
    r->at = r->len = 0;
    return r->fd >= 0;
}

static int lines_char(struct lines *r) {
    if (r->at == r->len) {
        ssize_t n;
        do n = weft__file_read_raw(r->fd, r->chunk, sizeof r->chunk);
        while (n < 0 && errno == EINTR);
        if (n <= 0) return -1;
        r->at = 0;
        r->len = (size_t)n;
    }
    return (unsigned char)r->chunk[r->at++];
}

/* The next line that fits, without its end. Longer ones, and those with a zero in them, are left
   out: half a path is another path. */
static bool lines_next(struct lines *r, char *line, size_t bytes) {
    for (;;) {
        size_t n = 0;
        bool whole = true;
        int c;
        while ((c = lines_char(r)) > 0 && c != '\n') {
            if (n + 1 < bytes) {
                line[n++] = (char)c;
            } else {
                whole = false;
            }
        }
        if (c == 0) whole = false;
        while (c >= 0 && c != '\n') c = lines_char(r);
        line[n] = 0;
        if (c < 0 && n == 0) return false;
        if (whole) return true;
        if (c < 0) return false;
    }
}

/* Takes the next field of *rest, up to `end`. NULL: there is none. */
static char *field(char **rest, char end) {
    char *start = *rest;
    if (!start) return NULL;
    char *stop = strchr(start, end);
    if (stop) *stop++ = 0;
    *rest = stop;
    return start;
}

static bool list_has(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, word, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
    }
    return false;
}

/* A number of microseconds, and nothing else up to the end or a blank, which *text is left at. */
static bool number(const char **text, int64_t *out) {
    const char *at = *text;
    int64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, *at - '0', &value)) return false;
    }
    if (at == *text || (*at != 0 && *at != ' ')) return false;
    *text = at;
    *out = value;
    return true;
}

/* Quotas. */

/* INT_MAX: none, or not one that makes sense. */
static int cpus_of(int64_t quota, int64_t period) {
    if (quota <= 0 || period <= 0) return INT_MAX;
    int64_t cpus = quota / period + (quota % period != 0);
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

static bool read_line_of(const char *dir, const char *file, char *line, size_t bytes) {
    struct lines r;
    if (!lines_open(&r, dir, file)) return false;
    bool got = lines_next(&r, line, bytes);
    weft__file_close_raw(r.fd);
    return got;
}

/* "150000 100000" or "max 100000" */
static int quota_v2(const char *dir) {
    char line[64];
    const char *at = line;
    int64_t quota, period;
    if (!read_line_of(dir, "/cpu.max", line, sizeof line)) return INT_MAX;
    if (!number(&at, &quota) || *at++ != ' ' || !number(&at, &period) || *at) return INT_MAX;
    return cpus_of(quota, period);
}

static bool read_number_of(const char *dir, const char *file, int64_t *out) {
    char line[64];
    const char *at = line;
    return read_line_of(dir, file, line, sizeof line) && number(&at, out) && !*at;
}

/* A quota of "-1" is none. */
static int quota_v1(const char *dir) {
    int64_t quota, period;
    if (!read_number_of(dir, "/cpu.cfs_quota_us", &quota)) return INT_MAX;
    if (!read_number_of(dir, "/cpu.cfs_period_us", &period)) return INT_MAX;
    return cpus_of(quota, period);
}

/* The tightest from `dir` up to its first `top` bytes. Shortens dir. */
static int quota_upwards(char *dir, size_t top, enum version v) {
    int least = INT_MAX;
    for (;;) {
        int cpus = v == CGROUP_V2 ? quota_v2(dir) : quota_v1(dir);
        if (cpus < least) least = cpus;
        if (strlen(dir) <= top) return least;
        *strrchr(dir, '/') = 0;
    }
}

/* Where. */

/* The process's group in that version's hierarchy, the one with the cpu controller. */
static bool own_group(const char *root, enum version v, char *group, size_t bytes) {
    struct lines r;
    bool found = false;
    if (!lines_open(&r, root, "/proc/self/cgroup")) return false;
    while (!found && lines_next(&r, group, bytes)) {
        char *rest = group;
        const char *id = field(&rest, ':');
        const char *controllers = field(&rest, ':');
        if (!rest || rest[0] != '/') continue;
        found =
            v == CGROUP_V2 ? strcmp(id, "0") == 0 && !*controllers : list_has(controllers, "cpu");
        if (found) memmove(group, rest, strlen(rest) + 1);
    }
    weft__file_close_raw(r.fd);
    return found;
}

/* mountinfo writes blanks and the like as \040. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        const char *d = from + 1;
        if (*from == '\\' && d[0] >= '0' && d[0] <= '3' && d[1] >= '0' && d[1] <= '7' &&
            d[2] >= '0' && d[2] <= '7') {
            *to = (char)((d[0] - '0') * 64 + (d[1] - '0') * 8 + (d[2] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = 0;
}

/* "31 23 0:25 /top /point rw,noatime shared:5 - type source options" */
static bool parse_mount(char *line, struct mount *m) {
    char *rest = line;
    field(&rest, ' ');
    field(&rest, ' ');
    field(&rest, ' ');
    m->top = field(&rest, ' ');
    m->point = field(&rest, ' ');
    field(&rest, ' ');
    const char *optional; /* any number of them, then a dash */
    do optional = field(&rest, ' ');
    while (optional && strcmp(optional, "-") != 0);
    m->type = field(&rest, ' ');
    field(&rest, ' ');
    m->options = field(&rest, ' ');
    if (!m->options || m->top[0] != '/' || m->point[0] != '/') return false;
    unescape(m->top);
    unescape(m->point);
    return true;
}

static bool is_cpu_mount(const struct mount *m, enum version v) {
    if (v == CGROUP_V2) return strcmp(m->type, "cgroup2") == 0;
    return strcmp(m->type, "cgroup") == 0 && list_has(m->options, "cpu");
}

/* What of `group` lies below the mount's top: "" or "/...". NULL: it is outside. */
static const char *group_below(const char *group, const char *top) {
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(group, top, n) != 0 || (group[n] != 0 && group[n] != '/')) return NULL;
    const char *below = group + n;
    /* The kernel begins the name with this for a group above the namespace's own. */
    if (strncmp(below, "/..", 3) == 0 && (below[3] == 0 || below[3] == '/')) return NULL;
    return strcmp(below, "/") == 0 ? "" : below;
}

static int quota_in(const char *root, const struct mount *m, const char *below, enum version v) {
    char dir[PATH_BYTES];
    int top = snprintf(dir, sizeof dir, "%s%s", root, m->point);
    if (top < 0 || (size_t)top + strlen(below) >= sizeof dir) return INT_MAX;
    memcpy(dir + top, below, strlen(below) + 1);
    return quota_upwards(dir, (size_t)top, v);
}

/* By the mounts that show the group; or, if `outside`, by the first mount of this version, whatever
   it shows. *found: there was one. */
static int quota_by_mounts(const char *root, const char *group, enum version v, bool outside,
                           bool *found) {
    struct lines r;
    char line[LINE_BYTES];
    struct mount m;
    int least = INT_MAX;
    if (!lines_open(&r, root, "/proc/self/mountinfo")) return INT_MAX;
    while (lines_next(&r, line, sizeof line) && !(outside && *found)) {
        if (!parse_mount(line, &m) || !is_cpu_mount(&m, v)) continue;
        const char *below = outside ? "" : group_below(group, m.top);
        if (!below) continue;
        *found = true;
        int cpus = quota_in(root, &m, below, v);
        if (cpus < least) least = cpus;
    }
    weft__file_close_raw(r.fd);
    return least;
}

static int quota_of_version(const char *root, enum version v) {
    char group[LINE_BYTES];
    bool found = false;
    if (!own_group(root, v, group, sizeof group)) return INT_MAX;
    int cpus = quota_by_mounts(root, group, v, false, &found);
    return found ? cpus : quota_by_mounts(root, group, v, true, &found);
}

int weft__cpu_quota(const char *root) {
    int v2 = quota_of_version(root, CGROUP_V2);
    int v1 = quota_of_version(root, CGROUP_V1);
    return v2 < v1 ? v2 : v1;
}

int weft__cpu_allowed(void) {
    /* Larger than any kernel's mask, which is what the call asks for, and may exceed cpu_set_t. */
    unsigned char mask[MAX_CPUS / CHAR_BIT] __attribute__((aligned(sizeof(long)))) = {0};
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask) == 0) {
        int cpus = 0;
        for (size_t i = 0; i < sizeof mask; i++) cpus += __builtin_popcount(mask[i]);
        if (cpus > 0) return cpus;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int weft__cpu_default_procs(const char *root) {
    int allowed = weft__cpu_allowed();
    int quota = weft__cpu_quota(root);
    return quota < allowed ? quota : allowed;
}

bool weft__cpu_env_allowed(void) { return getauxval(AT_SECURE) == 0; }
