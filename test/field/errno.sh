#!/bin/sh
# field/errno.sh SRCDIR: field case C64 whole: the library and the case, compiled by gcc and clang at -O2
# and -O3, which keep addresses of thread-local variables each in their own way; and the header says what
# it says. Prints a line for each that fails, and last `N passed, N failed`.
set -u
if [ $# -ne 1 ]; then
    echo "usage: errno.sh SRCDIR" >&2
    exit 2
fi
cd -- "$1" || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
passed=0
failed=0
skipped=0

verdict() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAIL field/C64: $1"
    tail -n 12 "$work/log" | sed 's/^/    /'
}

# One by one and one after the other: the machine has other things to do.
compile() {
    cc=$1 level=$2
    rm -f "$work"/*.o
    n=0
    for file in $(sources); do
        n=$((n + 1))
        "$cc" -std=gnu17 "$level" -D_GNU_SOURCE -DWEFT_POLLER_EPOLL=1 -DWEFT_SWITCH_ASM=1 -DWEFT_OWN_RUNNER \
            -Iinclude -Iruntime -Itest -c "$file" -o "$work/$n.o" >>"$work/log" 2>&1 || return 1
    done
    "$cc" "$work"/*.o -pthread -o "$work/case" >>"$work/log" 2>&1
}

# Of the pollers only the one that is built in.
sources() {
    find runtime -name '*.c' ! -path '*/poller/*'
    echo runtime/poller/epoll.c
    for file in check child registry report own; do
        echo "test/runner/$file.c"
    done
    echo test/field/errno.c
}

for cc in gcc clang; do
    for level in -O2 -O3; do
        if ! command -v "$cc" >/dev/null 2>&1; then
            skipped=$((skipped + 1))
            echo "SKIP field/C64: $cc: not installed"
            continue
        fi
        : >"$work/log"
        compile "$cc" "$level"
        status=$?
        if [ "$status" -eq 0 ]; then
            "$work/case" field/C64a >"$work/log" 2>&1
            status=$?
        fi
        verdict "$cc $level" "$status"
    done
done

: >"$work/log"
grep -q 'errno does not survive a park' include/weft/task.h &&
    grep -q 'int weft_errno(void);' include/weft/task.h
verdict 'the header says that errno is not kept over a park, and offers the safe reader' $?

if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
