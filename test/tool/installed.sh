#!/bin/sh
# installed.sh SOURCE PREFIX: compiles installed.c through pkg-config against what lies in PREFIX, once with
# the shared and once with the static library, and runs both.
set -eu
source=$1 prefix=$2
pc=$(find "$prefix" -name weft.pc | head -n 1)
[ -n "$pc" ] || {
    echo "no weft.pc under $prefix" >&2
    exit 1
}
PKG_CONFIG_PATH=${pc%/weft.pc}
export PKG_CONFIG_PATH
libdir=${PKG_CONFIG_PATH%/pkgconfig}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pkg-config puts a backslash before a blank in a path: a shell must read its words.
compile() {
    program=$1
    eval "set -- $2"
    "${CC:-gcc}" "$source/test/tool/installed.c" -o "$program" "$@"
}

compile "$work/shared" "$(pkg-config --cflags --libs weft)"
LD_LIBRARY_PATH=$libdir "$work/shared" shared

# -Bstatic chooses the archive for this library only; the C library stays shared.
compile "$work/static" "$(pkg-config --static --cflags --libs weft |
    sed 's/-lweft/-Wl,-Bstatic -lweft -Wl,-Bdynamic/')"
"$work/static" static
