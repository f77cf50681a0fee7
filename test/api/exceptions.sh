#!/bin/sh
# api/exceptions.sh BUILDDIR SRCDIR: exceptions.cc with each C++ compiler at hand, against the shared library and
# the static one, with the C++ runtime shared and (where that can be had) static. Each program is run.
set -u
if [ $# -ne 2 ]; then
    echo "usage: exceptions.sh BUILDDIR SRCDIR" >&2
    exit 2
fi
lib=$1/runtime
src=$2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
passed=0
failed=0
skipped=0

# try NAME COMPILER OPTION...
try() {
    name=$1 cc=$2
    shift 2
    if "$cc" -std=c++17 -Wall -Wextra -O1 -I"$src/include" "$src/test/api/exceptions.cc" -o "$work/program" "$@" \
        -pthread >"$work/log" 2>&1 && timeout 120 "$work/program" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok   exceptions ($name): $(cat "$work/log")"
    else
        failed=$((failed + 1))
        echo "FAIL exceptions ($name)"
        sed 's/^/    /' "$work/log" | head -n 12
    fi
}

for cc in g++ clang++; do
    if ! command -v "$cc" >/dev/null 2>&1; then
        skipped=$((skipped + 1))
        echo "SKIP exceptions ($cc: not installed)"
        continue
    fi
    try "$cc, shared" "$cc" -L"$lib" -lweft -Wl,-rpath,"$lib"
    try "$cc, static" "$cc" "$lib/libweft.a"
    try "$cc, shared, static C++ runtime" "$cc" -static-libstdc++ -static-libgcc -L"$lib" -lweft -Wl,-rpath,"$lib"
    try "$cc, static, static C++ runtime" "$cc" -static-libstdc++ -static-libgcc "$lib/libweft.a"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
