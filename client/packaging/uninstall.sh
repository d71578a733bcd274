#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Removes only what install.sh has installed under PREFIX (below $DESTDIR, if that is set). Usage: uninstall.sh PREFIX.
set -euo pipefail
source "$(dirname "$0")/installed_files.sh"

fail() {
  echo "uninstall: $*" >&2
  exit 1
}

[[ $# -eq 1 && -n $1 ]] || fail "usage: make uninstall PREFIX=..."
readonly root=${DESTDIR:-}$1
readonly list=$root/$installed_list
[[ -f $list ]] || fail "there is no $list, where make install lists what it installs: give the PREFIX of make install, or install this version there first"
[[ -w $(dirname "$list") ]] || fail "$(dirname "$list") may not be written by this user: run it as the one who installed Ronda"

remove_listed "$root" "$(< "$list")" ""
echo "Uninstalled Ronda from $root"
