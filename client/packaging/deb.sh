#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes the Debian packages ronda (programs), libronda0, libronda-dev and python3-ronda in FOLDER.
# Usage: bazel run //client/packaging:deb -- FOLDER [BUILT]
# The packages contain the files that install.sh installs. BUILT has the same meaning as for install.sh.
set -euo pipefail

fail() {
  echo "deb: $*" >&2
  exit 1
}

[[ ($# -eq 1 || $# -eq 2) && -n $1 ]] || fail "usage: bazel run //client/packaging:deb -- FOLDER [BUILT]"
absolute() {
  if [[ $1 == /* ]]; then echo "$1"; else echo "${BUILD_WORKING_DIRECTORY:-$PWD}/$1"; fi
}
readonly output=$(absolute "$1")
readonly version=$(sed -n 's/^Version: //p' client/packaging/ronda.pc)
readonly architecture=$(dpkg --print-architecture) triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
readonly work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly maintainer="Ronda maintainers <maintainers@ronda.invalid>"

readonly tree=$work/tree/usr
if [[ -n ${2:-} ]]; then set -- "$1" "$(absolute "$2")"; fi
DESTDIR=$work/tree client/packaging/install /usr "${@:2}"
rm -r "$tree/share/ronda" "$tree/share/doc"  # the list of files is dpkg's; each package has its copyright file
gzip -9n "$tree"/share/man/man1/*

# Moves each FROM, a path in the /usr that install.sh has filled, to the folder TO in the /usr of PACKAGE.
take() {  # take PACKAGE FROM... TO
  local to=$work/$1/usr/${*: -1} from
  install -d "$to"
  for from in "${@:2:$#-2}"; do mv "$tree"/$from "$to"; done
}

take ronda 'bin/*' bin
take ronda lib/ronda lib
take ronda share/man share/bash-completion share
take libronda0 'lib/libronda.so.*' "lib/$triplet"
if compgen -G "$tree/lib/libronda_*.so" > /dev/null; then take libronda0 'lib/libronda_*.so' "lib/$triplet"; fi
take libronda-dev lib/libronda.so lib/pkgconfig lib/cmake "lib/$triplet"
take libronda-dev include .
take python3-ronda lib/python3 lib
[[ -z $(find "$work/tree" -type f -o -type l) ]] || fail "what install.sh makes belongs to no package: $(find "$work/tree" -type f)"

# In Debian, the libraries are one folder deeper than under a prefix.
sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../../..|; s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" \
  "$work/libronda-dev/usr/lib/$triplet/pkgconfig/ronda.pc"
sed -i "s|/../../..\" ABSOLUTE|/../../../..\" ABSOLUTE|; s|_ronda_prefix}/lib/|_ronda_prefix}/lib/$triplet/|" \
  "$work/libronda-dev/usr/lib/$triplet/cmake/ronda/ronda-config.cmake"
readonly package=$work/python3-ronda/usr/lib/python3/dist-packages/ronda
rm "$package/lib"
install -d "$package/lib"
for program in rondarun rondactl ronda-monitor; do ln -s "../../../../../bin/$program" "$package/lib/$program"; done
ln -s "../../../../$triplet/libronda.so.0" "$package/lib/libronda.so.0"

elf_files() {  # elf_files PACKAGE
  find "$work/$1" -type f -print0 | xargs -0 file | sed -n 's/: *ELF .*//p'
}
for file in $(elf_files ronda) $(elf_files libronda0) $(elf_files python3-ronda); do
  chmod u+w "$file"
  strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
  patchelf --remove-rpath "$file"
  # Debian requires a soname in each library that is in the loader's folder, also in plugins.
  if [[ $file == *.so && $file == */$triplet/* ]]; then patchelf --set-soname "$(basename "$file")" "$file"; fi
  if [[ $file == *.so* ]]; then chmod 644 "$file"; fi
done

# Prints the packages that the files of PACKAGE need. Leaves out what the plugins for MPI and for NVIDIA's GPUs and the
# peers of ronda-bench need, because only some users have these packages.
needed_by() {  # needed_by PACKAGE
  local files
  files=$(elf_files "$1" | grep -vE '/libronda_(mpi|cuda|bench)|_first_allreduce' || true)
  [[ -n $files ]] || return 0
  mkdir -p "$work/debian"
  printf 'Source: ronda\n\nPackage: %s\nArchitecture: any\n' "$1" > "$work/debian/control"
  printf 'libronda 0 libronda0 (= %s)\n' "$version" > "$work/debian/shlibs.local"
  # shellcheck disable=SC2086 -- names without spaces
  (cd "$work" && dpkg-shlibdeps --ignore-missing-info -O -Ldebian/shlibs.local -llibronda0/usr/lib/$triplet $files 2> /dev/null) |
    sed -n 's/^shlibs:Depends=//p'
}

copyright() {
  cat << 'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ronda
Comment: NOTICE, beside this file, names the projects that Ronda's libraries contain.

Files: *
Copyright: 2026 The Ronda authors
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text.
END
}

# build PACKAGE SECTION DEPENDS SUMMARY DESCRIPTION [MORE_FIELDS]
build() {
  local root=$work/$1 doc=$work/$1/usr/share/doc/$1 depends
  depends=$(needed_by "$1")
  depends+=${3:+${depends:+, }$3}
  install -d "$root/DEBIAN" "$doc"
  copyright > "$doc/copyright"
  install -m 644 NOTICE "$doc"
  printf 'ronda (%s) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n -- %s  Thu, 01 Jan 2026 00:00:00 +0000\n' \
    "$version" "$maintainer" | gzip -9n > "$doc/changelog.gz"
  {
    printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$1" "$version" "$architecture" "$maintainer"
    printf 'Section: %s\nPriority: optional\nInstalled-Size: %s\n' "$2" "$(du -sk --exclude=DEBIAN "$root" | cut -f1)"
    if [[ -n $depends ]]; then printf 'Depends: %s\n' "$depends"; fi
    if [[ -n ${6:-} ]]; then printf '%b\n' "$6"; fi
    printf 'Description: %s\n%s\n' "$4" "$(fold -s -w 76 <<< "$5" | sed 's/ *$//; s/^/ /')"
  } > "$root/DEBIAN/control"
  if [[ $1 == libronda0 ]]; then
    echo "activate-noawait ldconfig" > "$root/DEBIAN/triggers"
    printf 'libronda 0 libronda0 (>= %s)\n' "$version" > "$root/DEBIAN/shlibs"
  fi
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
  find "$root" -type d -exec chmod 755 {} +
  find "$root" -type f ! -perm -100 -exec chmod 644 {} +
  find "$root" -name '*.py' -exec chmod 644 {} +
  dpkg-deb --root-owner-group --build "$root" "$output/${1}_${version}_$architecture.deb"
}

readonly what="Ronda averages gradients, and carries out other collective operations, among the processes of a data-parallel training job."
mkdir -p "$output"
build libronda0 libs "" "collective communication for data-parallel training" "$what This is the library." \
  "Multi-Arch: same\nSuggests: libopenmpi3, libmpich12"
build libronda-dev libdevel "libronda0 (= $version)" "collective communication for data-parallel training: headers" \
  "$what These are the files for programs in C and C++." "Multi-Arch: same"
build ronda science "libronda0 (= $version)" "collective communication for data-parallel training: launcher" \
  "$what These are the launcher rondarun, rondactl and ronda-monitor, which look at running jobs, and the benchmark ronda-bench." "Recommends: openssh-client\nSuggests: libgloo0, mpich, openmpi-bin, python3, python3-matplotlib"
build python3-ronda python "python3 (>= 3.10), ronda (= $version)" \
  "collective communication for data-parallel training: Python" \
  "$what This is the package for Python, with the API of Horovod and a backend of torch.distributed." \
  "Recommends: python3-cloudpickle, python3-numpy\nSuggests: python3-torch"
lintian --fail-on error "$output"/*ronda*"_${version}_$architecture.deb" || fail "lintian finds errors"
