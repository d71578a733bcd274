"""Ronda as a backend of torch.distributed: init_process_group("ronda").

    import ronda.torch.c10d
    torch.distributed.init_process_group("ronda")

The import registers the backend. Versions of PyTorch that read the entry points
torch.distributed.backends find it without the import. RONDA_REPLACE_BACKEND=gloo,nccl,mpi makes
Ronda serve programs that name another backend: `python -m ronda.torch.c10d train.py` runs them
unchanged.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import torch.distributed as dist

from ronda._library import native
from ronda.torch.c10d import _rendezvous
from ronda.torch.c10d._process_group import ProcessGroup
from ronda.torch.c10d._work import Work

__all__ = ["ProcessGroup", "Work", "register"]

_NAME = "ronda"


def _create(options: Any, _backend_options: Any) -> ProcessGroup:
    """Makes a group, on its members; torch calls it.

    Raises:
        ValueError: the ranks of the group are not in ascending order.
    """
    ranks = list(options.global_ranks_in_group)
    if not ranks:
        _rendezvous.join(options.store, options.group_rank, options.group_size)
        ranks, process_set = list(range(options.group_size)), 0
    else:
        if ranks != sorted(ranks):
            raise ValueError(f"the ranks of a group must be in ascending order; these are {ranks}")
        process_set = native.create_process_set(ranks, f"c10d/{options.group_id}")
    default = dist.distributed_c10d.default_pg_timeout
    is_default = options.timeout == default
    timeout_s = 0.0 if is_default else options.timeout.total_seconds()
    return ProcessGroup(options.group_rank, ranks, process_set, options.group_id, timeout_s)


def register() -> None:
    """Registers the backend; called by the import, and as an entry point of PyTorch."""
    backend: Any = dist.Backend
    if _NAME.upper() in backend._plugins:
        return
    has_devices = "devices" in inspect.signature(backend.register_backend).parameters
    devices = {"devices": ["cpu", "cuda"]} if has_devices else {}
    backend.register_backend(_NAME, _create, extended_api=True, **devices)
    _rendezvous.serve_env()
    _replace_backends(os.environ.get("RONDA_REPLACE_BACKEND", ""))


def _replace_backends(names: str) -> None:
    """Makes torch take each of these backends, "gloo,nccl", for Ronda."""
    replaced = {name.strip().lower() for name in names.split(",") if name.strip()}
    backend: Any = dist.Backend
    original = backend.__new__

    def create(cls: type, name: Any) -> Any:
        is_replaced = isinstance(name, str) and name.lower() in replaced
        return original(cls, _NAME if is_replaced else name)

    if replaced:
        backend.__new__ = staticmethod(create)


register()
