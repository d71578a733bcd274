#!/bin/bash
# test_frameworks.sh [VERSION]: the tests of frameworks that build on torch.distributed: each framework's newest version
# from PyPI, with torch VERSION or the newest torch. They have a separate virtual environment, which finds torch in that
# of torch.
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

purelib() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [[ ! -e $folder/complete ]]; then
  rm -rf "$folder"
  "${PYTHON:-python3}" -m venv "$folder"
  purelib "$torch/bin/python" > "$(purelib "$python")/torch.pth"
  "$python" -m pip install --quiet --no-deps "${frameworks[@]}"
  mapfile -t wanted < <("$python" tools/torch/requirements.py "${frameworks[@]}")
  "$python" -m pip install --quiet "${wanted[@]}"
  # deepspeed_test finds it there. Otherwise the test would compile it, within its own time limit.
  TORCH_EXTENSIONS_DIR=$folder/torch_extensions DS_ACCELERATOR=cpu "$python" -c \
    'from deepspeed.accelerator import get_accelerator as a; a().create_op_builder("ShareMemCommBuilder").load()'
  touch "$folder/complete"
fi
for each in torch "${frameworks[@]%[*}"; do
  echo "$each $("$python" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$each")"
done
exec tests/run_tests.sh --test_env=TEST_PYTHON="$python" //tests/python/frameworks/...
