#!/bin/bash
# test_torch.sh VERSION: the tests of the Python package with another torch, from PyPI, in a virtual environment of its
# own; and examples/torch_lenet, compiled against the libtorch in it, on 2 ranks.
set -euo pipefail

readonly version=${1:?usage: make test-torch TORCH=2.6.0}
python=$(tools/torch/make_venv.sh "$version")
readonly python folder=${python%/bin/python}

# Compiled by hand: libtorch says which of g++'s ABIs its strings have, and Bazel's libraries have the newer one.
cpp_program() {
  local bin torch abi program=$folder/torch_lenet
  "${BAZEL:-bazel}" build //client:libronda.so.0 //runtime/launch:rondarun
  bin=$("${BAZEL:-bazel}" info bazel-bin)
  torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
  abi=$("$python" -c 'import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))')
  "${CXX:-g++}" -std=c++17 -O1 "-D_GLIBCXX_USE_CXX11_ABI=$abi" -I. -isystem "$torch/include" \
    -isystem "$torch/include/torch/csrc/api/include" examples/torch_lenet/*.cc \
    examples/lenet_mnist/{idx_reader,mnist,program,reporter}.cc -o "$program" -L"$torch/lib" -ltorch_cpu -lc10 \
    "$bin/client/libronda.so.0" -lz -Wl,--disable-new-dtags "-Wl,-rpath,$torch/lib:$bin/client" \
    -Wl,--allow-shlib-undefined
  "$bin/runtime/launch/rondarun" -np 2 "$program" --epochs 2 --data examples/lenet_mnist/data | tee "$folder/output"
  grep -qE 'test accuracy 0\.9[0-9]+ \(2 ranks' "$folder/output"
  echo "ronda/torch.hpp compiles and trains with libtorch $version"
}

cpp_program
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/...
