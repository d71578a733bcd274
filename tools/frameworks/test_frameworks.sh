#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# test_frameworks.sh [VERSION]: runs the tests of frameworks above torch.distributed, with each framework's newest
# version from PyPI, beside torch VERSION or the newest torch. Also tests the manifests for Kubernetes, with the newest
# schemas from PyPI. The frameworks have a separate virtual environment, which uses torch from the environment of
# tools/torch.
set -euo pipefail
cd "$(dirname "$0")/../.."

torch=$(tools/torch/environment.sh "${1:-newest}")
torch=${torch%/bin/python}
readonly torch folder=${torch%/*}/frameworks-${torch##*/}
readonly python=$folder/bin/python

# All frameworks require torch. If pip installed a framework's requirements, it would install torch again, with the
# libraries for GPUs.
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
  # Compiles this extension of DeepSpeed now. Otherwise deepspeed_test would compile it, within the test's time limit.
  TORCH_EXTENSIONS_DIR=$folder/torch_extensions DS_ACCELERATOR=cpu "$python" -c \
    'from deepspeed.accelerator import get_accelerator as a; a().create_op_builder("ShareMemCommBuilder").load()'
  touch "$folder/complete"
fi
for each in torch "${frameworks[@]%[*}" "${schemas[@]}"; do
  echo "$each $("$python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$each")"
done
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/frameworks/... \
  //tests/python/kubernetes:manifests_test
