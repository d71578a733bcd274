#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# test_paddle.sh VERSION: runs the tests of ronda.paddle with PyPI's paddlepaddle for CPUs, in this version or the
# newest, in a separate virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(tools/paddle/environment.sh "$1")
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/paddle/...
