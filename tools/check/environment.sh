#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# environment.sh: prints the path of a Python that has the programs of requirements.txt. The Python belongs to a virtual
# environment in ~/.cache/ronda, which the script makes unless it is complete.
set -euo pipefail
cd "$(dirname "$0")/../.."

# If a version in requirements.txt changes, the script makes another environment.
readonly name=check module=lizard requirements=tools/check/requirements.txt
source tools/environments.sh

make_environment() {
  install --requirement "$requirements"
}

print_python "$(cksum < "$requirements" | cut -d ' ' -f 1)"
