#!/bin/sh
# field/header.sh BUILDDIR SRCDIR: field case C65 whole: a file with nothing but the header and one call,
# for gcc and clang, C99 to C++20, every warning an error; the header twice and, for C++, within
# extern "C"; linked by what pkg-config says; and no exported symbol without the prefix. Prints a line for
# each that fails, and last `N passed, N failed`.
set -u
if [ $# -ne 2 ]; then
    echo "usage: header.sh BUILDDIR SRCDIR" >&2
    exit 2
fi
build=$(CDPATH='' cd -- "$1" && pwd)
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
warnings='-Wall -Wextra -Wpedantic -Werror'
passed=0
failed=0
skipped=0

pass() { passed=$((passed + 1)); }

fail() {
    failed=$((failed + 1))
    echo "FAIL field/C65: $1"
    tail -n 12 "$work/log" | sed 's/^/    /'
}

skip() {
    skipped=$((skipped + 1))
    echo "SKIP field/C65: $1"
}

have() { command -v "$1" >/dev/null 2>&1; }

call='int main(void) { return weft_version()[0] == 0; }'
printf '#include <weft.h>\n%s\n' "$call" >"$work/alone"
printf '#include <weft.h>\n#include <weft.h>\n%s\n' "$call" >"$work/twice"
printf 'extern "C" {\n#include <weft.h>\n}\n%s\n' "$call" >"$work/extern-c"

# What users link by. The library itself lies in the build.
words() {
    PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config --cflags --libs weft 2>"$work/log"
}

# try COMPILER LANGUAGE STANDARD FORM
try() {
    what="$4 ($1 -std=$3)"
    # pkg-config puts a backslash before a blank in a path: a shell must read its words.
    eval "set -- $1 $2 $3 $4 $flags"
    cc=$1 lang=$2 std=$3 form=$4
    shift 4
    # shellcheck disable=SC2086 # several words
    if "$cc" -std="$std" $warnings -x "$lang" "$work/$form" -x none -o "$work/program" "$@" \
        -Wl,-rpath,"$build/runtime" >"$work/log" 2>&1 && "$work/program" >"$work/log" 2>&1; then
        pass
    else
        fail "$what"
    fi
}

# try_all COMPILER LANGUAGE "STANDARD..." FORM...
try_all() {
    cc=$1 lang=$2 standards=$3
    shift 3
    if ! have "$cc"; then
        skip "$cc: not installed"
        return
    fi
    for std in $standards; do
        for form in "$@"; do
            try "$cc" "$lang" "$std" "$form"
        done
    done
}

if ! have pkg-config; then
    skip 'pkg-config: not installed'
elif flags=$(words); then
    try_all gcc c 'c99 c11 c17 gnu17' alone twice
    try_all clang c 'c99 c11 c17 gnu17' alone twice
    try_all g++ c++ 'c++11 c++17 c++20' alone twice extern-c
    try_all clang++ c++ 'c++11 c++17 c++20' alone twice extern-c
else
    fail 'pkg-config --cflags --libs weft'
fi

nm -D --defined-only "$build/runtime/libweft.so" >"$work/nm" 2>"$work/log"
awk '{ print $NF }' "$work/nm" | grep -v '^weft_' >"$work/log"
if [ -s "$work/nm" ] && ! [ -s "$work/log" ]; then pass; else fail 'every exported symbol begins with weft_'; fi

if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
