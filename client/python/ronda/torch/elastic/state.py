# SPDX-License-Identifier: Apache-2.0

"""State of a training program that can be committed, restored, and made equal on all ranks."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ronda._library import native
from ronda.torch._basics import rank, shutdown
from ronda.torch.elastic.sampler import ElasticSampler
from ronda.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

_REFORM, _LEAVE = 1, 2  # values of ronda_elastic_change


def is_elastic() -> bool:
    """Whether an elastic launcher has started this process."""
    return "RONDA_MEMBERSHIP_FD" in os.environ


class HostsUpdatedInterrupt(RuntimeError):
    """The training function starts again and keeps its state, because the members of an elastic job
    change, or because the program requests it.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts have changed")
        self.skip_sync = skip_sync


class State:
    """Base class of states."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
    ) -> None:
        """
        Args:
            bcast_object: copies rank 0's object to all ranks.
            get_rank: returns this rank.
        """
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], object]] = []
        self._source = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers functions that are called when the ranks have joined again."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called when the ranks have joined again."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the present state, in memory, for a later restore()."""
        native.elastic_begin_update()
        self.save()
        native.elastic_end_update()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """In an elastic job, checks whether the members change: the same answer on all ranks, which
        must call it equally often.

        Raises:
            HostsUpdatedInterrupt: the members change.
            SystemExit: this rank was asked to leave, and has left.
        """
        change = native.elastic_poll() if is_elastic() else 0
        if change == _REFORM:
            raise HostsUpdatedInterrupt
        if change == _LEAVE:
            shutdown()
            raise SystemExit(0)

    def sync_with_newest(self) -> None:
        """Copies the newest commit that any rank has to all ranks."""
        _, self._source, _, is_behind, _ = native.elastic_sync(-1)
        if is_behind:
            native.elastic_begin_update()
        self.sync()
        if is_behind:
            native.elastic_end_update()

    def _root(self) -> tuple[int, ...]:
        # The program's own functions and handlers, written for Horovod, only know rank 0.
        return (self._source,) if self._source else ()

    def _broadcast(self, value: Any) -> Any:
        return self._bcast_object(value, *self._root())

    def save(self) -> None:
        """Saves the present state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies rank 0's state to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called when the ranks have joined again, before sync()."""


class ObjectState(State):
    """Python objects, as attributes."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            bcast_object: copies rank 0's object to all ranks.
            get_rank: returns this rank.
            **kwargs: names and first values of the attributes.
        """
        self._saved_state = kwargs
        self._set_attributes()
        super().__init__(bcast_object, get_rank)

    def save(self) -> None:
        """Saves the attributes' values."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Sets the attributes to their last saved values."""
        self._set_attributes()

    def sync(self) -> None:
        """Copies the last saved values of rank 0, or of the rank with the newest commit, to all
        ranks.
        """
        if self._saved_state:
            self._saved_state = self._broadcast(self._saved_state)
            self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


class StateHandler:
    """Saves the state of an object that has a state_dict."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        """Saves the present state."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Returns to the last saved state."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self, root_rank: int = 0) -> None:
        """Copies the root's state to all ranks, and saves it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handles another object from now on."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """For a torch.nn.Module."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank)
        self.save()


class OptimizerStateHandler(StateHandler):
    """For a torch.optim.Optimizer."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_optimizer_state(self.value, root_rank)
        self.save()


class SamplerStateHandler(StateHandler):
    """For an ElasticSampler."""

    def sync(self, root_rank: int = 0) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank))
        self.save()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Types of attributes of TorchState, and their handlers. The first matching type is used."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replaces the result of get_handler_registry()."""
    global _registry
    _registry = registry


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """State of a PyTorch program.

        state = TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)

    Attributes that have a handler (models, optimizers, samplers) are saved, restored and
    synchronized in place, others as Python objects.
    """

    _handlers: dict[str, StateHandler] = {}

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            model: gets a handler.
            optimizer: gets a handler.
            **kwargs: names and first values of further attributes.
        """
        objects: dict[str, Any] = {}
        handlers: dict[str, StateHandler] = {}
        for name, value in {**kwargs, "model": model, "optimizer": optimizer}.items():
            handler = _handler_of(value)
            if handler is None:
                objects[name] = value
            else:
                handlers[name] = handler
                setattr(self, name, value)
        self._handlers = handlers
        super().__init__(**objects)

    def save(self) -> None:
        """Saves the state of all attributes."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Returns to the last saved state."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Copies rank 0's state, or that of the newest commit, to all ranks, and saves it."""
        for handler in self._handlers.values():
            handler.sync(*self._root())
        super().sync()

    def reset(self) -> None:
        """Samplers distribute their samples again."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)
