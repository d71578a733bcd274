#!/bin/bash
# Installs the launcher, the benchmark tool, the library, its headers and its package files under PREFIX (below $DESTDIR, if that is set).
# What it copies lies beside it in Bazel's runfiles: run it as `bazel run //client/packaging:install -- PREFIX`.
set -euo pipefail

fail() {
  echo "install: $*" >&2
  exit 1
}

[[ $# -eq 1 && -n $1 ]] || fail "usage: bazel run //client/packaging:install -- PREFIX"
[[ -e client/libronda.so ]] || fail "client/libronda.so is not here: run it with 'bazel run'"

# Bazel starts it elsewhere; a relative PREFIX is the caller's.
prefix=$1
[[ $prefix == /* ]] || prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix
readonly root=${DESTDIR:-}$prefix
readonly version=$(sed -n 's/^Version: //p' client/packaging/ronda.pc)

copy() {  # copy MODE SOURCE... DIRECTORY
  local mode=$1 directory=${*: -1}
  install -d "$directory"
  install -m "$mode" "${@:2:$#-2}" "$directory"
}

copy 755 runtime/launch/rondarun bench/ronda-bench "$root/bin"
copy 644 client/ronda.h client/ronda.hpp "$root/include"
copy 644 client/ronda/*.hpp "$root/include/ronda"
copy 644 client/packaging/ronda.pc "$root/lib/pkgconfig"
copy 644 client/packaging/ronda-config.cmake client/packaging/ronda-config-version.cmake "$root/lib/cmake/ronda"

# The loader looks for the soname, the linker for the plain name.
install -m 755 client/libronda.so "$root/lib/libronda.so.$version"
ln -sf "libronda.so.$version" "$root/lib/libronda.so.0"
ln -sf libronda.so.0 "$root/lib/libronda.so"

echo "Installed Ronda $version under $root"
