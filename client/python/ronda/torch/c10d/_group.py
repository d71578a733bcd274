"""A group of torch.distributed over Ronda: the class that torch sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from ronda._library import native
from ronda.torch.c10d import _versions
from ronda.torch.c10d._exchanges import Exchanges


@_versions.with_other_names
class Group(Exchanges, _versions.GroupBase):  # type: ignore[misc]
    """The ranks of one of Ronda's process sets, for torch.

    A Backend in today's PyTorch; a whole ProcessGroup in older versions (see _versions).
    """

    def __init__(
        self, rank: int, ranks: Sequence[int], process_set: int, name: str, timeout_s: float
    ) -> None:
        """
        Args:
            rank: of this process in the group.
            ranks: of the members in the job, in the order of the group.
            process_set: of these ranks; given back by shutdown(), unless it is that of all ranks.
            name: of the group.
            timeout_s: deadline of its collectives; 0: the job's.
        """
        _versions.GroupBase.__init__(self, rank, len(ranks))
        Exchanges.__init__(self, rank, ranks, process_set, timeout_s)
        self._name = name

    # -- What torch asks a group about itself --

    def getBackendName(self) -> str:  # noqa: N802
        return "ronda"

    @property
    def group_name(self) -> str:
        return self._name

    def group_name_of_torch(self) -> str:
        return self._name

    def set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def _device_types(self) -> list[torch.device]:
        names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return [torch.device(name) for name in names]

    @property
    def supports_coalescing(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """The deadline of the group's collectives from now on."""
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    # -- Its end --

    def shutdown(self) -> None:
        """Gives the process set back. The job goes on, as other groups may use it."""
        if self._set != 0 and native.is_initialized():
            process_set, self._set = self._set, 0
            native.remove_process_set(process_set)
