/* scratch.h: files and directories of a test's own.
 *
 * They lie in the folder that the runner makes for its program and removes behind it, whatever became of the
 * tests; without a runner in TMPDIR, or /tmp. Everything here stays on the caller's thread and stack.
 */
#ifndef WEFT_TEST_SCRATCH_H
#define WEFT_TEST_SCRATCH_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SCRATCH_BYTES = 512 };

/* A name to be filled in by mkstemp or mkdtemp. */
static inline bool scratch_name(char path[SCRATCH_BYTES]) {
    const char *in = getenv("WEFT_TEST_SCRATCH");
    in = in != NULL && *in != 0 ? in : getenv("TMPDIR");
    in = in != NULL && *in != 0 ? in : "/tmp";
    if (snprintf(path, SCRATCH_BYTES, "%s/weft-test-XXXXXX", in) >= SCRATCH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    return true;
}

/* A new file, and where it is; flags as O_APPEND, besides reading and writing. -1: none, see errno. */
static inline int scratch_named(char path[SCRATCH_BYTES], int flags) {
    return scratch_name(path) ? mkostemp(path, flags | O_CLOEXEC) : -1;
}

/* A new file without a name. */
static inline int scratch_file(int flags) {
    char path[SCRATCH_BYTES];
    int fd = scratch_named(path, flags);
    if (fd >= 0) {
        unlink(path);
    }
    return fd;
}

/* A new directory. False: none, see errno. */
static inline bool scratch_dir(char path[SCRATCH_BYTES]) {
    return scratch_name(path) && mkdtemp(path) != NULL;
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag,
                                     struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

/* With everything in it. */
static inline void scratch_remove(const char *path) {
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
