# SPDX-License-Identifier: Apache-2.0

# shellcheck shell=bash
# The steps of `run.sh plan`, in groups whose limits add up to four minutes. The most informative steps come first. Each
# row has a step's name, its group, its limit in seconds, and its command.

readonly steps=(
  "facts        first     20 facts"
  "kernels      first     20 tests_like ^tests/kernels/"
  "ranks        first     40 over_nccl tests_like ^tests/multiprocess/"
  "hvd          first     45 over_nccl python_ranks nccl hvd_gpu_test"
  "c10d         first     45 over_nccl python_ranks nccl c10d_gpu_test"
  "kill         first     15 over_nccl signal_one KILL"
  "stop         first     30 over_nccl signal_one STOP"
  "arrays       more      25 over_nccl python_ranks nccl arrays_gpu_test"
  "staged-hvd   more      45 python_ranks staged hvd_gpu_test"
  "staged-c10d  more      45 python_ranks staged c10d_gpu_test"
  "conformance  more      60 tests_like ^tests/conformance/"
  "one-queue    more      40 over_nccl one_queue"
  "peer         more      25 peer_ranks"
  "bandwidth    figures   15 bench kernels_bench"
  "host-time    figures   15 bench host_time_bench"
  "host-time-2  figures   60 over_nccl two_ranks $logs/two bench host_time_bench --blocks 3"
  "mnist        figures   15 bench cuda_mnist --bench"
  "mnist-2      figures   20 over_nccl two_ranks $logs/two bench cuda_mnist --bench"
  "resnet       figures   90 over_nccl resnet"
  "packed       in-place  40 over_nccl in_place 0"
  "in-place     in-place  40 over_nccl in_place 1"
  "windows-off  windows  110 over_nccl all_gpus RONDA_NCCL_WINDOWS=0"
  "windows-on   windows  110 over_nccl all_gpus RONDA_NCCL_WINDOWS=1"
  "outside      gradients 110 over_nccl all_gpus RONDA_GRADIENT_MEMORY_MB=0"
  "inside       gradients 110 over_nccl all_gpus RONDA_GRADIENT_MEMORY_MB=512"
  "inside-kept  gradients-kept 110 over_nccl all_gpus RONDA_GRADIENT_MEMORY_MB=512 --keep-gradients"
  "lane-memory  memory   150 over_nccl lane_memory"
  "memcheck     checks    30 sanitized memcheck"
  "racecheck    checks    60 sanitized racecheck"
  "plugin       checks    15 tests_like ^tests/runtime/"
  "torch-tests  checks   130 over_nccl torch_tests"
)

# Prints versions, and the parts that Ronda finds.
facts() {
  nvidia-smi || true
  python3 -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.cuda.nccl.version())' || true
  "$rondarun" --check-build
}

# Runs the tests whose paths match PATTERN.
tests_like() {  # tests_like PATTERN
  local status=0 program
  export TEST_TMPDIR=$logs
  for program in $(grep -E "$1" tests.txt); do "./$program" || status=1; done
  return $status
}

# Runs the benchmark whose path ends with NAME.
bench() {  # bench NAME [ARGUMENT...]
  local name=$1
  shift
  exec "./$(grep "/$name\$" benches.txt)" "$@"
}

# Runs a job of two ranks over NCCL. The ranks may share one GPU, because they tell NCCL that they are on two hosts.
# Each rank writes its process id to a file whose name is the rank.
two_ranks() {  # two_ranks FOLDER COMMAND [ARGUMENT...]
  local folder=$1
  shift
  mkdir -p "$folder"
  if [[ $1 == bench ]]; then
    set -- "./$(grep "/$2\$" benches.txt)" "${@:3}"
  fi
  # shellcheck disable=SC2016  # the ranks' shells expand it
  RONDA_DEVICE_BACKEND=${device_backend:-nccl} NCCL_SOCKET_IFNAME=lo exec "${launcher:-$rondarun}" -np 2 \
    /bin/sh -c 'echo $$ > "$0/$RONDA_RANK" && export NCCL_HOSTID=rank$RONDA_RANK && exec "$@"' "$folder" "$@"
}

