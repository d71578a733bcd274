# SPDX-License-Identifier: Apache-2.0

"""Horovod's elastic API for TensorFlow; ronda/_elastic.py explains how it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ronda._elastic import HostsUpdatedInterrupt, ObjectState, State, run
from ronda.keras.elastic import KerasState
from ronda.tensorflow.functions import broadcast_variables

__all__ = [
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]


class TensorFlowState(ObjectState):
    """The elastic state of a training run: TensorFlow variables, and Python objects as
    attributes.
    """

    def __init__(self, variables: Sequence[Any], session: None = None, **kwargs: Any) -> None:
        """
        Args:
            variables: the same variables in the same order on every rank.
            session: accepted for compatibility with Horovod; not used.
            **kwargs: names and initial values of the attributes.
        """
        del session
        self.variables = list(variables)
        self._save_variables()
        super().__init__(**kwargs)

    def _shared(self) -> list[Any]:
        return self.variables

    def _save_variables(self) -> None:
        self._values = [each.numpy().copy() for each in self.variables]

    def save(self) -> None:
        """Saves the variables and the attributes."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Returns to the last saved state."""
        for variable, value in zip(self.variables, self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Copies the current state of rank 0, or of the rank with the newest commit, to all ranks,
        and saves it.
        """
        broadcast_variables(self.variables, *(self._root() or (0,)))
        super().sync()


def TensorFlowKerasState(
    model: Any, optimizer: Any = None, backend: None = None, **kwargs: Any
) -> KerasState:
    """The state of a Keras model; see ronda.keras.elastic.KerasState.

    Args:
        backend: accepted for compatibility with Horovod; not used.
    """
    del backend
    return KerasState(model, optimizer, **kwargs)
