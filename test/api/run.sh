#!/bin/sh
# api/run.sh BUILDDIR SRCDIR: the headers as their users meet them, and the symbols of libweft.so.
#
#   headers   each one alone, twice, and within extern "C", with gcc and clang, C99 to C++20, every
#             warning an error
#   use       a program that uses every macro compiles in each of these, and links and runs
#   misuse    what must not compile does not (api/misuse.c), and only for that reason
#   symbols   libweft.so exports names that begin with weft_ and stand in a header, no others
#
# Prints one line for each that fails, and last `N passed, N failed`, with `, N skipped` if a compiler
# is missing. Needs no network and writes to a directory of its own.
set -u
if [ $# -ne 2 ]; then
    echo "usage: run.sh BUILDDIR SRCDIR" >&2
    exit 2
fi
build=$1
src=$2
include=$src/include
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

warnings='-Wall -Wextra -Wpedantic -Wconversion -Werror'
passed=0
failed=0
skipped=0

pass() {
    passed=$((passed + 1))
}

# fail NAME: what the compiler said is in $work/log.
fail() {
    failed=$((failed + 1))
    echo "FAIL api/$1"
    sed 's/^/    /' "$work/log" | head -n 12
}

skip() {
    skipped=$((skipped + 1))
    echo "SKIP api/$1"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# compiles COMPILER STANDARD LANGUAGE FILE [OPTION...]. All the way to assembly: gcc notices dropped
# results late.
compiles() {
    cc=$1 std=$2 lang=$3 file=$4
    shift 4
    # shellcheck disable=SC2086 # several words
    "$cc" -std="$std" -x "$lang" $warnings -S -o /dev/null -I"$include" "$@" "$file" >"$work/log" 2>&1
}

check_compiles() {
    name=$1
    shift
    if compiles "$@"; then pass; else fail "$name"; fi
}

check_refused() {
    name=$1
    shift
    if compiles "$@"; then
        echo "compiles, and must not" >"$work/log"
        fail "$name"
    else
        pass
    fi
}

# The forms a header is included in. $1: its name. The last line is there because an empty file is not
# C, and a declaration behind the header shows one that it has left open.
write_forms() {
    printf '#include <%s>\nextern int after;\n' "$1" >"$work/alone"
    printf '#include <%s>\n#include <%s>\nextern int after;\n' "$1" "$1" >"$work/twice"
    printf 'extern "C" {\n#include <%s>\n}\nextern int after;\n' "$1" >"$work/extern-c"
}

# check_headers COMPILER LANGUAGE STANDARD FORM...
check_headers() {
    cc=$1 lang=$2 std=$3
    shift 3
    for header in "$include"/weft.h "$include"/weft/*.h; do
        name=${header#"$include"/}
        write_forms "$name"
        for form in "$@"; do
            check_compiles "$name $form ($cc -std=$std)" "$cc" "$std" "$lang" "$work/$form"
        done
    done
}

# check_language COMPILER LANGUAGE "STANDARD..." FORM...: all that is compiled but not run.
check_language() {
    cc=$1 lang=$2 standards=$3
    shift 3
    if ! have "$cc"; then
        skip "$cc: not installed"
        return
    fi
    for std in $standards; do
        check_headers "$cc" "$lang" "$std" "$@"
        check_compiles "use ($cc -std=$std)" "$cc" "$std" "$lang" "$src/test/api/use.c"
    done
    check_misuse "$cc" "$lang" "${standards##* }"
}

check_misuse() {
    cases=$(grep -c '^#e*l*if MISUSE == ' "$src/test/api/misuse.c")
    file=$src/test/api/misuse.c
    check_compiles "misuse 0 ($1)" "$1" "$3" "$2" "$file" -DMISUSE=0
    i=1
    while [ "$i" -le "$cases" ]; do
        check_refused "misuse $i ($1)" "$1" "$3" "$2" "$file" -DMISUSE="$i"
        i=$((i + 1))
    done
}

# The program of use.c, against the library that was built; it is compiled as a user would, without
# the options of the build.
check_runs() {
    cc=$1 std=$2 lang=$3
    have "$cc" || return
    lib=$build/runtime
    if "$cc" -std="$std" -x "$lang" -I"$include" "$src/test/api/use.c" -x none -o "$work/use" \
        -L"$lib" -lweft -Wl,-rpath,"$lib" >"$work/log" 2>&1 && "$work/use" >"$work/log" 2>&1; then
        pass
    else
        fail "use runs ($cc -std=$std)"
    fi
}

# A library built with a sanitizer needs its runtime in the program, which a user's has not.
sanitized() {
    nm -D "$build/runtime/libweft.so" | grep -q -e '__asan_init' -e '__tsan_init'
}

check_symbols() {
    if ! nm -D --defined-only "$build/runtime/libweft.so" >"$work/nm" 2>"$work/log"; then
        fail 'symbols: no library to look at'
        return
    fi
    awk '{ print $NF }' "$work/nm" | sed 's/@.*//' | sort -u >"$work/exported"
    cat "$include"/weft.h "$include"/weft/*.h | tr -c 'A-Za-z0-9_' '\n' | sort -u >"$work/words"
    grep -v '^weft_[a-z]' "$work/exported" >"$work/log"
    if [ -s "$work/log" ] || ! [ -s "$work/exported" ]; then
        fail 'symbols: each begins with weft_'
    else
        pass
    fi
    comm -23 "$work/exported" "$work/words" >"$work/log"
    if [ -s "$work/log" ]; then fail 'symbols: each stands in a header'; else pass; fi
}

check_language gcc c 'c99 c11 gnu17 c17' alone twice
check_language clang c 'c99 c11 gnu17 c17' alone twice
check_language g++ c++ 'c++11 c++17 c++20' alone twice extern-c
check_language clang++ c++ 'c++11 c++17 c++20' alone twice extern-c
check_symbols
if [ -e "$build/runtime/libweft.so" ] && sanitized; then
    skip 'use runs: the library is built with a sanitizer'
else
    check_runs gcc c99 c
    check_runs clang c17 c
    check_runs g++ c++20 c++
    check_runs clang++ c++11 c++
fi

if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
