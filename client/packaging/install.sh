#!/bin/bash
# Installs the launcher, rondactl, ronda-monitor, the benchmark tool, the library with its plugin for several hosts, its headers, its package files
# and the Python package under PREFIX (below $DESTDIR, if that is set).
# The files that it copies lie beside it in Bazel's runfiles: run it as `bazel run //client/packaging:install -- PREFIX [BUILT]`. BUILT is the
# folder of Bazel's outputs, for what needs packages that Ronda does without, if it was built: the plugins for MPI
# (bazel build //runtime/mpi:all) and for CUDA devices (//runtime/cuda:all), and the benchmark tool's peers (bazel build //bench/peers:plugins).
set -euo pipefail

fail() {
  echo "install: $*" >&2
  exit 1
}

[[ ($# -eq 1 || $# -eq 2) && -n $1 ]] || fail "usage: bazel run //client/packaging:install -- PREFIX [BUILT]"
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

copy 755 runtime/launch/rondarun runtime/monitor/rondactl/rondactl runtime/monitor/serve/ronda-monitor bench/ronda-bench "$root/bin"
copy 644 client/ronda.h client/ronda.hpp "$root/include"
copy 644 client/ronda/*.h client/ronda/*.hpp "$root/include/ronda"
copy 644 client/ronda/training/*.hpp "$root/include/ronda/training"
copy 644 client/ronda/torch/*.hpp "$root/include/ronda/torch"
copy 644 client/packaging/ronda.pc "$root/lib/pkgconfig"
copy 644 client/packaging/ronda-config.cmake client/packaging/ronda-config-version.cmake "$root/lib/cmake/ronda"

shopt -s nullglob
plugins=()
peers=()
if [[ -n ${2:-} ]]; then
  built=$(absolute "$2")
  plugins=("$built"/runtime/mpi/libronda_mpi*.so "$built"/runtime/cuda/libronda_cuda*.so)
  peers=("$built"/bench/peers/libronda_bench_*.so "$built"/bench/peers/*_first_allreduce "$built"/bench/peers/*.py)
fi
# libronda.so looks for its plugins beside itself, ronda-bench under lib/ronda.
copy 755 runtime/net/libronda_hosts.so "$root/lib"
if ((${#plugins[@]} > 0)); then copy 755 "${plugins[@]}" "$root/lib"; fi
if ((${#peers[@]} > 0)); then copy 755 "${peers[@]}" "$root/lib/ronda"; fi

# The loader looks for the soname, the linker for the plain name.
install -m 755 client/libronda.so "$root/lib/libronda.so.$version"
ln -sf "libronda.so.$version" "$root/lib/libronda.so.0"
ln -sf libronda.so.0 "$root/lib/libronda.so"

# The Python package finds the library, and beside it plugins and ../bin/rondarun, through its link.
readonly python=$root/lib/python3/dist-packages
install -d "$python"
rm -rf "$python/ronda"
cp -rL --no-preserve=mode client/python/installed/ronda "$python"
ln -s ../../.. "$python/ronda/lib"

echo "Installed Ronda $version under $root${plugins:+, with ${#plugins[@]} plugins}${peers:+, and what ronda-bench compares with}"
