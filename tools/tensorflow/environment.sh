#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh VERSION: prints the path of a Python that has PyPI's tensorflow-cpu, in this version or the newest that
# pip offers ("newest"), with the newest Keras, JAX and torch, which are Keras's other backends. The Python belongs to a
# virtual environment in ~/.cache/ronda (3 GB), which the script makes unless it is complete. If the version cannot be
# had, the last line of standard error says why, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly name=tensorflow project=tensorflow-cpu
source tools/environments.sh

make_environment() {
  install "tensorflow-cpu==$version" keras jax
  install_torch torch cloudpickle
}

print_python "${1:?usage: environment.sh VERSION, or newest}"
