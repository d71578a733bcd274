# SPDX-License-Identifier: Apache-2.0

# shellcheck shell=bash
# Finds out what is on the machine that run.sh runs on. $root is the bundle's folder, and $rondarun the bundle's
# launcher.

# Prints the folders with libraries that NVIDIA's wheels have installed for the machine's Python, such as NCCL and
# cuBLAS.
wheel_folders() {
  python3 - 2> /dev/null << 'PYTHON'
import glob
import importlib.util

spec = importlib.util.find_spec("nvidia")
for place in spec.submodule_search_locations if spec else []:
    print(*glob.glob(place + "/*/lib"), sep="\n")
PYTHON
}

wheels=$(wheel_folders | paste -sd :)
readonly wheels
# Where programs of the bundle find libraries. Python has its own libraries.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$root/lib:/usr/local/cuda/lib64${wheels:+:$wheels}

# Makes every program start with the C library that was copied with it.
use_own_libc() {
  local program
  find . -type f -perm -u+x ! -name '*.so*' ! -name '*.elf' | while read -r program; do
    [[ $(head -c 4 "$program" | tr -d '\0') == $'\x7fELF' ]] || continue
    mv "$program" "$program.elf"
    printf '#!/bin/sh\nexec "%s/lib/glibc/ld-linux-x86-64.so.2" --argv0 "$0" --library-path "%s/lib/glibc:$LD_LIBRARY_PATH" "%s.elf" "$@"\n' \
      "$root" "$root" "$root/${program#./}" > "$program"
    chmod 755 "$program"
  done
}

# Prints whether a part of Ronda can be used here: "X NVIDIA's GPUs: 1 device: ...", or "- no CUDA device: ...".
part() {  # part NAME
  RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN "$rondarun" --check-build 2>&1 |
    sed -nE "s/^ +\[(.)\] $1 +(.*)/\1 \2/p" | sed 's/^  /- /'
}

# Prints the path of compute-sanitizer, or nothing if it is not installed.
sanitizer() {
  PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer
}
