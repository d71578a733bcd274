#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# test_torch.sh VERSION: runs the tests of the Python package, and the tests of ronda/torch.hpp that work with any
# libtorch. They use PyPI's torch in this version or the newest, in a separate virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(tools/torch/environment.sh "$1")
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/... //tests/client/libtorch:any_libtorch_test \
  //tests/client/libtorch:any_libtorch_trainer_test
