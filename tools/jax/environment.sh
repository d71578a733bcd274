#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh VERSION: prints the path of a Python that has PyPI's jax for CPUs and Optax, in this version or the
# newest that pip offers ("newest"). The Python belongs to a virtual environment in ~/.cache/ronda (0.6 GB), which the
# script makes unless it is complete. If the version cannot be had, the last line of standard error says why, and the
# exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly name=jax project=jax
source tools/environments.sh

make_environment() {
  install "jax==$version" "jaxlib==$version" optax
}

print_python "${1:?usage: environment.sh VERSION, or newest}"
