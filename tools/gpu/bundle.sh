#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes FOLDER, and FOLDER.tar.xz, with everything that is tested and measured on a GPU, for a machine that has a GPU, a
# driver and little else. FOLDER/run.sh runs it. The build needs the CUDA toolkit. NCCL, cuBLAS and PyTorch are not
# copied; the bundle uses those of the machine on which it runs.
set -euo pipefail

readonly here=$(dirname "$(readlink -f "$0")")
readonly folder=$(readlink -m "${1:?usage: tools/gpu/bundle.sh FOLDER}")
readonly bazel=${BAZEL:-bazel}
progress=() && [ -t 2 ] || progress=(--show_progress_rate_limit=60)  # one line per minute
cd "$here/../.."

tagged() {  # tagged EXPRESSION: the targets in it that need a GPU
  "$bazel" query --noshow_progress "attr(tags, '\bgpu\b', $1)" 2> /dev/null | sort
}

path_of() {  # path_of //a/b:c
  local path=${1#//}
  echo "${path/://}"
}

readonly tests=$(tagged 'tests(//...)')
readonly benches=$(tagged 'kind(cc_binary, //bench/... + //examples/...)')
[[ -n $tests ]] || { echo "There are no tests for a GPU." >&2 && exit 1; }
# shellcheck disable=SC2086  # one word per target
"$bazel" build "${progress[@]}" //programs/rondarun:rondarun //client:libronda.so //runtime/cuda:libronda_cuda.so \
  //client/packaging:wheel $tests $benches

rm -rf "$folder"
mkdir -p "$folder/lib/glibc"
bin=$("$bazel" info --noshow_progress bazel-bin 2> /dev/null)
readonly bin

# Tests find their files where Bazel puts them, so all of their folders are merged into one.
for target in $tests $benches //programs/rondarun:rondarun; do
  path=$(path_of "$target")
  [[ -d $bin/$path.runfiles/ronda ]] && cp -rL --no-clobber "$bin/$path.runfiles/ronda/." "$folder"
  install -D --mode=755 "$bin/$path" "$folder/$path"
done
for file in client/libronda.so runtime/cuda/libronda_cuda.so; do install -D --mode=755 "$bin/$file" "$folder/$file"; done
mkdir -p "$folder/client/python" "$folder/bench/python"
"$bazel" run --noshow_progress //client/packaging:wheel -- "$folder/wheel" > /dev/null 2>&1
python3 -m zipfile --extract "$folder"/wheel/*.whl "$folder/client/python/package"
rm -r "$folder/wheel"
cp -r --parents tests/python/ronda_test.py tests/python/{cuda,torch,c10d}/*.py bench/python/gpu_{fsdp_,}step.py "$folder"
chmod -R u+w "$folder"
cp "$here"/{run,machine,steps}.sh "$folder"
for target in $tests; do path_of "$target"; done > "$folder/tests.txt"
for target in $benches; do path_of "$target"; done > "$folder/benches.txt"

# The libraries that the programs are linked with. The copied C library is the last resort, for a machine whose own C
# library is older than this machine's.
is_elf() { [[ $(head -c 4 "$1" | tr -d '\0') == $'\x7fELF' ]]; }
mapfile -t objects < <(find "$folder" -type f -perm -u+x | while read -r file; do is_elf "$file" && echo "$file"; done)
strip --strip-debug "${objects[@]}"
ldd "${objects[@]}" 2> /dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | while read -r library; do
  case $(basename "$library") in
    libcuda.so* | libcublas* | libnccl*) ;;
    libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | libresolv.so*) cp -L "$library" "$folder/lib/glibc" ;;
    *) cp -L "$library" "$folder/lib" ;;
  esac
done
cp -L /lib64/ld-linux-x86-64.so.2 "$folder/lib/glibc"

find "$folder/client/python/package/ronda/lib" -type f ! -name '*.so*' -exec chmod 755 {} +  # a zip file keeps no modes

tar --create --use-compress-program='xz -T0 -6' --file "$folder.tar.xz" --directory "$(dirname "$folder")" "$(basename "$folder")"
readonly size=$(stat --format=%s "$folder.tar.xz")
echo "$folder.tar.xz: $(wc -l < "$folder/tests.txt") tests, $(wc -l < "$folder/benches.txt") benchmarks, $((size / 1000000)) MB"
((size < 50000000)) || { echo "That is more than the 50 MB which fit through every door." >&2 && exit 1; }
