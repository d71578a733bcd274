#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# The runs of `make bench`: Ronda beside its peers, every part of ronda-bench, in about ten minutes on two cores.
# Results go to bench-report/ as JSON. The page bench-report/index.html shows the results with plots. The page exists
# after the first run, and grows with each run.
#
#   BENCH_SCALE=0.1    fewer rounds of every part, for a look (1)
#   BENCH_ONLY=step    only the runs whose name begins so (all)
#   BENCH_REPORT=DIR   another folder (bench-report)
#
# If a run fails, the other runs continue, and the script names the failed run at its end.
set -euo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-bazel}
progress=() && [ -t 2 ] || progress=(--show_progress_rate_limit=60)  # one line per minute
scale=${BENCH_SCALE:-1}
only=${BENCH_ONLY:-}
report=${BENCH_REPORT:-bench-report}

"$bazel" build "${progress[@]}" -c opt //bench:ronda-bench //bench:kernels_bench //bench/peers:plugins
bench=.bazel/bin/bench/ronda-bench
export RONDA_HOSTS_PLUGIN=$PWD/.bazel/bin/runtime/net/libronda_hosts.so
mkdir -p "$report"
failed=()

# Prints $1 rounds times BENCH_SCALE, but at least one.
rounds() { awk -v all="$1" -v scale="$scale" 'BEGIN { n = int(all * scale + 0.5); print (n < 1) ? 1 : n }'; }

# Prints $1 seconds times BENCH_SCALE.
seconds() { awk -v all="$1" -v scale="$scale" 'BEGIN { printf "%.4f", all * scale }'; }

# run NAME COMMAND [OPTION]...: runs ronda-bench once. The results go to NAME.json, and to the page.
run() {
  local name=$1
  shift
  [[ "$name" == "$only"* ]] || return 0
  echo
  echo "== $name: ronda-bench $*"
  local start=$SECONDS
  if "$bench" "$@" --json "$report/$name.json"; then
    echo "== $name took $((SECONDS - start)) s"
    "$bench" report "$report" || failed+=("the page after $name")
  else
    failed+=("$name")
  fi
}

few=$(rounds 3)
some=$(rounds 5)
many=$(rounds 9)

# Two ranks: all sizes, beside each peer with its default settings and with its best settings.
run collectives-2-openmpi-best collectives -np 2 --peer mpi,gloo --peer-setting best --rounds "$many"
run collectives-2-openmpi collectives -np 2 --peer mpi --layer communicator --rounds "$some"
run collectives-2-mpich collectives -np 2 --peer mpich --peer-setting best --layer communicator --rounds "$some"

# More ranks than cores.
run collectives-4-openmpi-best collectives -np 4 --peer mpi --peer-setting best -b 64K -e 64M --rounds "$some"
run collectives-4-mpich collectives -np 4 --peer mpich --peer-setting best --layer communicator -b 64K -e 64M --rounds "$few"

# The other operations; 16-bit data, which MPI adds with a user operation.
run operations-2-openmpi-best collectives -np 2 --op all --peer mpi --peer-setting best --layer communicator \
  -b 1K -e 16M -f 16 --rounds "$few"
run float16-2-openmpi-best collectives -np 2 --dtype float16 --peer mpi --peer-setting best -b 16M -e 64M --rounds "$some"

# Training steps: communication alone, under a backward pass, and the effect of settings.
run step-2-openmpi-best step -np 2 --preset lenet,resnet50,many-small --peer mpi,gloo --peer-setting best --rounds "$some"
run step-2-mpich step -np 2 --preset resnet50,many-small --peer mpich --peer-setting best --rounds "$few"
run step-2-large step -np 2 --preset vgg16,gpt2,bert-large --peer mpi --peer-setting best --rounds "$few" --steps 3 --warm-up 6
run step-2-overlap step -np 2 --preset resnet50,vgg16 --compute 100ms --peer mpi --peer-setting best --rounds "$some" --steps 5
run step-2-wires step -np 2 --preset resnet50 --wire all --rounds "$some"
run step-2-sweep step -np 2 --preset resnet50 --fusion 0,256KiB,1MiB,16MiB,64MiB --wire none,fp16,fp8_e4m3 --rounds "$few"
run step-2-settings step -np 2 --preset many-small --cycle-time 0,1ms --backend all --lock all --rounds "$few"

# The latency of one small tensor, the start of a job, kills in an elastic job, and the cost of negotiation.
run latency-2-openmpi-best latency -np 2 --peer mpi,gloo --peer-setting best --rounds "$some" --idle "$(seconds 3)s"
run latency-2 latency -np 2 --rounds "$some" --idle "$(seconds 3)s"
run startup-2 startup -np 2 --peer mpi,mpich --rounds "$(rounds 10)"
run elastic-4 elastic -np 4 --kills "$(rounds 5)" --peer torchrun
run elastic-2-step elastic -np 2 --measure step -b 64KiB --rounds "$(rounds 50)"
run negotiation negotiation --ranks 2,64,1024 --runs "$(rounds 7)"

if [[ kernels == "$only"* ]]; then
  echo
  echo "== kernels, one core"
  .bazel/bin/bench/kernels_bench --benchmark_min_time="$(seconds 0.1)" || failed+=(kernels)
fi

echo
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
