# SPDX-License-Identifier: Apache-2.0

"""Small, invented results of ronda-bench's commands. Importing this module makes the modules of
bench/report importable.
"""

import pathlib
import sys

SOURCES = pathlib.Path("bench/report").absolute()
sys.path.insert(0, str(SOURCES))

import runs  # noqa: E402

DEFAULT = (64 << 20, "none")


def document(command, rows, arguments=()):
    return {
        "tool": "ronda-bench",
        "version": "0.3.0",
        "command": command,
        "date": "2026-11-21T19:30:00Z",
        "machine": {"cpu": "AMD <EPYC>", "cores": 2, "memory_gib": 7.8, "kernel": "Linux 6.1.0"},
        "peers": ["Open MPI v4.1.4"],
        "core_distance_ns": [55.2, 57],
        "busy_cores": [0.0, 0.1],
        "arguments": list(arguments),
        "rows": rows,
    }


def collective(implementation, kind, size, us):
    return {
        "op": "allreduce",
        "ranks": 2,
        "bytes": size,
        "dtype": "float32",
        "placement": "in",
        "wire": "none",
        "contestant": implementation,
        "kind": kind,
        "median_us": us,
        "algbw_gbs": size * 1e-3 / us,
        "busbw_gbs": size * 1e-3 / us,
        "wrong": 0,
    }


def step(implementation, step_ms, **more):
    return {
        "preset": "resnet50",
        "ranks": 2,
        "compute_ms": 100.0,
        "compute_kind": "spin",
        "contestant": implementation,
        "step_ms": step_ms,
        "step_ms_p10": step_ms - 1.5,
        "step_ms_p90": step_ms + 1.5,
        "compute_only_ms": 100.0,
        "exposed_ms": step_ms - 100,
        "efficiency": 100 / step_ms,
        **more,
    }


def ronda_step(wire, step_ms, fusion=64 << 20, lock="on"):
    return step(
        "ronda",
        step_ms,
        fusion_threshold=fusion,
        wire=wire,
        cycle_time_us=0.0,
        backend="shm",
        lock=lock,
        wire_bytes=102228128,
        control_messages=0.0,
        ratio_openmpi_flat=1.4,
        ratio_openmpi_per_tensor=1.25,
    )


def _latency():
    calls = {
        "measure": "calls",
        "contestant": "client",
        "kind": "ronda",
        "ranks": 2,
        "bytes": 4,
        "calls": 1000,
        "min_us": 3.0,
        "median_us": 5.25,
        "p90_us": 9.0,
        "p99_us": 20.0,
        "max_us": 300.0,
        "histogram_begin_us": [4, 5, 6, 8],
        "histogram_count": [100, 700, 150, 50],
    }
    idle = {"measure": "idle", "ranks": 2, "seconds": 3.0, "cpu_us": 51.0, "context_switches": 1}
    return document("latency", [calls, idle])


def _negotiation():
    fields = ("messages", "report_bytes", "list_bytes", "received_bytes", "sent_bytes")
    row = {"ranks": 64, "step": "locked", "coordinator_us": 0.0, "other_us": 1.5}
    return document("negotiation", [{**row, **dict.fromkeys(fields, 0)}])


def documents():
    """Returns the JSON documents of all commands, by file name."""
    small, large = 1024, 1048576
    startup = {"contestant": "ronda", "ranks": 2, "median_s": 0.081, "p10_s": 0.08, "p90_s": 0.09}
    return {
        "advise": document(
            "advise",
            [
                {"ranks": 2, "wire": "none", "efficiency": 0.5},
                {"ranks": 2, "wire": "fp16", "efficiency": 0.75},
            ],
        ),
        "collectives": document(
            "collectives",
            [
                collective("communicator", "ronda", small, 2),
                collective("openmpi", "peer", small, 5),
                collective("communicator", "ronda", large, 60),
                collective("openmpi", "peer", large, 120),
            ],
            ["--peer", "mpi"],
        ),
        "latency": _latency(),
        "negotiation": _negotiation(),
        "startup": document("startup", [{**startup, "total_median_s": 0.11}], ["--rounds", "3"]),
        "step": document(
            "step",
            [
                step("compute only", 100),
                ronda_step("none", 102.5),
                ronda_step("fp16", 104),
                step("openmpi flat", 143.5),
            ],
            ["--compute", "100ms"],
        ),
    }


def run(command, rows, name="sample"):
    return runs.Run(name, command, [runs.Row(row) for row in rows])
