/* refused.c: /proc refused to the runtime in this test's process, when refuse.c says so.
 *
 * The linker leads the runtime's two ways to open such a file through here (--wrap): the library itself
 * has nothing of it, in any build. What the tests open they open by themselves. A test may also set a folder
 * below which the runtime finds the control groups.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "refused.h"

static bool proc_refused;

/* Once, before there are threads: tests change the environment. */
__attribute__((constructor)) static void ask(void) {
    const char *word = getenv("WEFT_TEST_REFUSED");
    proc_refused = word != NULL && strcmp(word, "proc") == 0;
}

const char *refused_root;

/* Below refused_root, if that is set and it is about control groups. */
static const char *led_astray(const char *path, char *below, size_t bytes) {
    if (refused_root == NULL ||
        (strcmp(path, "/proc/self/cgroup") != 0 && strcmp(path, "/proc/self/mountinfo") != 0 &&
         strncmp(path, "/sys/fs/cgroup/", 15) != 0)) {
        return path;
    }
    snprintf(below, bytes, "%s%s", refused_root, path);
    return below;
}

static bool refused(const char *path) {
    if (!proc_refused || strncmp(path, "/proc/", 6) != 0) {
        return false;
    }
    errno = ENOENT;
    return true;
}

int __real_weft__file_open(const char *path);
int __real_weft__file_open_raw(const char *path);
int __wrap_weft__file_open(const char *path);
int __wrap_weft__file_open_raw(const char *path);

int __wrap_weft__file_open(const char *path) {
    return refused(path) ? -1 : __real_weft__file_open(path);
}

int __wrap_weft__file_open_raw(const char *path) {
    char below[4096];
    return refused(path) ? -1 : __real_weft__file_open_raw(led_astray(path, below, sizeof below));
}
