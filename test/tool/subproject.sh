#!/bin/sh
# subproject.sh SOURCE: weft as a meson subproject of somebody else, whose folder has a blank in its name:
# found by dependency(), shared and static, without a warning and without building our tests.
set -eu
source=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guest="$work/some body"
mkdir -p "$guest/subprojects"
ln -s "$source" "$guest/subprojects/weft"
cp "$source/test/tool/installed.c" "$guest/main.c"
cat >"$guest/meson.build" <<'END'
project('somebody', 'c', default_options: ['c_std=c99', 'werror=true'])
weft = dependency('weft', fallback: 'weft')
main = executable('somebody', 'main.c', dependencies: weft)
test('somebody', main, args: get_option('default_library'))
END

passed=0 failed=0
# look WHAT COMMAND...: counts it, and shows its output when it fails.
look() {
    what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL subproject/$what"
        cat "$work/log"
    fi
}
none() { ! grep -n "$1" "$2"; }

for kind in shared static; do
    build="$work/$kind"
    look "$kind-set-up" meson setup "$build" "$guest" --wrap-mode=nodownload "-Ddefault_library=$kind"
    look "$kind-no-warning" none '^WARNING' "$build/meson-logs/meson-log.txt"
    look "$kind-built" meson compile -C "$build"
    look "$kind-runs" "$build/somebody" "$kind"
    look "$kind-none-of-our-tests" none 'unit-\|fixture-' "$build/build.ninja"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
