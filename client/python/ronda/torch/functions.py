# SPDX-License-Identifier: Apache-2.0

"""Makes parameters, optimizers and objects equal on all ranks."""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ronda import objects
from ronda.process_sets import ProcessSet, global_process_set
from ronda.torch._async_operations import broadcast_async_
from ronda.torch._basics import rank


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank. The object is pickled, so use the function only
    among ranks that you trust.

    Args:
        obj: the object. Only the root's object is used.
        root_rank: the root's rank in the job, even if `process_set` is given.
        name: the same on every rank; calls without a name are matched by order.
        process_set: the ranks that take part.
    """
    return objects.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the objects of all ranks that take part, by rank. Ranks that have joined do not take
    part.

    The objects are pickled, so use the function only among ranks that you trust.

    Args:
        obj: the object of this rank.
        name: the same on every rank; calls without a name are matched by order.
        process_set: the ranks that take part.
    """
    return objects.allgather_object(obj, name=name, process_set=process_set)


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Copies the root's tensors to all ranks, in place.

    Args:
        params: a state_dict, or named parameters, or tensors, in the same order on every rank.
            Other entries of a state_dict do not change.
        root_rank: the root's rank in the job, even if `process_set` is given.
        process_set: the ranks that take part.

    Raises:
        ValueError: `params` has a different type.
    """
    handles = []
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name, tensor in _named(params):
        data = tensor.detach()
        dense = data.contiguous()
        if dense is not data:
            copies.append((data, dense))
        handles.append(broadcast_async_(dense, root_rank, name, process_set))
    for handle in handles:
        handle.wait()
    for data, dense in copies:
        data.copy_(dense)


def _named(params: Mapping[str, Any] | Iterable[Any]) -> list[tuple[Any, Any]]:
    if isinstance(params, (str, bytes, torch.Tensor)) or not isinstance(params, Iterable):
        raise ValueError(
            f"invalid params of type {type(params).__name__}: pass a state_dict, or a list of"
            " parameters or of (name, parameter)"
        )
    if isinstance(params, Mapping):
        return [
            (name, each) for name, each in sorted(params.items()) if isinstance(each, torch.Tensor)
        ]
    pairs = [(each[0], each[1]) if isinstance(each, tuple) else (None, each) for each in params]
    for _, each in pairs:
        if not isinstance(each, torch.Tensor):
            raise ValueError(f"invalid params: {type(each).__name__} is no tensor")
    return pairs


@dataclass(frozen=True)
class _Placeholder:
    """Stands for a tensor in a structure that is sent as a pickled object."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    on_host: bool


def _take_out(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Replaces the tensors in `value` with placeholders, and appends the tensors to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().contiguous())
        return _Placeholder(value.dtype, tuple(value.shape), value.device.type == "cpu")
    return _rebuilt(value, lambda each: _take_out(each, tensors))


def _put_in(value: Any, tensors: list[torch.Tensor], device: torch.device) -> Any:
    """Replaces placeholders with new tensors, and appends the new tensors to `tensors`. The new
    tensors are on `device` if the root's tensors were on a device.
    """
    if isinstance(value, _Placeholder):
        place = torch.device("cpu") if value.on_host else device
        tensors.append(torch.empty(value.shape, dtype=value.dtype, device=place))
        return tensors[-1]
    return _rebuilt(value, lambda each: _put_in(each, tensors, device))


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a container like `value`, with the results of `change` for its elements. Returns a
    `value` that is not a container unchanged.

    Does not change containers of the program's own classes, which are pickled as a whole.
    """
    kind = type(value)
    if kind in (dict, collections.OrderedDict):
        return kind((key, change(each)) for key, each in value.items())
    if isinstance(value, tuple) and hasattr(kind, "_make"):  # a namedtuple
        return _own_class(kind)._make(change(each) for each in value)
    if kind in (list, tuple):
        return kind(change(each) for each in value)
    return value


def _own_class(kind: Any) -> Any:
    """Returns this process's class of the same name, because pickling may have made a copy of a
    class of the main program.
    """
    return getattr(sys.modules.get(kind.__module__), kind.__qualname__, kind)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Copies the state and the options of the root's optimizer, which may be of any kind, to all
    ranks.

    Args:
        optimizer: the same kind on every rank, with parameters in the same order.
        root_rank: the rank in the job.
        model: not used. Horovod searches the model for sparse parameters.

    Raises:
        ValueError: this rank's optimizer does not have the same parameters as the root's optimizer.
    """
    del model
    tensors: list[torch.Tensor] = []
    groups, state = broadcast_object(_take_out(_contents(optimizer), tensors), root_rank)
    if rank() != root_rank:
        _set_contents(optimizer, groups, state, tensors)
    broadcast_parameters(tensors, root_rank)


def _contents(optimizer: torch.optim.Optimizer) -> tuple[list[Any], list[Any]]:
    """Returns the options of each group, and the state of each parameter in the order of the
    groups.
    """
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        | {"params": len(group["params"])}
        for group in optimizer.param_groups
    ]
    parameters = _parameters(optimizer)
    return groups, [optimizer.state.get(parameter) for parameter in parameters]


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _set_contents(
    optimizer: torch.optim.Optimizer,
    groups: list[Any],
    state: list[Any],
    tensors: list[torch.Tensor],
) -> None:
    """Sets the root's options and state. `tensors` becomes the list of new tensors, in the root's
    order.
    """
    tensors.clear()
    own = [len(group["params"]) for group in optimizer.param_groups]
    roots = [group["params"] for group in groups]
    if own != roots:
        raise ValueError(
            f"rank {rank()}'s optimizer has groups of {own} parameters, and the root's has {roots}:"
            " add the same groups on all ranks first"
        )
    for group, options in zip(optimizer.param_groups, groups):
        device = group["params"][0].device if group["params"] else torch.device("cpu")
        for key, value in options.items():
            if key != "params":
                group[key] = _put_in(value, tensors, device)
    for parameter, value in zip(_parameters(optimizer), state):
        optimizer.state.pop(parameter, None)
        if value is not None:
            optimizer.state[parameter] = _put_in(value, tensors, parameter.device)
