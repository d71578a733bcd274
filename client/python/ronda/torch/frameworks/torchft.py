# SPDX-License-Identifier: Apache-2.0

"""Lets torchft use Ronda to average over its replicas.

    from ronda.torch.frameworks.torchft import ProcessGroupRonda
    manager = torchft.Manager(pg=ProcessGroupRonda(), ...)

When a replica dies or joins, torchft's manager notifies the other replicas of their new ranks, and
each replica joins the job of these ranks.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from ronda import job
from ronda._library import native
from ronda.errors import NotInitializedError, RondaError
from ronda.torch.c10d import Group, _membership, _rendezvous, _versions

if not _versions.HAS_BACKENDS:
    raise ImportError("torchft over Ronda needs PyTorch 2.15 or later, whose groups take backends")


class ProcessGroupRonda(ProcessGroupWrapper):  # type: ignore[misc]
    """A group of the processes that have the same rank in all replicas.

    A process can be in only one Ronda job at a time, so if a replica has several ranks, its own
    groups need a different backend.
    """

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        """Joins the job of the replicas. torchft calls this method, with a store that no other job
        uses.

        Raises:
            RondaError: some replicas have not joined within the group's timeout.
        """
        place = _rendezvous.meeting_point(
            store, "ronda/job", rank, world_size, socket.gethostname()
        )
        job.rejoin(
            _rendezvous.USER,
            f"torchft has made another group, quorum {self._quorum_id}",
            rank=rank,
            size=world_size,
            start_timeout_s=self._timeout.total_seconds(),
            **place,
        )
        name = f"torchft/{self._quorum_id}"
        group = Group(rank, range(world_size), 0, name, self._timeout.total_seconds(), store)
        whole = dist.ProcessGroup(store, rank, world_size)
        _membership.serve_all_devices(whole, group)
        return whole

    def errored(self) -> Exception | None:
        """Returns the job's failure, or None. After a failure the replicas need a new group."""
        try:
            with contextlib.suppress(NotInitializedError):
                native.job_status()
        except RondaError as failure:
            return failure
        return None

    def shutdown(self) -> None:
        super().shutdown()
        with contextlib.suppress(RondaError):  # the job had failed
            job.shutdown(_rendezvous.USER)

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-ronda"
