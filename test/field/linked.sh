#!/bin/sh
# field/linked.sh BUILDDIR: field case C57 whole: a host that is linked with the library and has not
# called it yet is as it was: one thread, the descriptors it was given, default dispositions, an empty
# mask, popen and daemon work; the runtime works in the daemon. The host is compiled here, since a
# program of the test runner has a life before its test. Last line `N passed, N failed`.
set -u
if [ $# -ne 1 ]; then
    echo "usage: linked.sh BUILDDIR" >&2
    exit 2
fi
build=$(CDPATH='' cd -- "$1" && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
failed=0
passed=0

cat >"$work/host.c" <<'HOST'
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft.h>

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static int entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    check(d != NULL, path);
    for (struct dirent *e; (e = readdir(d));) {
        n += e->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void look(const char *when) {
    sigset_t mask;
    fprintf(stderr, "%s\n", when);
    check(entries("/proc/self/task") == 1, "more than one thread");
    check(entries("/proc/self/fd") - 1 == 3, "not three descriptors");
    check(sigprocmask(SIG_BLOCK, NULL, &mask) == 0, "sigprocmask");
    for (int i = 1; i < NSIG; i++) {
        struct sigaction a;
        if (sigaction(i, NULL, &a) == 0) {
            check(a.sa_handler == SIG_DFL, "a disposition is not the default");
            check(sigismember(&mask, i) == 0, "a signal is blocked");
        }
    }
}

static int app(void *arg) {
    *(int *)arg = 1;
    return weft_sleep(WEFT_MILLISECOND);
}

int main(int argc, char **argv) {
    check(argc == 2, "usage: host RESULT");
    look("begun");
    FILE *p = popen("true", "r");
    check(p != NULL && pclose(p) == 0, "popen");
    look("after popen");
    /* Its parent has ended here with status 0: what follows is told by the file. */
    check(daemon(0, 0) == 0, "daemon");
    int ran = 0, status = -1;
    int err = weft_run(app, &ran, NULL, &status);
    FILE *out = fopen(argv[1], "w");
    if (out == NULL) {
        return 1;
    }
    fprintf(out, "%d %d %d\n", err, status, ran);
    fclose(out);
    char whole[4096]; /* the file is there whole or not at all */
    snprintf(whole, sizeof whole, "%s.whole", argv[1]);
    return rename(argv[1], whole) != 0;
}
HOST
host() { # host COMPILER
    cc=$1
    rm -f "$work/result" "$work/result.whole"
    eval "set -- $flags"
    "$cc" -std=gnu17 -Wall -Wextra -Werror -o "$work/host" "$work/host.c" "$@" \
        -Wl,-rpath,"$build/runtime" >"$work/log" 2>&1 || return 1
    # Three descriptors and default dispositions: what the test itself was given is not passed on.
    python3 -c 'import os, signal, sys
os.closerange(3, 4096)
for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(s, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.execv(sys.argv[1], sys.argv[1:])' "$work/host" "$work/result" \
        </dev/null >/dev/null 2>"$work/log" || return 1
    tries=0
    while ! [ -e "$work/result.whole" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 200 ]; then
            echo 'the daemon did not come to its end' >>"$work/log"
            return 1
        fi
        sleep 0.1
    done
    read -r result <"$work/result.whole"
    echo "weft_run in the daemon: $result" >>"$work/log"
    [ "$result" = '0 0 1' ]
}

if ! command -v pkg-config >/dev/null 2>&1; then
    echo 'SKIP field/C57: pkg-config: not installed'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
flags=$(PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config --cflags --libs weft) || exit 1
for cc in gcc clang; do
    if ! command -v "$cc" >/dev/null 2>&1; then
        echo "SKIP field/C57: $cc: not installed"
    elif host "$cc"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL field/C57: $cc"
        tail -n 12 "$work/log" | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
