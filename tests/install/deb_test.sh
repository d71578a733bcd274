#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The Debian packages, unpacked side by side: their licenses, and the steps of a user.
set -euo pipefail

readonly scratch=$(mktemp -d "${TEST_TMPDIR:-/tmp}/deb.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

client/packaging/deb "$scratch/dist" . > "$scratch/deb.log" 2>&1 || fail "$(< "$scratch/deb.log")"
for package in ronda libronda0 libronda-dev python3-ronda; do
  dpkg-deb -x "$scratch/dist/${package}"_*.deb "$scratch/files"
  doc=$scratch/files/usr/share/doc/$package
  grep -qx "License: Apache-2.0" "$doc/copyright" || fail "$package: its copyright file is $(< "$doc/copyright")"
  cmp NOTICE "$doc/NOTICE" || fail "$package has no NOTICE"
done

readonly usr=$scratch/files/usr
for name in rondarun horovodrun rondactl ronda-monitor ronda-bench; do
  [[ -x $usr/bin/$name ]] || fail "there is no $name"
  zcat "$usr/share/man/man1/$name.1.gz" > "$scratch/page" && [[ -s $scratch/page ]] || fail "there is no manual page of $name"
  [[ -s $usr/share/bash-completion/completions/$name ]] || fail "there is no completion of $name"
done

export LD_LIBRARY_PATH=$usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH) PYTHONPATH=$usr/lib/python3/dist-packages
unset RONDA_HOSTS_PLUGIN
output=$("$usr/bin/horovodrun" -np 2 /usr/bin/python3 -c 'import ronda; ronda.init(); print("size", ronda.size()); ronda.shutdown()') ||
  fail "horovodrun"
[[ $(grep -c "size 2" <<< "$output") -eq 2 ]] || fail "horovodrun: $output"
"$usr/bin/ronda-bench" collectives --layer communicator --peer gloo -e 8 --rounds 1 --block-time 100us > "$scratch/peer.log" 2>&1 ||
  fail "ronda-bench --peer gloo: $(< "$scratch/peer.log")"
grep -q "beside Gloo" "$scratch/peer.log" || fail "ronda-bench --peer gloo: $(< "$scratch/peer.log")"
