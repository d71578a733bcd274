#!/usr/bin/env bash
# What `make bench` runs: Ronda beside Open MPI in the same processes, the latency and idle cost of the client path, and the
# kernels beside memcpy. RANKS sets the number of ranks (2).
set -euo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-bazel}
ranks=${RANKS:-2}

"$bazel" build --noshow_progress //bench/... //runtime/launch:rondarun
bin=.bazel/bin

echo
echo "== allreduce, fp32, in place, $ranks ranks: Ronda and Open MPI in turns; ratio > 1: Ronda is faster"
"$bin/bench/ronda-bench" collectives -np "$ranks" --peer mpi
echo
echo "== latency and idle cost through the client, $ranks ranks"
"$bin/bench/ronda-bench" latency -np "$ranks"
echo
echo "== kernels, one core"
"$bin/bench/kernels_bench" --benchmark_min_time=0.2
echo
echo "== agreeing on a step, simulated jobs of up to 1,024 ranks"
"$bin/bench/ronda-bench" negotiation