# Sets the environment of a Python program, which uses the bundle's package and the machine's own libraries.
for_python() {
  launcher=$package/ronda/lib/rondarun
  unset RONDA_HOSTS_PLUGIN RONDA_CUDA_PLUGIN LD_LIBRARY_PATH
  export PYTHONPATH=$package:$root/tests/python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
  export RONDA_STALL_WARNING=5s RONDA_STALL_DEADLINE=10s TEST_KEEP_GOING=1
}

# Runs a module of tests on two ranks, with BACKEND as the backend for devices.
python_ranks() {  # python_ranks BACKEND MODULE
  local device_backend=$1
  for_python
  two_ranks "$logs/python" python3 tests/python/ronda_test.py "tests/python/cuda/$2.py"
}

# Runs tests that elsewhere run on CPUs, with tensors on the GPU.
torch_tests() {
  local file
  for_python
  export TEST_TORCH_DEVICE=cuda
  for file in torch/{optimizer,gradients,values,check} c10d/{collectives,wrappers,arguments}; do
    echo "= $file"
    (two_ranks "$logs/python" python3 tests/python/ronda_test.py "tests/python/${file}_test.py")
  done
}

resnet() {
  for_python
  two_ranks "$logs/python" python3 bench/python/gpu_step.py
}

# Steps of ResNet-50's gradients, which lie one after the other: packed, or reduced in place. The ranks have a GPU each,
# or two ranks share one.
in_place() {  # in_place SWITCH
  local gpus
  gpus=$(nvidia-smi --list-gpus | wc -l)
  export RONDA_REDUCE_IN_PLACE=$1
  set -- bench host_time_bench --places adjacent --only group --blocks 3
  if [[ $gpus -lt 2 ]]; then
    two_ranks "$logs/two" "$@"
  else
    RONDA_DEVICE_BACKEND=nccl "$rondarun" -np "$gpus" "./$(grep '/host_time_bench$' benches.txt)" "${@:3}"
  fi
}

# Steps of ResNet-50 on all GPUs of the machine, a rank each, with a setting that concerns windows of NCCL. Ranks that
# share a GPU are on several hosts for NCCL, where it has no windows.
all_gpus() {  # all_gpus VARIABLE=VALUE [OPTION...]
  local gpus
  gpus=$(nvidia-smi --list-gpus | wc -l)
  if [[ $gpus -lt 2 ]]; then
    echo "SKIPPED: windows of NCCL need two GPUs"
    return 0
  fi
  for_python
  env RONDA_DEVICE_BACKEND=nccl "$1" "$launcher" -np "$gpus" python3 bench/python/gpu_step.py "${@:2}"
}

# Steps of FSDP2 on all GPUs of the machine, a rank each, in plain memory and in the memory of a lane. NCCL's log
# (NCCL_DEBUG=INFO) shows whether it uses windows and copy engines.
lane_memory() {
  local gpus
  gpus=$(nvidia-smi --list-gpus | wc -l)
  if [[ $gpus -lt 2 ]]; then
    echo "SKIPPED: windows of NCCL need two GPUs"
    return 0
  fi
  for_python
  RONDA_DEVICE_BACKEND=nccl RONDA_LANE_MEMORY_MB=8192 "$launcher" -np "$gpus" python3 bench/python/gpu_fsdp_step.py
}

# Runs tests with one queue of the device for all streams of a process. In such a queue, a stream that waits for another
# stream's work may delay that work.
one_queue() {
  export CUDA_DEVICE_MAX_CONNECTIONS=1
  tests_like '^tests/multiprocess/'
}

# Two ranks on one GPU that map each other's memory, and two whose data goes through the host: the cost of a step.
peer_ranks() {
  local status=0 program backend
  program=$(grep '/host_time_bench$' benches.txt)
  for backend in peer staged; do
    echo "= $backend"
    RONDA_DEVICE_BACKEND=$backend "$rondarun" -np 2 "./$program" --blocks 3 || status=1
  done
  return $status
}

