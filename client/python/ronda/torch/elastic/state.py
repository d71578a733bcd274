# SPDX-License-Identifier: Apache-2.0

"""State of a PyTorch program that can be committed, restored, and made equal on all ranks."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ronda._elastic import ObjectState
from ronda.torch.elastic.sampler import ElasticSampler
from ronda.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)


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
        """Copies rank 0's state, or the newest commit's state, to all ranks, and saves it."""
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
