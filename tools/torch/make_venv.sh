#!/bin/bash
# make_venv.sh VERSION: makes a virtual environment with that torch from PyPI, or with the newest one, unless there is
# one already; prints the path of its Python. PyPI's torch is built for CUDA; neither CUDA's packages nor a GPU are
# needed (see stand_ins.py).
set -euo pipefail

version=${1:?usage: make_venv.sh VERSION, or make_venv.sh newest}
if [[ $version == newest ]]; then
  version=$("${PYTHON:-python3}" -m pip index versions torch 2> /dev/null | sed -nE '1s/^torch \((.*)\)$/\1/p')
  [[ -n $version ]] || { echo "make_venv.sh: pip does not say which torch is the newest" >&2; exit 1; }
fi
readonly version folder=${XDG_CACHE_HOME:-$HOME/.cache}/ronda/torch-$version
readonly python=$folder/bin/python

if [[ ! -e $folder/complete ]]; then
  {
    rm -rf "$folder"
    "${PYTHON:-python3}" -m venv "$folder"
    "$python" -m pip install --quiet --no-deps "torch==$version"
    # torch before 2.3 was built for NumPy 1.
    [[ $version =~ ^(1|2\.[0-2])\. ]] && numpy='numpy<2' || numpy=numpy
    mapfile -t wanted < <("$python" tools/torch/requirements.py torch)
    "$python" -m pip install --quiet "${wanted[@]}" "$numpy" cloudpickle
    "$python" tools/torch/stand_ins.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    "$python" -c 'import torch; print("torch", torch.__version__)'
    touch "$folder/complete"
  } >&2
fi
echo "$python"
