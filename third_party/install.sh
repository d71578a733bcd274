#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Installs Debian packages that Ronda is built from: install.sh GROUP...
#   build   compiler, Bazel and libraries        test    what the tests need besides
#   bench   the peers that benchmarks run against    check   what make check-sources needs
#   lint    clang and clang-tidy, for make check     fuzz    clang with the runtime of its fuzzer and sanitizers
#   deb     the tools for Debian packages          docs    MkDocs, for the site of the documentation
#   image   mmdebstrap, for container images
# The script leaves installed packages alone. If all packages are installed, it prints that and returns at once.
set -euo pipefail

build=(g++ make git pkg-config zlib1g-dev libssl-dev libhwloc-dev libyaml-dev
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  libabsl-dev libcpp-httplib-dev libgrpc++-dev libhwy-dev libprotobuf-dev nlohmann-json3-dev protobuf-compiler protobuf-compiler-grpc libeigen3-dev
  patchelf python3-dev)
test=(cmake iproute2 libgmock-dev libgtest-dev libtorch-dev openssh-client openssh-server procps prometheus util-linux
  python3-cloudpickle python3-numpy python3-torch python3-venv)
bench=(libbenchmark-dev libgloo-dev libmpich-dev libopenmpi-dev mpich openmpi-bin python3-matplotlib)
check=(clang-format-14 git python3-venv)
lint=(clang-14 clang-tidy-14)
fuzz=(clang-14 libclang-rt-14-dev)
deb=(dpkg-dev file lintian)
docs=(mkdocs mkdocs-material)
image=(mmdebstrap)

wanted=()
for group in "$@"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    bench) wanted+=("${bench[@]}") ;;
    check) wanted+=("${check[@]}") ;;
    lint) wanted+=("${lint[@]}") ;;
    fuzz) wanted+=("${fuzz[@]}") ;;
    deb) wanted+=("${deb[@]}") ;;
    docs) wanted+=("${docs[@]}") ;;
    image) wanted+=("${image[@]}") ;;
    *)
      echo "install.sh: no group '$group'; there are build, test, bench, check, lint, fuzz, deb, docs and image" >&2
      exit 2
      ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=absent
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "set-up: everything is installed ($*)"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "set-up: these packages are missing and only root can install them: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "set-up: installing ${#missing[@]} Debian packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "set-up: done"
