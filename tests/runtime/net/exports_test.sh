#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The plugin exports only its table, so that no symbol of it can replace one of another library.
set -euo pipefail

readonly library=runtime/net/libronda_hosts.so
exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ print $1 }')
[[ $exported == ronda_hosts_plugin_table ]] || { echo "FAILED: $library exports $exported" && exit 1; }
