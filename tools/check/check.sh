#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs check.py, which describes its options, with the Python that has the programs for it.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(tools/check/environment.sh) || {
  echo "check: ruff, mypy and lizard come from PyPI: run this once with a network" >&2
  exit 1
}
exec "$python" tools/check/check.py "$@"
