#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Without a GPU, cuda_mnist reports that and names the alternative. With a GPU, this test checks nothing.
set -euo pipefail

readonly program=examples/cuda_mnist/cuda_mnist

code=0
output=$("$program" --steps=0 2>&1) || code=$?
if ((code == 0)); then
  echo "SKIPPED: there is a GPU"
  exit 0
fi
((code == 1)) || { echo "FAILED: exit code $code: $output" && exit 1; }
[[ $output == "cuda_mnist: this needs a GPU: "*lenet_mnist* ]] || { echo "FAILED: $output" && exit 1; }
"$program" --help | grep -q -- --bench || { echo "FAILED: --help" && exit 1; }
