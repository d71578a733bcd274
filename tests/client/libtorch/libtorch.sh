# Sourced by the tests that compile with another libtorch than Bazel does: that of $TEST_PYTHON's torch, or else Debian's.
# Sets `version`, `standard` (the newest of C++'s), `flags` and `libraries` for g++.
unset RONDA_HOSTS_PLUGIN  # it would be sought relative to another folder

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

readonly python=${TEST_PYTHON:-/usr/bin/python3}
readonly standard=20

# torch's version, its folder, and which of g++'s ABIs its strings have. Versions that do not tell have the newer one.
facts=$("$python" -c '
import pathlib, torch
print(torch.__version__, pathlib.Path(torch.__file__).parent, int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True)))
') || fail "$python cannot import torch"
read -r version torch abi <<< "$facts"

# Debian has headers and libraries where the compiler looks.
includes=/usr/include
if [[ -d $torch/include/ATen ]]; then includes=$torch/include; fi
flags=(-I. -isystem "$includes/torch/csrc/api/include" "-D_GLIBCXX_USE_CXX11_ABI=$abi" -Wall -Wextra -Werror)
libraries=("-L$torch/lib" -ltorch_cpu -lc10 "-Wl,-rpath,$torch/lib" -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined)
if [[ $includes != /usr/include ]]; then flags+=(-isystem "$includes"); fi

# libronda.so by its soname.
cp client/libronda.so "$TEST_TMPDIR/libronda.so.0"
libraries+=("$TEST_TMPDIR/libronda.so.0" "-Wl,-rpath,$TEST_TMPDIR")
