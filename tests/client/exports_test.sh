#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# libronda.so exports the functions that the C headers declare, and nothing else. It needs no shared library except
# glibc's and libgcc_s, no newer glibc than it promises, and little memory.
set -euo pipefail

readonly library=client/libronda.so
readonly glibc=2.34  # docs/abi.md
readonly headers="client/ronda.h client/ronda/operations.h client/ronda/groups.h client/ronda/lanes.h"
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

# Another version of protobuf, Abseil, gRPC or libstdc++ in the process does not matter to it.
needed=$(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
[[ $needed == "ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 libm.so.6 " ]] ||
  { echo "FAILED: $library needs $needed" && failures=$((failures + 1)); }
# The loader binds a unique symbol to that of another library, even one that is not visible otherwise.
! nm --dynamic "$library" | grep " u " || { echo "FAILED: $library has unique symbols" && failures=$((failures + 1)); }
# For these, all libraries that are loaded late share about 1,600 bytes (glibc.rtld.optional_static_tls).
tls=$((16#$(readelf --segments --wide "$library" | awk '$1 == "TLS" { print substr($6, 3) }')))
((tls <= 640)) || { echo "FAILED: $library has $tls bytes of thread-local variables" && failures=$((failures + 1)); }

strip -o "$TEST_TMPDIR/stripped" "$library"
size=$(stat --format=%s "$TEST_TMPDIR/stripped")
((size < 8000000)) || { echo "FAILED: $library has $size bytes without symbols" && failures=$((failures + 1)); }

count=$(wc -l <<< "$declared")
((count >= 50)) || { echo "FAILED: found $count functions in $headers only" && failures=$((failures + 1)); }
exit $((failures > 0))
