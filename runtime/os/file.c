/*
 * Files that tell about this process and this machine. Every look of ours into /proc is opened here, so
 * that there is one place where it can be refused: what we do without is promised too, and tested.
 */
#include "os/os.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int weft__file_open(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }

int weft__file_open_raw(const char *path) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

long weft__file_read_raw(int fd, void *buf, size_t bytes) {
    return syscall(SYS_read, fd, buf, bytes);
}

void weft__file_close_raw(int fd) { syscall(SYS_close, fd); }
