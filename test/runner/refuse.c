/* refuse.c: runs a program for which the system refuses what weft would like to have.
 *
 *     refuse [membarrier] [proc] -- PROGRAM [ARG...]
 *
 * membarrier(2) fails with ENOSYS, by a filter that all it starts inherits. /proc is refused to weft
 * alone, since the tests look there themselves: see refused.c, which is told by WEFT_TEST_REFUSED.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "refuse: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* The number alone is looked at: on a machine of two calling conventions that of the other may fail too. */
static void refuse_membarrier(void) {
    struct sock_filter look[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof look / sizeof look[0], .filter = look};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        fail("no new privileges");
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        fail("seccomp");
    }
    if (syscall(SYS_membarrier, 0, 0, 0) != -1 || errno != ENOSYS) {
        fail("membarrier works all the same");
    }
}

int main(int argc, char **argv) {
    int i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "membarrier") == 0) {
            refuse_membarrier();
        } else if (strcmp(argv[i], "proc") == 0) {
            setenv("WEFT_TEST_REFUSED", "proc", 1);
        } else {
            fprintf(stderr, "refuse: %s? (membarrier, proc)\n", argv[i]);
            return 2;
        }
    }
    if (i + 1 >= argc) {
        fprintf(stderr, "usage: refuse [membarrier] [proc] -- PROGRAM [ARG...]\n");
        return 2;
    }
    execvp(argv[i + 1], argv + i + 1);
    fail(argv[i + 1]);
}
