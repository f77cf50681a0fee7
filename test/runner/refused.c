/* refused.c: /proc refused to the runtime in this test's process, when refuse.c says so.
 *
 * The linker leads the runtime's two ways to open such a file through here (--wrap): the library itself
 * has nothing of it, in any build. What the tests open they open by themselves.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool proc_refused;

/* Once, before there are threads: tests change the environment. */
__attribute__((constructor)) static void ask(void) {
    const char *word = getenv("WEFT_TEST_REFUSED");
    proc_refused = word != NULL && strcmp(word, "proc") == 0;
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
    return refused(path) ? -1 : __real_weft__file_open_raw(path);
}
