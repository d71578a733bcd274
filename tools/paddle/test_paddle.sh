#!/bin/bash
# test_paddle.sh VERSION: the tests of ronda.paddle with PyPI's paddlepaddle for CPUs of this version, or the newest, in a
# virtual environment of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(tools/paddle/environment.sh "$1")
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/paddle/...
