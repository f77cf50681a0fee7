#!/bin/sh
# install.sh SOURCE BUILD PREFIX: builds the library alone and installs it.
set -eu
source=$1 build=$2 prefix=$3
rm -rf "$build"
meson setup "$build" "$source" --prefix "$prefix" -Dtests=false -Dexamples=false
meson compile -C "$build"
meson install -C "$build" --no-rebuild
