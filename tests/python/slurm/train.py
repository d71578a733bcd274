# SPDX-License-Identifier: Apache-2.0

"""A trainer for Slurm jobs that does the same as train.c."""

import os
import pathlib

import ronda

state = pathlib.Path("train.state")
end = int(os.environ.get("STEPS", "100"))
step, value, trains, stop = 0, 0.0, False, False
ronda.init()
if state.exists():
    first, second = state.read_text().split()
    step, value = int(first), float(second)
    print(f"goes on after step {step}", flush=True)
while step < end and not stop:
    value += float(ronda.allreduce([float(ronda.rank())], name="gradient")[0])
    step += 1
    stop = ronda.should_stop()
    if not trains:  # from here on the trainer saves the state after SIGTERM
        print(f"rank {ronda.rank()} of {ronda.size()} trains", flush=True)
    trains = True
if stop and ronda.rank() == 0:
    new = pathlib.Path("train.new")
    new.write_text(f"{step} {value}\n")
    new.rename(state)
    print(f"saved after step {step}", flush=True)
print(f"rank {ronda.rank()} of {ronda.size()} ends: average {value / step:.1f}", flush=True)
ronda.shutdown()
