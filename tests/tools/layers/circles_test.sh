#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# tools/layers/circles.py on made-up sources.
set -euo pipefail

readonly work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/circles.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

include() {  # include FILE HEADER
  mkdir -p "$(dirname "$work/$1")"
  echo "#include \"$2\"" >> "$work/$1"
}

include runtime/engine/runtime.h runtime/control/control.h
include runtime/control/shm/link.cc runtime/control/control.h
include runtime/control/control.h absl/status/status.h
include client/session.cc runtime/engine/runtime.h
tools/layers/circles.py "$work" || fail "layers without a circle are refused"

# Folders of one room may include each other.
include runtime/control/control.h runtime/control/shm/link.h
tools/layers/circles.py "$work" || fail "the folders of a room are taken for rooms"

# A circle of three, which other rooms lead to and lead away from.
include runtime/control/control.h runtime/monitor/recorder.h
include runtime/monitor/timeline/track.cc runtime/engine/device/lane.h
include runtime/monitor/recorder.h runtime/base/types.h
output=$(tools/layers/circles.py "$work" 2>&1) && fail "a circle is accepted"
for line in \
  "runtime/control -> runtime/monitor: runtime/control/control.h includes runtime/monitor/recorder.h" \
  "runtime/engine -> runtime/control: runtime/engine/runtime.h includes runtime/control/control.h" \
  "runtime/monitor -> runtime/engine: runtime/monitor/timeline/track.cc includes runtime/engine/device/lane.h"; do
  [[ $output == *"$line"* ]] || fail "no line '$line' in: $output"
done
[[ $output != *client* && $output != *runtime/base* ]] || fail "rooms beside the circle are named: $output"
