#!/bin/bash
# test_torch.sh VERSION: the tests of the Python package with another torch, from PyPI, in a virtual environment of its
# own. PyPI's torch is built for CUDA; neither CUDA's packages nor a GPU are needed (see stand_ins.py).
set -euo pipefail

readonly version=${1:?usage: make test-torch TORCH=2.6.0}
readonly folder=${XDG_CACHE_HOME:-$HOME/.cache}/ronda/torch-$version
readonly python=$folder/bin/python

# What torch requires, but for the libraries that a GPU needs.
requirements() {
  "$python" - << 'END'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement

for line in importlib.metadata.requires("torch") or []:
    requirement = Requirement(line)
    is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if is_wanted and not requirement.name.startswith(("nvidia-", "cuda-", "triton")):
        print(f"{requirement.name}{requirement.specifier}")
END
}

if [[ ! -e $folder/complete ]]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  "$python" -m pip install --quiet --no-deps "torch==$version"
  # torch before 2.3 was built for NumPy 1.
  [[ $version =~ ^(1|2\.[0-2])\. ]] && numpy='numpy<2' || numpy=numpy
  mapfile -t wanted < <(requirements)
  "$python" -m pip install --quiet "${wanted[@]}" "$numpy" cloudpickle
  "$python" tools/torch/stand_ins.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  "$python" -c 'import torch; print("torch", torch.__version__)'
  touch "$folder/complete"
fi
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/...
