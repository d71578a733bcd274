#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs ronda-bench on two hosts whose links are limited: network namespaces of this machine, joined by a bridge. The
# script needs root, iproute2 and Open MPI. bench/results/ has results of such runs.
#
#   bench/limited_links.sh step ["RATE..."]   the step time of ResNet-50 against the bandwidth, in three wire formats,
#                                             beside the prediction for the link, measured in the same run
#   bench/limited_links.sh levels             two levels, flat, and bare MPI_Allreduce: 16 MiB, two ranks on each host
#   bench/limited_links.sh run RATE RANKS ... ronda-bench ... on RANKS ranks a host; RATE in Mbit/s, 0: unlimited
#
#   BENCH_REPORT=DIR   where the results go as JSON (bench-report)
#   BAZEL_BIN=DIR      where //bench:ronda-bench, //bench/peers:plugins and //runtime/mpi:all are built (.bazel/bin)
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(realpath "${BAZEL_BIN:-.bazel/bin}")
report=$(realpath -m "${BENCH_REPORT:-bench-report}")
id=$$
hosts=("rl$id-h1" "rl$id-h2")
agent=$(mktemp)

clean_up() {
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9 || true
    ip netns del "$host" 2>/dev/null || true
  done
  ip link del "rl$id" 2>/dev/null || true
  rm -f "$agent"
}
trap clean_up EXIT

set_up() {
  ip link add "rl$id" type bridge
  ip link set "rl$id" up
  ip addr add 10.213.57.254/24 dev "rl$id"
  local number=0
  for host in "${hosts[@]}"; do
    number=$((number + 1))
    ip netns add "$host"
    ip link add "rl$id-$number" type veth peer name eth0 netns "$host"
    ip link set "rl$id-$number" master "rl$id" up
    ip -n "$host" addr add "10.213.57.$number/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
  done
  # mpirun calls this agent like ssh: AGENT HOST COMMAND... Each host has its own name and its own /dev/shm.
  cat >"$agent" <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare -m -u sh -c \
  'mount -t tmpfs tmpfs /dev/shm && hostname "$0" && exec sh -c "$*"' "$host" "$@"
AGENT
  chmod +x "$agent"
}

# limit MBIT: limits the rate at which each host sends, with bursts of 2 ms and a queue of 50 ms.
limit() {
  for host in "${hosts[@]}"; do
    ip netns exec "$host" tc qdisc del dev eth0 root 2>/dev/null || true
    [ "$1" = 0 ] || ip netns exec "$host" tc qdisc add dev eth0 root tbf rate "$1mbit" \
      burst $(($1 * 250 + 16000)) latency 50ms
  done
}

# bench RANKS ARGUMENT...: runs ronda-bench with RANKS ranks on each host.
bench() {
  local ranks=$1
  shift
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RONDA_MPI_PLUGIN="$bin/runtime/mpi/libronda_mpi.so" \
    RONDA_HOSTS_PLUGIN="$bin/runtime/net/libronda_hosts.so" \
    mpirun.openmpi --oversubscribe --bind-to none -np $((2 * ranks)) -H "${hosts[0]}:$ranks,${hosts[1]}:$ranks" \
    --mca plm_rsh_agent "$agent" --mca btl self,vader,tcp \
    --mca btl_tcp_if_include 10.213.57.0/24 --mca oob_tcp_if_include 10.213.57.0/24 \
    -x RONDA_MPI_PLUGIN -x RONDA_HOSTS_PLUGIN ${RONDA_BACKEND:+-x RONDA_BACKEND} "$bin/bench/ronda-bench" "$@"
}

# link RATE: prints the latency of reducing a small tensor over the link, in us, and the rate of reducing one tensor of
# 16 MiB, in Gbit/s. (The rate of bare MPI, or of two messages that cross, would mislead, because these keep the limit's
# token bucket less evenly busy.)
link() {
  bench 1 collectives --op allreduce --layer communicator -b 64 -e 16M -f 262144 --rounds 5 \
    --csv "$report/link-$1.csv" >/dev/null
  awk -F, '
    NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    $column["contestant"] != "communicator" { next }
    $column["bytes"] < 1000 { printf "%.1f ", $column["median_us"] }
    $column["bytes"] >= 1000 { printf "%.3f\n", 8e-3 * $column["bytes"] / $column["median_us"] }
  ' "$report/link-$1.csv"
}

# Reads several measurements of a link from standard input, and prints options for the model with the mean latency, and
# with the rate for the mean time per bit.
mean_link() {
  awk '{ latency += $1; time += 1 / $2 } END { printf "--link-latency %.1fus --link-gbit %.3f", latency / NR, NR / time }'
}

# model LINK: prints the model's step times of ResNet-50 without compute on two hosts of one rank each, by wire format.
model() {
  local file="$report/model.csv"
  # shellcheck disable=SC2086  # several words
  "$bin/bench/ronda-bench" model --models resnet50 --ranks 2 --local-size 1 --compute 1us $1 --csv "$file" >/dev/null
  awk -F, '
    # Columns are counted from the end, because some names at the beginning contain commas.
    NR == 1 { for (i = 1; i <= NF; ++i) after[$i] = NF - i; next }
    $(NF - after["coordination"]) == "locked" && $(NF - after["algorithm"]) == "hierarchical" {
      printf "%s %.0f ms  ", $(NF - after["wire"]), 1e3 * $(NF - after["step_s"])
    }
  ' "$file"
}

mkdir -p "$report"
set_up
case ${1:-} in
  step)
    for rate in ${2:-100 1000 10000 0}; do
      limit "$rate"
      steps=$((rate == 100 ? 1 : 5))
      warm_up=$((rate == 100 ? 1 : 6))
      echo "== ${rate} Mbit/s (0: unlimited)"
      before=$(link "$rate")  # and after: the rate of a limited link changes within minutes
      bench 1 step --preset resnet50 --wire none,fp16,fp8_e4m3 --steps "$steps" --warm-up "$warm_up" --rounds 1 \
        --json "$report/step-hosts-$rate.json"
      measured=$({ echo "$before" && link "$rate"; } | mean_link)
      echo "the link: $measured; the model: $(model "$measured")"
    done
    ;;
  levels)
    for backend in hierarchical mpi; do
      echo "== $backend, beside bare MPI"
      RONDA_BACKEND=$backend bench 2 collectives --layer communicator --peer mpi -b 1M -e 64M \
        --json "$report/levels-$backend.json"
    done
    ;;
  run)
    limit "$2"
    bench "${@:3}"
    ;;
  *)
    echo "usage: bench/limited_links.sh step | levels | run RATE RANKS ARGUMENT..." >&2
    exit 2
    ;;
esac
