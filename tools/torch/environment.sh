#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh VERSION: prints the path of a Python that has PyPI's torch, in this version or the newest that pip
# offers ("newest"). The Python belongs to a virtual environment in ~/.cache/ronda (2 GB), which the script makes unless
# it is complete. PyPI's torch is built for CUDA, but needs neither CUDA's packages nor a GPU here (see stand_ins.py).
# If the version cannot be had, the last line of standard error says why, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly name=torch project=torch
source tools/environments.sh

make_environment() {
  local numpy=numpy
  install --no-deps "torch==$version"
  [[ $version =~ ^(1|2\.[0-2])\. ]] && numpy='numpy<2'  # torch before 2.3 was built for NumPy 1
  mapfile -t wanted < <("$python" tools/torch/requirements.py torch)
  install "${wanted[@]}" "$numpy" cloudpickle
  "$python" tools/torch/stand_ins.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >&2 ||
    fail "$version cannot be had: stand_ins.py fails"
}

print_python "${1:?usage: environment.sh VERSION, or newest}"