# Runs a job of two ranks, and sends the signal to one of them when the schedule is locked. The job must end by itself,
# and name this rank.
signal_one() {  # signal_one SIGNAL
  local signal=$1 folder job code=0 said=$logs/signal.log
  folder=$(mktemp -d "$logs/signal.XXXXXX")
  export RONDA_STALL_WARNING=2s RONDA_STALL_DEADLINE=6s RONDA_LOG_LEVEL=info
  (two_ranks "$folder" bench host_time_bench --blocks 1000) > "$said" 2>&1 &
  job=$!
  for _ in $(seq 150); do
    grep -q "a locked schedule" "$said" && break
    sleep 0.1
  done
  sleep 0.5
  kill -s "$signal" "$(cat "$folder/1")" || return 1
  wait "$job" || code=$?
  kill -s KILL "$(cat "$folder/1")" 2> /dev/null
  cat "$said"
  echo "the job has ended with $code after SIG$signal"
  [[ $code -ne 0 ]] && grep -q 'rank 1' "$said"
}

# Runs some of the tests with one tool of compute-sanitizer.
sanitized() {  # sanitized TOOL
  local status=0 program
  if [[ -z $(sanitizer) ]]; then
    echo "SKIPPED: there is no compute-sanitizer: it comes with the CUDA toolkit"
    return 0
  fi
  export TEST_TMPDIR=$logs
  for program in $(grep -E '^tests/kernels/' tests.txt); do
    "$(sanitizer)" --tool "$1" --target-processes all --error-exitcode 86 "./$program" || status=1
  done
  return $status
}

# Runs a step that needs NCCL, or reports why it cannot.
over_nccl() {  # over_nccl COMMAND...
  if [[ $(part nccl) == X* ]]; then
    "$@"
  else
    echo "no NCCL: $(part nccl | sed 's/^. //')"
    return 1
  fi
}

# Runs a step within its time limit, and adds a row to the table.
step() {  # step NAME SECONDS COMMAND...
  local name=$1 seconds=$2 log=$logs/step.log begin=$SECONDS code=0 result=passed pid
  shift 2
  echo "== $name (at most $seconds s)"
  # The step gets its own process group, and all processes of the group are killed when the step ends.
  set -m
  ("$@") < /dev/null > "$log" 2>&1 &
  pid=$!
  set +m
  (
    sleep "$seconds"
    kill -s KILL -- "-$pid"
  ) 2> /dev/null > /dev/null &
  local timer=$!
  wait "$pid" 2> /dev/null || code=$?
  kill "$timer" 2> /dev/null
  kill -s KILL -- "-$pid" 2> /dev/null
  tail -n "${PLAN_LINES:-40}" "$log"
  (echo "== $name" && cat "$log") >> "$out/log.txt"
  sed -nE 's/^(\[0\]<stdout>: )?(.*: .* \(aim: .*\))$/\2/p' "$log" >> "$logs/figures"
  if [[ $((SECONDS - begin)) -ge $seconds ]]; then
    result="not ended in time"
  elif [[ $code -ne 0 ]]; then
    result="failed ($code)"
  elif grep -q '^SKIPPED: ' "$log"; then
    result="skipped: $(sed -n 's/^SKIPPED: //p;T;q' "$log")"
  fi
  [[ $result == passed || $result == skipped* ]] || plan_status=1
  echo "| $name | $result | $((SECONDS - begin)) s | $seconds s |" | tee -a "$out/plan.md"
}

# Fails if a name is neither a step nor a group.
check_names() {  # check_names [STEP | GROUP]...
  local known
  known=" $(printf '%s\n' "${steps[@]}" | awk '{ print $1, $2 }' | tr '\n' ' ')"
  for name in "$@"; do
    [[ $known == *" $name "* ]] || { echo "run.sh: there is no step or group \"$name\"; there are:$known" >&2 && exit 2; }
  done
}

# Runs the named steps, and the steps of the named groups. Without a name it runs all steps.
run_plan() {  # run_plan [STEP | GROUP]...
  local row name group seconds command
  plan_status=0
  export RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN
  touch "$logs/figures"
  printf '| step | result | took | limit |\n|---|---|---|---|\n' > "$out/plan.md"
  for row in "${steps[@]}"; do
    read -r name group seconds command <<< "$row"
    # shellcheck disable=SC2086  # the command's words
    if [[ $# -eq 0 || " $* " == *" $name "* || " $* " == *" $group "* ]]; then step "$name" "$seconds" $command; fi
  done
  cat "$out/plan.md"
  print_table | tee "$out/figures.md"
  return $plan_status
}
