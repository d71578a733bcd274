# SPDX-License-Identifier: Apache-2.0

"""Ronda as a backend of torch.distributed: init_process_group("ronda").

    import ronda.torch.c10d
    torch.distributed.init_process_group("ronda")

The import registers the backend. PyTorch versions that load the entry points
torch.distributed.backends do not need the import. RONDA_REPLACE_BACKEND=gloo,nccl,mpi makes Ronda
serve programs that name one of these backends. With this variable, `python -m ronda.torch.c10d
train.py` runs such a program unchanged.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch.distributed as dist

from ronda.torch.c10d import _group, _rendezvous, _versions
from ronda.torch.c10d._group import Group, group_of
from ronda.torch.c10d._membership import ReconfigurableGroup
from ronda.torch.c10d._work import Work

__all__ = ["Group", "Work", "group_of", "register"]

_NAME = "ronda"


def _create(options: Any, _backend_options: Any) -> Group | ReconfigurableGroup:
    """Creates a torch.distributed group. torch calls this function on the group's members.

    Raises:
        ValueError: the program has chosen a backend per device, which this group does not support.
    """
    is_reconfigurable = getattr(options, "enable_reconfigure", False)
    _versions.check_devices(is_reconfigurable)
    rank, ranks = options.group_rank, list(options.global_ranks_in_group)
    if ranks:
        return _group.create(rank, ranks, options.group_id, options.timeout)
    importlib.import_module("ronda.torch.frameworks").tell_imported()
    size = options.group_size
    _rendezvous.join(options.store, rank, size)
    timeout_s = _versions.seconds(options.timeout)
    group = Group(rank, range(size), 0, options.group_id, timeout_s, options.store)
    return ReconfigurableGroup(options.store, group) if is_reconfigurable else group


def register() -> None:
    """Registers the backend. This module calls the function at its import. PyTorch also calls the
    function, as an entry point.
    """
    backend: Any = dist.Backend
    if _NAME.upper() in backend._plugins:
        return
    _versions.register(_NAME, _create)
    _versions.complete_works()
    _versions.complete_groups(_group.backend_of)
    _rendezvous.serve_env()
    _replace_backends(os.environ.get("RONDA_REPLACE_BACKEND", ""))


def _replace_backends(names: str) -> None:
    """Makes torch use Ronda for each of the backends in `names`, for example "gloo,nccl"."""
    replaced = {name.strip().lower() for name in names.split(",") if name.strip()}
    backend: Any = dist.Backend
    original = backend.__new__

    def create(cls: type, name: Any) -> Any:
        is_replaced = isinstance(name, str) and name.lower() in replaced
        return original(cls, _NAME if is_replaced else name)

    if replaced:
        backend.__new__ = staticmethod(create)


register()
