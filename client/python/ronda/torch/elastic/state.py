# SPDX-License-Identifier: Apache-2.0

"""The state of a PyTorch program, which can be committed, restored, and made equal on all ranks."""

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
        """Saves the current state of the object."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Returns to the last saved state."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self, root_rank: int = 0) -> None:
        """Copies the root's state to all ranks, and saves this state."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Replaces the handled object."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """The handler for a torch.nn.Module."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank)
        self.save()


class OptimizerStateHandler(StateHandler):
    """The handler for a torch.optim.Optimizer."""

    def sync(self, root_rank: int = 0) -> None:
        broadcast_optimizer_state(self.value, root_rank)
        self.save()


class SamplerStateHandler(StateHandler):
    """The handler for an ElasticSampler."""

    def sync(self, root_rank: int = 0) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank))
        self.save()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Returns pairs of an attribute type and its handler. TorchState uses the first pair that
    matches.
    """
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
    """The state of a PyTorch program.

        state = TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)

    Attributes that have a handler (models, optimizers, samplers) are saved, restored and
    synchronized in place. Other attributes are treated as Python objects, and copied.
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
            model: a model, which gets a handler.
            optimizer: an optimizer, which gets a handler.
            **kwargs: names and initial values of further attributes.
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
        """Copies the current state of rank 0, or of the rank with the newest commit, to all ranks,
        and saves it.
        """
        # Handlers save their parts one by one. If a rank dies between two of them, the other ranks
        # restore all parts of this state.
        self.save()
        for handler in self._handlers.values():
            handler.sync(*self._root())
        super().sync()

    def reset(self) -> None:
        """Makes samplers distribute their samples again, because the ranks have changed."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def _shared(self) -> list[Any]:
        return [handler.value for handler in self._handlers.values()]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)
