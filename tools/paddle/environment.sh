#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh VERSION: prints the path of a Python that has PyPI's paddlepaddle for CPUs, in this version or the
# newest that pip offers ("newest"). The Python belongs to a virtual environment in ~/.cache/ronda (1 GB), which the
# script makes unless it is complete. If the version cannot be had, the last line of standard error says why, and the
# exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly name=paddle project=paddlepaddle
source tools/environments.sh

make_environment() {
  local numpy=numpy
  [[ $version == 2.* ]] && numpy='numpy<2'  # Paddle 2 was built for NumPy 1
  install "paddlepaddle==$version" "$numpy" setuptools
}

print_python "${1:?usage: environment.sh VERSION, or newest}"
