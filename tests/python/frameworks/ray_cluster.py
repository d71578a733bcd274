# SPDX-License-Identifier: Apache-2.0

"""Starts a Ray cluster on this host, for tests."""

from __future__ import annotations

import ray

ENV = {
    # By default Ray's processes have a low priority, and hardly run on a busy host.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "200",
    # The last two variables switch off actors that watch the cluster. Each actor would be one more
    # process that imports Ray.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
}


def start(cpus: int, gpus: int = 0) -> str:
    """Starts Ray with these numbers of CPUs and GPUs, which need not exist. REQUIRES: ENV is set.

    Returns the address at which other nodes find this cluster.
    """

    def attempt() -> str:
        context = ray.init(
            "local",
            num_cpus=cpus,
            num_gpus=gpus,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            object_store_memory=100 << 20,
        )
        return context.address_info["gcs_address"]

    try:
        return attempt()
    except Exception:  # Ray has no class for it: its agent must start in 15 s, too few if busy
        ray.shutdown()
        return attempt()
