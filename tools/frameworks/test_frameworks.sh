#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# test_frameworks.sh [VERSION]: the tests of frameworks above torch.distributed, each framework's newest version from
# PyPI, beside torch VERSION or the newest one; and of manifests for Kubernetes, with the newest schemas from PyPI. They
# have a virtual environment of their own, which finds torch in torch's.
set -euo pipefail
cd "$(dirname "$0")/../.."

torch=$(tools/torch/environment.sh "${1:-newest}")
torch=${torch%/bin/python}
readonly torch folder=${torch%/*}/frameworks-${torch##*/}
readonly python=$folder/bin/python

# All of them require torch. With its requirements pip would install torch again, with its libraries for GPUs.
readonly frameworks=(
  accelerate transformers lightning pytorch-lightning torchmetrics pytorch-ignite deepspeed 'ray[train]' torchft
)
readonly schemas=(kubernetes-validate kubeflow-trainer-api)

purelib() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [[ ! -e $folder/complete ]]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  purelib "$torch/bin/python" > "$(purelib "$python")/torch.pth"
  "$python" -m pip install --quiet --no-deps "${frameworks[@]}"
  mapfile -t wanted < <("$python" tools/torch/requirements.py "${frameworks[@]}")
  "$python" -m pip install --quiet "${wanted[@]}" "${schemas[@]}"
  # deepspeed_test finds it there, and would compile it within its time otherwise.
  TORCH_EXTENSIONS_DIR=$folder/torch_extensions DS_ACCELERATOR=cpu "$python" -c \
    'from deepspeed.accelerator import get_accelerator as a; a().create_op_builder("ShareMemCommBuilder").load()'
  touch "$folder/complete"
fi
for each in torch "${frameworks[@]%[*}" "${schemas[@]}"; do
  echo "$each $("$python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$each")"
done
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/frameworks/... \
  //tests/python/kubernetes:manifests_test
