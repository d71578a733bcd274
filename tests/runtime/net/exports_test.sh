#!/bin/bash
# The plugin exports its table, and nothing that could take another library's place.
set -euo pipefail

readonly library=runtime/net/libronda_hosts.so
exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ print $1 }')
[[ $exported == ronda_hosts_plugin_table ]] || { echo "FAILED: $library exports $exported" && exit 1; }
