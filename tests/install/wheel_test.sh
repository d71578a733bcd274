#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The steps of a user of Python: installs the wheel in a virtual environment, and runs programs on two ranks. Without what the wheel was
# built from: the environment has neither the sources nor the libraries of the build.
set -euo pipefail

readonly work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/wheel.XXXXXX")
trap 'rm -rf "$work"' EXIT
readonly most_bytes=17000000  # 16.2 MB now, most of it gRPC and libcrypto

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

client/packaging/wheel "$work/dist" > "$work/wheel.log"
readonly wheel=$(echo "$work"/dist/ronda-*-cp310-abi3-manylinux_2_34_x86_64.whl)
[[ -f $wheel ]] || fail "no wheel: $(ls "$work/dist")"
(($(stat -c %s "$wheel") < most_bytes)) || fail "the wheel is too big: $(< "$work/wheel.log")"

/usr/bin/python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$wheel"
cd "$work"
unset PYTHONPATH LD_LIBRARY_PATH RONDA_HOSTS_PLUGIN  # the wheel has what it needs

# What manylinux does not promise is the wheel's own.
readonly library=$(echo venv/lib/python3*/site-packages/ronda/lib)
for file in "$library"/../_native.abi3.so "$library"/libronda.so.0 "$library"/rondarun "$library"/rondactl "$library"/ronda-monitor "$library"/ronda-bench; do
  foreign=$(ldd "$file" | grep -vE '^\s*(linux-vdso|/lib64/ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)\.so)' |
    grep -vF "$work/venv" || true)
  [[ -z $foreign ]] || fail "$file needs libraries of this machine: $foreign"
  ! objdump -T "$file" | grep -E 'GLIBC_2\.(3[5-9]|[4-9][0-9])|GLIBCXX_3\.4\.[3-9][0-9]' || fail "$file needs a newer system"
done

# The licenses are there, and NOTICE names the projects of all libraries that are copies, and no others.
readonly info=$(echo venv/lib/python3*/site-packages/ronda-*.dist-info)
grep -qx "License-Expression: Apache-2.0" "$info/METADATA" || fail "METADATA names no license: $(< "$info/METADATA")"
for file in $(sed -n 's/^License-File: //p' "$info/METADATA"); do
  [[ -s $info/licenses/$file ]] || fail "the license $file is not in the wheel"
done
grep -q "Apache License" "$info/licenses/LICENSE" || fail "LICENSE: $(head -5 "$info/licenses/LICENSE")"
copied=$(basename -a "$library"/lib*-????????.so* | sed -E 's/-[0-9a-f]{8}\.so.*//; s/^libabsl_.*/libabsl_*/' | sort -u)
named=$(awk -F '  +' 'table && $3 != "-" { print $3 } /^Project / { table = 1 }' "$info/licenses/NOTICE" | tr ' ' '\n' | sort -u)
[[ $copied == *libgrpc* ]] || fail "the wheel has no copies of libraries: $copied"
difference=$(diff <(echo "$copied") <(echo "$named")) ||
  fail "libraries that the wheel has copies of (<) and that NOTICE names (>) differ: $difference"

[[ -f $library/../paddle/fleet/__init__.py ]] || fail "ronda.paddle.fleet is missing"

venv/bin/python -m ronda.check > check.log || fail "ronda.check: $(< check.log)"
grep -q "2 ranks on this host: all-reduce works" check.log || fail "ronda.check: $(< check.log)"

cat > sum.py << 'END'
import ronda
ronda.init()
data = bytearray([1] * 100)
ronda.allreduce(data, ronda.ReduceOp.SUM, out=data)
assert data == bytes([ronda.size()] * 100)
print("sum is right on", ronda.size())
ronda.shutdown()
END
for command in rondarun horovodrun "env RONDA_BACKEND=tcp venv/bin/rondarun"; do
  [[ $command == env* ]] || command=venv/bin/$command
  output=$($command -np 2 venv/bin/python sum.py) || fail "$command"
  [[ $(grep -c "sum is right on 2" <<< "$output") -eq 2 ]] || fail "$command: $output"
done
output=$(venv/bin/rondarun -np 2 sh -c '
    exec venv/bin/python -c "import ronda; ronda.init(); import subprocess, os
if ronda.rank() == 0: subprocess.run([\"venv/bin/rondactl\", \"ranks\", os.environ[\"RONDA_JOB_ID\"]], check=True)
ronda.barrier()"') || fail "rondactl: $output"
[[ $output == *negotiated* ]] || fail "rondactl: $output"
for name in ronda-monitor ronda-bench; do
  [[ $(venv/bin/$name --version) == "$name "* ]] || fail "$name"
done
for name in rondarun horovodrun rondactl ronda-monitor ronda-bench; do
  [[ -s venv/share/man/man1/$name.1 && -s venv/share/bash-completion/completions/$name ]] || fail "the manual page or the completion of $name"
done
mkdir no-results
if output=$(venv/bin/ronda-bench report no-results 2>&1); then fail "there is a report of no results"; fi
[[ $output == *"no-results: there is no file *.json in this folder"* ]] || fail "ronda-bench report: $output"
output=$(venv/bin/rondarun --monitor --dry-run -np 1 true) || fail "rondarun --monitor: $output"
[[ $output == *"/ronda/lib/ronda-monitor --wait --port 0 "* ]] || fail "rondarun --monitor: $output"
echo "all is well: $(< wheel.log)"
