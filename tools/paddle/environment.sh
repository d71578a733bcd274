#!/bin/bash
# environment.sh VERSION: prints the path of a Python that has PyPI's paddlepaddle for CPUs of this version, or of the
# newest that pip offers ("newest"). It belongs to a virtual environment in ~/.cache/ronda (1 GB), which is made where it
# is not complete. A version that cannot be had: the last line of standard error says why, and the exit code is 1.
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
