#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Jobs in processes that have other copies of libraries that libronda.so contains, in shared memory and over TCP (which
# loads libronda_hosts.so, and with it Debian's gRPC). The processes are a program with Debian's gRPC, protobuf and
# Abseil, and Python with PyTorch, which loads libronda.so last.
set -euo pipefail

# Programs find the library by its soname.
cp client/libronda.so "$TEST_TMPDIR/libronda.so.0"
export LD_LIBRARY_PATH=$TEST_TMPDIR RONDA_START_TIMEOUT=60s

expect_well() {  # expect_well PROGRAM...: on two ranks
  local output
  for backend in shm tcp; do
    output=$(RONDA_BACKEND=$backend programs/rondarun/rondarun -np 2 "$@" 2>&1) || { echo "FAILED: $* over $backend: $output" && exit 1; }
    [[ $(grep -c "all is well" <<< "$output") == 2 ]] || { echo "FAILED: $* over $backend: $output" && exit 1; }
  done
}

readonly program=tests/client/neighbours/neighbours
[[ $(ldd "$program") == *libgrpc++.so*libprotobuf.so* ]] || { echo "FAILED: the program has no gRPC of its own" && exit 1; }
expect_well "$program"
expect_well "$program" throw

/usr/bin/python3 -c "import torch" 2> /dev/null || { echo "PyTorch is not installed: its part is left out"; exit 0; }
expect_well /usr/bin/python3 -c '
import ctypes, torch
ronda = ctypes.CDLL("libronda.so.0")
def check(code):
    ronda.ronda_last_error.restype = ctypes.c_char_p
    if code: raise SystemExit(ronda.ronda_last_error())
matrix = torch.randn(300, 300, requires_grad=True)
check(ronda.ronda_init(None))
for _ in range(20):
    check(ronda.ronda_barrier(0))
    (matrix @ matrix).sum().backward()
check(ronda.ronda_shutdown())
assert ronda.ronda_size() == -1 and matrix.grad.isfinite().all()
print("all is well")
'
