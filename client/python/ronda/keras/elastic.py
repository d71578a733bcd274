# SPDX-License-Identifier: Apache-2.0

"""Horovod's elastic API for Keras; ronda/_elastic.py explains how it works."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ronda._elastic import HostsUpdatedInterrupt, ObjectState, State, run
from ronda.keras.functions import broadcast_variables, variables_of

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(ObjectState):
    """The elastic state of a training run: a model, its optimizer, and Python objects as
    attributes.

    state = KerasState(model, batch=0, epoch=0)
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """
        Args:
            model: must be built, so that it has its variables.
            optimizer: None means the model's own optimizer.
            **kwargs: names and initial values of the attributes.

        Raises:
            ValueError: the model has no variables yet.
        """
        if not model.built:
            raise ValueError(
                f"the model {model.name} has no variables yet: give it an Input, or call"
                " model.build(), before KerasState"
            )
        self.model = model
        self.optimizer = model.optimizer if optimizer is None else optimizer
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(model.trainable_variables)
        self._save_variables()
        super().__init__(**kwargs)

    def _variables(self) -> list[Any]:
        # On JAX, fit() keeps the current values outside the variables; jax_state_sync() copies them
        # into the variables.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        return variables_of(self.model, self.optimizer)

    def _shared(self) -> list[Any]:
        return [self.model, self.optimizer]

    def _save_variables(self) -> None:
        self._values = [np.array(keras.ops.convert_to_numpy(each)) for each in self._variables()]

    def save(self) -> None:
        """Saves the model, the optimizer and the attributes."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Returns to the last saved state."""
        for variable, value in zip(self._variables(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Copies the current state of rank 0, or of the rank with the newest commit, to all ranks,
        and saves it.
        """
        broadcast_variables(self._variables(), *(self._root() or (0,)))
        super().sync()


class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state after every `batches_per_commit` batches, and after each epoch.

    Pass this callback to fit() after the callbacks that update the state.
    """

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        """
        Args:
            state: the state that the callback commits.
            batches_per_commit: 0 means that the callback commits only after epochs.
        """
        super().__init__()
        self._state, self._batches = state, batches_per_commit
        self._since_commit = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Resets the batch counter."""
        self._since_commit = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits after every `batches_per_commit` batches."""
        self._since_commit += 1
        if self._batches and self._since_commit >= self._batches:
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits the state."""
        self._commit()

    def _commit(self) -> None:
        self._since_commit = 0
        self._state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps the number of batches finished in this epoch in state.batch."""

    def __init__(self, state: Any) -> None:
        """Args: state: must have an attribute `batch`."""
        super().__init__()
        self._state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the batch."""
        self._state.batch = batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Resets the batch counter."""
        self._state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of finished epochs, across several calls to fit(), in state.epoch."""

    def __init__(self, state: Any) -> None:
        """Args: state: must have an attribute `epoch`."""
        super().__init__()
        self._state = state

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Counts the epoch. After fit(..., initial_epoch=state.epoch) the count continues from
        `initial_epoch`.
        """
        self._state.epoch = epoch + 1
