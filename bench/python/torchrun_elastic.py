# SPDX-License-Identifier: Apache-2.0

"""The workers that `ronda-bench elastic` starts with torchrun. Rank 0 reports each epoch to
ronda-bench.

    python3 -m torch.distributed.run --standalone --nproc_per_node 4 --max_restarts 20 \
        torchrun_elastic.py BYTES

When a worker dies, torchrun restarts all workers. The workers sum tensors of BYTES bytes until a
worker receives SIGUSR1.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Runs steps until SIGUSR1 arrives, and reports the first step to ronda-bench."""
    to_end: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: to_end.append(1))
    count = int(sys.argv[1]) // 4 + 1
    dist.init_process_group("gloo")
    members: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(members, os.getpid())
    weights, gradient = torch.zeros(count), torch.zeros(count)
    times: list[float] = []
    with open(os.environ["RONDA_BENCH_OUTPUT"], "w") as pipe:
        while True:
            gradient.fill_(float(len(to_end)))
            dist.all_reduce(gradient)
            weights -= gradient
            times.append(time.monotonic())
            if gradient[0] > 0:
                return
            if len(times) == 1 and dist.get_rank() == 0:
                # A new process has no earlier steps whose time could be subtracted; one step takes
                # a negligible time here.
                pipe.write(f"T 0 0 {times[0]:.9f} {' '.join(map(str, members))}\n")
                pipe.flush()


main()
