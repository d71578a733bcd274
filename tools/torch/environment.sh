#!/bin/bash
# environment.sh VERSION: prints the path of a Python that has PyPI's torch of this version, or of the newest that pip
# offers ("newest"). It belongs to a virtual environment in ~/.cache/ronda (2 GB), which is made where it is not complete.
# PyPI's torch is built for CUDA; neither CUDA's packages nor a GPU are needed (see stand_ins.py).
# A version that cannot be had: the last line of standard error says why, and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/ronda

say() {
  echo "torch: $*" >&2
}

fail() {
  say "$*"
  exit 1
}

# Makes a virtual environment in folder $1, in place of what is there.
make_venv() {
  rm -rf "$1"
  mkdir -p "$(dirname "$1")"
  "${PYTHON:-python3}" -m venv "$1" >&2 || fail "${PYTHON:-python3} cannot make a virtual environment in $1"
}

# Prints the newest version that pip offers this Python; fails without an answer.
offered() {
  local answer
  [[ -x $cache/pip/bin/pip ]] || make_venv "$cache/pip"
  answer=$("$cache/pip/bin/python" -m pip --retries 1 --timeout 30 index versions torch 2> /dev/null) || return 1
  sed -nE '1s/^torch \((.+)\)$/\1/p' <<< "$answer" | grep .
}

# The same without pip: the newest that is complete here.
kept() {
  local marker
  for marker in "$cache"/torch-*/complete; do
    [[ ! -e $marker ]] || sed -E 's|.*/torch-([^/]+)/complete|\1|' <<< "$marker"
  done | sort -V | tail -n 1 | grep .
}

newest() {
  if offered; then return; fi
  kept || fail "the newest version cannot be had: pip finds no torch (is there a network?), and none is in $cache"
  say "pip finds no torch (is there a network?): the newest in $cache is taken"
}

install() {
  local reason
  "$python" -m pip install --quiet "$@" >&2 2> "$folder/errors" && return
  cat "$folder/errors" >&2
  reason=$(sed -n 's/^ERROR: //p' "$folder/errors" | tail -n 1)
  rm -rf "$folder"
  fail "$version cannot be had: ${reason:-pip fails to install $*}"
}

make_environment() {
  local numpy=numpy
  say "$version is installed in $folder; this takes minutes"
  make_venv "$folder"
  install --no-deps "torch==$version"
  [[ $version =~ ^(1|2\.[0-2])\. ]] && numpy='numpy<2'  # torch before 2.3 was built for NumPy 1
  mapfile -t wanted < <("$python" tools/torch/requirements.py torch)
  install "${wanted[@]}" "$numpy" cloudpickle
  "$python" tools/torch/stand_ins.py "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >&2 ||
    fail "$version cannot be had: stand_ins.py fails"
  "$python" -c 'import torch' || fail "$version cannot be had: Python fails to import it"
  touch "$folder/complete"
}

version=${1:?usage: environment.sh VERSION, or newest}
if [[ $version == newest ]]; then version=$(newest); fi
[[ $version =~ ^[0-9][0-9A-Za-z.+]*$ ]] || fail "'$version' is no version: give one as 2.6.0, or newest"
readonly folder=$cache/torch-$version
readonly python=$folder/bin/python

mkdir -p "$cache"
exec 9> "$cache/torch.lock"  # of two that want a version, one makes it
flock 9
if [[ ! -e $folder/complete ]]; then make_environment; fi
echo "$python"
