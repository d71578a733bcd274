#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What `make install` says of plugins, and what it leaves behind: over an earlier version, beside other software, and after `make uninstall`.
set -euo pipefail

readonly work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/installed.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Everything under a prefix, with the contents of files.
state_of() {  # state_of PREFIX
  find "$1" -printf '%y %m %P %l\n' | sort
  find "$1" -type f -print0 | sort -z | xargs -0r md5sum
}

# Only what can be built here is asked of Bazel, and all of it.
targets=$(CUDA_HOME=$work/no-toolkit client/packaging/optional_parts.sh targets)
[[ $targets != *runtime/cuda* ]] || fail "there is no toolkit, and yet: $targets"
for target in //runtime/mpi:libronda_mpi.so //runtime/mpi:libronda_mpi_mpich.so //bench/peers:libronda_bench_gloo.so; do
  grep -qxF "$target" <<< "$targets" || fail "$target is not to be built: $targets"
done
mkdir -p "$work/toolkit/include"
touch "$work/toolkit/include/cuda_runtime.h"
targets=$(CUDA_HOME=$work/toolkit client/packaging/optional_parts.sh targets)
grep -qxF "//runtime/cuda:all" <<< "$targets" || fail "there is a toolkit, and yet: $targets"

# The last lines say which plugins are in, and why others are not.
readonly prefix=$work/prefix
mkdir -p "$prefix"/{bin,lib/python3,share/man/man1}
echo theirs > "$prefix/share/man/man1/other.1"
ln -s /bin/true "$prefix/bin/horovodrun"
before=$(state_of "$prefix")
said=$(CUDA_HOME=$work/no-toolkit client/packaging/install "$prefix" .)
[[ $said == *"  with Open MPI: libronda_mpi.so libronda_bench_openmpi.so openmpi_first_allreduce"* ]] || fail "with Open MPI: $said"
[[ $said == *"  without NVIDIA's GPUs: there is no $work/no-toolkit/include/cuda_runtime.h; install the CUDA toolkit"* ]] ||
  fail "without a toolkit: $said"
said=$(client/packaging/install "$work/bare" "$work/nowhere")
[[ $said == *"  without Open MPI: Bazel has not built runtime/mpi/libronda_mpi.so; install Debian's libopenmpi-dev"* ]] ||
  fail "without plugins: $said"
[[ -x $work/bare/bin/ronda-bench && ! -e $work/bare/lib/libronda_mpi.so ]] || fail "without plugins: $(ls -R "$work/bare")"

# The launcher finds them, or does without MPI on several hosts.
said=$("$prefix/bin/rondarun" -np 2 -H alpha:1,beta:1 --dry-run true 2>&1)
[[ $said == *"mpirun "* ]] || fail "with the plugin for MPI: $said"
said=$("$work/bare/bin/rondarun" -np 2 -H alpha:1,beta:1 --dry-run true 2>&1)
[[ $said == *"there is no plugin of Ronda's for Open MPI "*": the ranks are started over ssh"* ]] || fail "without it: $said"

# Horovod's own program stays.
[[ $(readlink "$prefix/bin/horovodrun") == /bin/true ]] || fail "horovodrun was replaced"
[[ $(client/packaging/install "$prefix" .) == *"  without horovodrun: $prefix/bin/horovodrun is another program's"* ]] || fail "horovodrun is there, in silence"
[[ $(readlink "$work/bare/bin/horovodrun") == rondarun ]] || fail "there is no horovodrun"

# Manual pages and completions come from --help.
for name in rondarun horovodrun rondactl ronda-monitor ronda-bench; do
  [[ -s $prefix/share/man/man1/$name.1 ]] || fail "there is no manual page of $name"
  (
    source "$prefix/share/bash-completion/completions/$name"
    complete -p "$name" > "$work/completion"
  ) || fail "there is no completion of $name"
done
grep -qF '.TH RONDARUN 1 "" "Ronda ' "$prefix/share/man/man1/rondarun.1" || fail "the page of rondarun has no head"
# An option is a line that an indented one explains.
options=$("$prefix/bin/rondarun" --help | awk '/^        / && last ~ /^  -/ { split(last, words, /[ ,=\[]+/); print words[2] } { last = $0 }')
[[ $options == *--binding* ]] || fail "rondarun --help has no options: $options"
for option in $options; do
  grep -qF -- "${option//-/\\-}" "$prefix/share/man/man1/rondarun.1" || fail "the page of rondarun lacks $option"
done
expect_completion() {  # expect_completion WORDS FUNCTION WORD...: WORDS complete the last WORD
  COMP_WORDS=("${@:3}")
  COMP_CWORD=$(($# - 3))
  "$2"
  [[ ${COMPREPLY[*]} == "$1" ]] || fail "completions of ${*:3}: ${COMPREPLY[*]}"
}
source "$prefix/share/bash-completion/completions/rondarun"
source "$prefix/share/bash-completion/completions/ronda-bench"
source "$prefix/share/bash-completion/completions/rondactl"
expect_completion "--binding --binding-args" _rondarun rondarun --bind
expect_completion "none numa" _rondarun rondarun --binding n
expect_completion "" _rondarun rondarun -np 2 ""  # a program: by the shell
expect_completion "--once" _rondactl rondactl top --o
expect_completion "submission" _ronda_bench ronda-bench sub
expect_completion "--warm-up" _ronda_bench ronda-bench step --warm

# Another version's files go, and those of others stay.
echo old > "$prefix/lib/libronda_old.so"
mkdir "$prefix/lib/old"
printf '%s\n' lib/libronda_old.so lib/old/ >> "$prefix/share/ronda/installed"
client/packaging/install "$prefix" . > "$work/again.log" || fail "install once more: $(< "$work/again.log")"
[[ ! -e $prefix/lib/libronda_old.so && ! -e $prefix/lib/old ]] || fail "an earlier version's files are left"
"$prefix/bin/rondarun" --version > "$work/version" || fail "rondarun --version, after install once more"

# Python notes what it has compiled beside the modules.
PYTHONPATH=$prefix/lib/python3/dist-packages /usr/bin/python3 -c "import ronda"
compgen -G "$prefix/lib/python3/dist-packages/ronda/__pycache__/*" > "$work/compiled" || fail "Python has compiled nothing"
client/packaging/uninstall.sh "$prefix" > "$work/uninstall.log" || fail "uninstall: $(< "$work/uninstall.log")"
difference=$(diff <(echo "$before") <(state_of "$prefix")) || fail "uninstall leaves, or takes too much: $difference"
client/packaging/uninstall.sh "$work/bare" > "$work/uninstall.log"
[[ ! -e $work/bare ]] || fail "uninstall leaves $(find "$work/bare")"
if said=$(client/packaging/uninstall.sh "$prefix" 2>&1); then fail "it uninstalls twice"; fi
[[ $said == "uninstall: there is no $prefix/share/ronda/installed, "* ]] || fail "a second time: $said"
