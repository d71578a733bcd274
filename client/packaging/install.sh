#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Installs the launcher, rondactl, ronda-monitor, the benchmark tool, the library with its plugins, its headers, its package files, the Python
# package, manual pages and completions under PREFIX (below $DESTDIR, if that is set). Also installs the list of these
# files, for uninstall.sh. Usage: bazel run //client/packaging:install -- PREFIX [BUILT]. Bazel must run the script,
# which finds the files that it copies in Bazel's runfiles. BUILT is the folder of Bazel's outputs. The script takes
# from it the parts that optional_parts.sh names, and reports at the end which of these parts it has installed, and why
# it has left out the others.
set -euo pipefail

fail() {
  echo "install: $*" >&2
  exit 1
}

[[ ($# -eq 1 || $# -eq 2) && -n $1 ]] || fail "usage: bazel run //client/packaging:install -- PREFIX [BUILT]"
[[ -e client/libronda.so ]] || fail "client/libronda.so is not here: run it with 'bazel run'"
source client/packaging/optional_parts.sh
source client/packaging/installed_files.sh

# Bazel starts this script in another folder, but a relative path means a path in the caller's folder.
absolute() {
  if [[ $1 == /* ]]; then echo "$1"; else echo "${BUILD_WORKING_DIRECTORY:-$PWD}/$1"; fi
}

root=${DESTDIR:-}$(absolute "$1")
readonly root built=${2:+$(absolute "$2")}
readonly version=$(sed -n 's/^Version: //p' client/packaging/ronda.pc)
readonly stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

copy() {  # copy MODE SOURCE... DIRECTORY
  local mode=$1 directory=$stage/${*: -1}
  install -d "$directory"
  install -m "$mode" "${@:2:$#-2}" "$directory"
}

report=()

# Copies an optional part if Bazel has built it, and notes the outcome for the report. The arguments are the fields of a
# line in optional_parts.sh.
add_optional_part() {
  local file files=()
  for file in $4; do
    if [[ -e $1 && -n $built && -e $built/$file ]]; then files+=("$file"); fi
  done
  if [[ ! -e $1 ]]; then
    report+=("without $3: there is no $1; $2, and run make install again")
  elif ((${#files[@]} == 0)); then
    report+=("without $3: Bazel has not built ${4%% *}; $2, and run make install")
  else
    report+=("with $3: ${files[*]##*/}")
  fi
  for file in "${files[@]}"; do
    # libronda.so looks for its plugins in its own folder, and ronda-bench looks for its peers in lib/ronda.
    if [[ $file == bench/* ]]; then copy 755 "$built/$file" lib/ronda; else copy 755 "$built/$file" lib; fi
  done
}

copy 755 programs/rondarun/rondarun programs/rondactl/rondactl programs/monitor/serve/ronda-monitor bench/ronda-bench bin
copy 644 client/ronda.h client/ronda.hpp include
copy 644 client/ronda/*.h client/ronda/*.hpp include/ronda
copy 644 client/ronda/training/*.hpp include/ronda/training
copy 644 client/ronda/torch/*.hpp include/ronda/torch
copy 644 client/packaging/ronda.pc lib/pkgconfig
copy 644 client/packaging/ronda-config.cmake client/packaging/ronda-config-version.cmake lib/cmake/ronda
copy 644 LICENSE NOTICE share/doc/ronda
copy 644 client/packaging/man1/* share/man/man1
copy 644 client/packaging/completions/* share/bash-completion/completions
copy 755 runtime/net/libronda_hosts.so lib
copy 644 bench/peers/torchrun_elastic.py lib/ronda
copy 755 bench/ronda-bench-report lib/ronda
for_each_optional_part add_optional_part

# If Horovod's own horovodrun is installed here, it stays.
if [[ -e $root/bin/horovodrun && $(readlink "$root/bin/horovodrun") != rondarun ]]; then
  report+=("without horovodrun: $root/bin/horovodrun is another program's; rondarun takes the same options")
else
  ln -s rondarun "$stage/bin/horovodrun"
fi

# The loader looks for the library by its soname; the linker looks for libronda.so.
install -m 755 client/libronda.so "$stage/lib/libronda.so.$version"
ln -s "libronda.so.$version" "$stage/lib/libronda.so.0"
ln -s libronda.so.0 "$stage/lib/libronda.so"

# Through the link ronda/lib, the Python package finds the library, the plugins beside the library, and ../bin/rondarun.
readonly python=$stage/lib/python3/dist-packages
install -d "$python"
cp -rL --no-preserve=mode client/python/installed/ronda "$python"
ln -s ../../.. "$python/ronda/lib"

# An earlier version may have installed other files, which are removed here. Folders that it has made still belong to
# Ronda.
was_installed=$(cat "$root/$installed_list" 2> /dev/null || true)
install -d "$stage/$(dirname "$installed_list")"
touch "$stage/$installed_list"
is_installed=$(cd "$stage" && find . ! -type d -printf '%P\n' && find . -type d -printf '%P/\n' | while IFS= read -r folder; do
  if [[ ! -e $root/$folder ]] || grep -qxF "$folder" <<< "$was_installed"; then echo "$folder"; fi
done)
LC_ALL=C sort <<< "$is_installed" > "$stage/$installed_list"
install -d "$root"
remove_listed "$root" "$was_installed" "$is_installed"
tar -C "$stage" -cf - . | tar -C "$root" -xpf - --no-same-owner --no-overwrite-dir --keep-directory-symlink

echo "Installed Ronda $version under $root:"
printf '  %s\n' "${report[@]}"
