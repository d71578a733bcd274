#!/bin/bash
# libronda.so exports what the C headers declare, and nothing else; and needs no newer glibc than it promises.
set -euo pipefail

readonly library=client/libronda.so
readonly glibc=2.34  # docs/abi.md
readonly headers="client/ronda.h client/ronda/operations.h client/ronda/groups.h"
failures=0

exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ sub(/@.*/, "", $1); print $1 }' | sort)
# Declarations begin in the first column; comments that mention functions do not.
declared=$(sed -nE 's/^(ronda_status|ronda_context|int|const char\*) (ronda_[a-z_]+)\(.*/\2/p' $headers | sort)

while read -r symbol; do
  case $symbol in
    ronda_* | RONDA_1) ;;
    *) echo "FAILED: $library exports $symbol" && failures=$((failures + 1)) ;;
  esac
done <<< "$exported"

while read -r function; do
  grep -qx "$function" <<< "$exported" || { echo "FAILED: $library lacks $function" && failures=$((failures + 1)); }
done <<< "$declared"

soname=$(readelf --dynamic "$library" | sed -n 's/.*soname: \[\(.*\)\].*/\1/p')
[[ $soname == libronda.so.0 ]] || { echo "FAILED: the soname is '$soname'" && failures=$((failures + 1)); }

newest=$(objdump --dynamic-syms "$library" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort --version-sort | tail -n 1)
[[ -n $newest && $(printf '%s\n' "$newest" "$glibc" | sort --version-sort | tail -n 1) == "$glibc" ]] ||
  { echo "FAILED: $library needs glibc '$newest', newer than $glibc" && failures=$((failures + 1)); }

count=$(wc -l <<< "$declared")
((count >= 50)) || { echo "FAILED: found $count functions in $headers only" && failures=$((failures + 1)); }
exit $((failures > 0))
