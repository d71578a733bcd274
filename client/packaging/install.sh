#!/bin/bash
# Installs the launcher, the benchmark tool, the library, its headers and its package files under PREFIX (below $DESTDIR, if that is set).
# What it copies lies beside it in Bazel's runfiles: run it as `bazel run //client/packaging:install -- PREFIX [PEERS]`. PEERS is the
# folder where the benchmark tool's peers are, if they were built (bazel build //bench/peers:plugins): they need packages that Ronda does
# without.
set -euo pipefail

fail() {
  echo "install: $*" >&2
  exit 1
}

[[ ($# -eq 1 || $# -eq 2) && -n $1 ]] || fail "usage: bazel run //client/packaging:install -- PREFIX [PEERS]"
[[ -e client/libronda.so ]] || fail "client/libronda.so is not here: run it with 'bazel run'"

# Bazel starts it elsewhere; a relative path is the caller's.
absolute() {
  if [[ $1 == /* ]]; then echo "$1"; else echo "${BUILD_WORKING_DIRECTORY:-$PWD}/$1"; fi
}

root=${DESTDIR:-}$(absolute "$1")
readonly root
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

# ronda-bench looks for them there.
shopt -s nullglob
peers=()
if [[ -n ${2:-} ]]; then
  from=$(absolute "$2")
  peers=("$from"/libronda_bench_*.so "$from"/*_first_allreduce)
fi
if ((${#peers[@]} > 0)); then copy 755 "${peers[@]}" "$root/lib/ronda"; fi

# The loader looks for the soname, the linker for the plain name.
install -m 755 client/libronda.so "$root/lib/libronda.so.$version"
ln -sf "libronda.so.$version" "$root/lib/libronda.so.0"
ln -sf libronda.so.0 "$root/lib/libronda.so"

echo "Installed Ronda $version under $root${peers:+, and what ronda-bench compares with}"
