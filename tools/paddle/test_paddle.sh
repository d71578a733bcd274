#!/bin/bash
# test_paddle.sh VERSION: the tests of ronda.paddle with PyPI's paddlepaddle for CPUs, in a virtual environment of its own.
set -euo pipefail

readonly version=${1:?usage: make test-paddle PADDLE=2.6.2}
readonly folder=${XDG_CACHE_HOME:-$HOME/.cache}/ronda/paddle-$version
readonly python=$folder/bin/python

if [[ ! -e $folder/complete ]]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  # Paddle 2 was built for NumPy 1.
  [[ $version == 2.* ]] && numpy='numpy<2' || numpy=numpy
  "$python" -m pip install --quiet "paddlepaddle==$version" "$numpy" setuptools
  "$python" -c 'import paddle; print("paddle", paddle.__version__)'
  touch "$folder/complete"
fi
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/paddle/...
