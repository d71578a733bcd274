#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh VERSION: prints the path of a Python that has PyPI's torch, in this version or the newest that pip
# offers ("newest"). The Python belongs to a virtual environment in ~/.cache/ronda (2 GB), which the script makes unless
# it is complete. If the version cannot be had, the last line of standard error says why, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly name=torch project=torch
source tools/environments.sh

make_environment() {
  local numpy=numpy
  [[ $version =~ ^(1|2\.[0-2])\. ]] && numpy='numpy<2'  # torch before 2.3 was built for NumPy 1
  install_torch "torch==$version" "$numpy" cloudpickle
}

print_python "${1:?usage: environment.sh VERSION, or newest}"
