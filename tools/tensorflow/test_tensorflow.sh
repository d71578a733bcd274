#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# test_tensorflow.sh VERSION: runs the tests of ronda.tensorflow and ronda.keras with PyPI's tensorflow-cpu, in this
# version or the newest, in a separate virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(tools/tensorflow/environment.sh "$1")
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/tensorflow/... //tests/python/keras/...
