# SPDX-License-Identifier: Apache-2.0

# Sourced by the tests that compile with another libtorch than Bazel: that of $TEST_PYTHON's torch, or else Debian's.
# Sets `version`, `standard` (the newest C++ standard), `flags` and `libraries` for g++.
unset RONDA_HOSTS_PLUGIN  # its path would be relative to another folder

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

readonly python=${TEST_PYTHON:-/usr/bin/python3}
readonly standard=20

# torch's version, its folder, and the ABI of g++ that its strings use. If a version does not report the ABI, it is the
# newer one.
facts=$("$python" -c '
import pathlib, torch
print(torch.__version__, pathlib.Path(torch.__file__).parent, int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
') || fail "$python cannot import torch"
read -r version torch abi <<< "$facts"

# Debian's headers and libraries are where the compiler looks.
includes=/usr/include
if [[ -d $torch/include/ATen ]]; then includes=$torch/include; fi
flags=(-I. -isystem "$includes/torch/csrc/api/include" "-D_GLIBCXX_USE_CXX11_ABI=$abi" -Wall -Wextra -Werror)
libraries=("-L$torch/lib" -ltorch_cpu -lc10 "-Wl,-rpath,$torch/lib" -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined)
if [[ $includes != /usr/include ]]; then flags+=(-isystem "$includes"); fi

# libronda.so by its soname.
cp client/libronda.so "$TEST_TMPDIR/libronda.so.0"
libraries+=("$TEST_TMPDIR/libronda.so.0" "-Wl,-rpath,$TEST_TMPDIR")
