#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The steps of a user after `make install`: builds a trainer outside of the tree, with pkg-config and with CMake, and runs it alone and
# under rondarun. The installed tree is moved first: nothing in it may know where it was installed.
set -euo pipefail

# Plugins are found where they were installed.
unset RONDA_HOSTS_PLUGIN

readonly trainer=$PWD/tests/install/trainer
readonly work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/install.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Runs a built trainer; rondarun may put the rank before each line.
expect_runs() {  # expect_runs HOW TRAINER
  local output
  output=$("$2") || fail "$1: the trainer fails alone"
  [[ $output == "rank 0 of 1: the mean of all ranks is 0" ]] || fail "$1, alone: $output"
  output=$("$prefix/bin/rondarun" -np 2 "$2") || fail "$1: the trainer fails under rondarun"
  for rank in 0 1; do
    [[ $output == *"rank $rank of 2: the mean of all ranks is 0.5"* ]] || fail "$1, under rondarun: $output"
  done
}

client/packaging/install "$work/first" .
mv "$work/first" "$work/moved"
readonly prefix=$work/moved

for file in bin/rondarun bin/horovodrun bin/rondactl bin/ronda-monitor bin/ronda-bench include/ronda.h include/ronda.hpp \
  include/ronda/operations.h include/ronda/groups.h include/ronda/lanes.h include/ronda/training.hpp \
  include/ronda/training/power_sgd.hpp \
  include/ronda/torch.hpp include/ronda/torch/data_parallel.hpp \
  lib/python3/dist-packages/ronda/__init__.py lib/libronda.so lib/libronda.so.0 lib/libronda_hosts.so \
  lib/pkgconfig/ronda.pc lib/cmake/ronda/ronda-config.cmake lib/cmake/ronda/ronda-config-version.cmake \
  share/doc/ronda/LICENSE share/doc/ronda/NOTICE; do
  [[ -s $prefix/$file ]] || fail "$file is not installed"
done
# The message would otherwise be that of a missing library on somebody else's machine.
if grep -rqF "$work/first" "$prefix/lib/pkgconfig" "$prefix/lib/cmake"; then fail "a package file knows the old prefix"; fi

# Without optimisation or Bazel's flags, but with every warning.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
version=$("$prefix/bin/rondarun" --version) && version=${version#rondarun } || fail "rondarun --version"
pkg-config --exact-version="$version" ronda || fail "pkg-config's version is not $version"
g++ -std=c++17 -Wall -Wextra -pedantic -Werror "$trainer/trainer.cc" $(pkg-config --cflags --libs ronda) \
  -Wl,-rpath,"$prefix/lib" -o "$work/trainer" || fail "pkg-config: the trainer does not build"
expect_runs "pkg-config" "$work/trainer"

cmake -S "$trainer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DRONDA_VERSION="${version%.*}" > "$work/cmake.log" 2>&1 &&
  cmake --build "$work/build" >> "$work/cmake.log" 2>&1 || fail "CMake: $(cat "$work/cmake.log")"
expect_runs "CMake" "$work/build/trainer"

# The Python package finds both in the prefix.
cat > "$work/mean.py" << 'END'
import ronda
ronda.init()
data = bytearray([2 * ronda.rank()])
ronda.allreduce(data, out=data)
print("mean", *data)
ronda.shutdown()
END
output=$(PYTHONPATH=$prefix/lib/python3/dist-packages "$prefix/bin/rondarun" -np 2 /usr/bin/python3 "$work/mean.py") ||
  fail "the Python package"
[[ $(grep -c "mean 1" <<< "$output") -eq 2 ]] || fail "the Python package: $output"
output=$(PYTHONPATH=$prefix/lib/python3/dist-packages /usr/bin/python3 -c 'from ronda.run import rondarun; rondarun()' --version) ||
  fail "ronda.run.rondarun"

# Ranks that meet over the network need the plugin for several hosts, and say so without it.
export RONDA_BACKEND=tcp
expect_runs "over TCP" "$work/trainer"
mv "$prefix/lib/libronda_hosts.so" "$work"
if output=$("$prefix/bin/rondarun" -np 2 "$work/trainer" 2>&1); then fail "there are ranks over TCP without a plugin"; fi
[[ $output == *"Ronda's plugin for several hosts cannot be loaded"*"libronda_hosts.so"* ]] || fail "without the plugin: $output"
mv "$work/libronda_hosts.so" "$prefix/lib"
unset RONDA_BACKEND

# The benchmark tool finds the launcher beside itself.
"$prefix/bin/ronda-bench" collectives -e 8 --rounds 1 --block-time 100us > "$work/bench.log" 2>&1 ||
  fail "ronda-bench: $(cat "$work/bench.log")"
grep -q "2 ranks, started by rondarun" "$work/bench.log" || fail "ronda-bench: $(cat "$work/bench.log")"

# And its peers under lib/ronda.
"$prefix/bin/ronda-bench" collectives --layer communicator --peer gloo -e 8 --rounds 1 --block-time 100us > "$work/peer.log" 2>&1 ||
  fail "ronda-bench --peer gloo: $(cat "$work/peer.log")"
grep -q "beside Gloo" "$work/peer.log" || fail "ronda-bench --peer gloo: $(cat "$work/peer.log")"
[[ -x $prefix/lib/ronda/openmpi_first_allreduce ]] || fail "the program of ronda-bench startup is not installed"

# And the program of its report.
mkdir "$work/no-results"
if output=$("$prefix/bin/ronda-bench" report "$work/no-results" 2>&1); then fail "there is a report of no results"; fi
[[ $output == *"no-results: there is no file *.json in this folder"* ]] || fail "ronda-bench report: $output"

# The plugins lie where libronda.so looks for them, and can be loaded.
for plugin in libronda_mpi.so libronda_mpi_mpich.so; do
  [[ -x $prefix/lib/$plugin ]] || fail "$plugin is not installed"
  ! ldd "$prefix/lib/$plugin" | grep -q "not found" || fail "$plugin cannot be loaded: $(ldd "$prefix/lib/$plugin")"
done

# That for GPUs is found beside an installed library, and by the launcher: what is missing is a device, or else the tensor is none of its.
if [[ -e runtime/cuda/libronda_cuda.so ]]; then
  [[ -x $prefix/lib/libronda_cuda.so ]] || fail "libronda_cuda.so is not installed"
  said=$(unset RONDA_CUDA_PLUGIN && "$work/trainer" gpu)
  [[ $said == *"no CUDA device: "* || $said == *"a buffer of it is in the host's"* ]] || fail "a tensor of a GPU: $said"
  said=$(unset RONDA_CUDA_PLUGIN && "$prefix/bin/rondarun" --check-build | grep '\] cuda ')
  [[ $said == *"no CUDA device: "* || $said == *"NVIDIA's GPUs: "* ]] || fail "rondarun --check-build: $said"
fi

# Programs of Horovod's users find its launcher.
output=$("$prefix/bin/horovodrun" -np 2 "$work/trainer") || fail "horovodrun"
[[ $output == *"rank 1 of 2: the mean of all ranks is 0.5"* ]] || fail "horovodrun: $output"

# A version that is not this one is refused.
if cmake -S "$trainer" -B "$work/build99" -DCMAKE_PREFIX_PATH="$prefix" -DRONDA_VERSION=99.0 > "$work/cmake.log" 2>&1; then
  fail "CMake takes this version for 99.0"
fi
grep -q "99.0" "$work/cmake.log" || fail "CMake: $(cat "$work/cmake.log")"
