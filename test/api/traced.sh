#!/bin/sh
# traced.sh PROGRAM: runs traced.c alone, under Valgrind, and as rr would run it.
set -u
program=$1
passed=0 failed=0 skipped=0

# judge NAME COMMAND...
judge() {
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL api/$name: status not 0"
    fi
}

unset RUNNING_UNDER_RR
judge traced_alone "$program" free
judge traced_by_rr env RUNNING_UNDER_RR=1 "$program" traced
if command -v valgrind >/dev/null; then
    # The tool that checks nothing: what is asked is who gets a P, and the others want symbols of libc.
    judge traced_by_valgrind valgrind --tool=none -q "$program" traced
else
    skipped=1
    echo 'SKIP api/traced_by_valgrind: valgrind is not installed'
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
