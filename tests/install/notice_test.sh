#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# NOTICE names the projects that are linked into what Ronda installs, and no others.
set -euo pipefail

readonly linked=$(sed -E 's|^//third_party/([a-z_]+):.*|\1|' tests/install/linked_projects | sort -u)
readonly named=$(awk -F '  +' 'table && $4 != "-" { print $4 } /^Project / { table = 1 }' NOTICE | sort -u)
[[ $linked == *abseil* && $linked == *highway* ]] || {
  echo "FAILED: the build names no projects: $linked"
  exit 1
}
difference=$(diff <(echo "$linked") <(echo "$named")) || {
  echo "FAILED: folders of third_party/ that are linked (<) and that NOTICE names (>) differ:"
  echo "$difference"
  exit 1
}
