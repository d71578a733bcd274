# SPDX-License-Identifier: Apache-2.0

"""Callbacks for model.fit()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ronda import exchanges, reductions
from ronda._horovod import ProcessSet, global_process_set, rank, size
from ronda.keras._backends import backend_name
from ronda.keras.elastic import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from ronda.keras.functions import broadcast_variables, variables_of

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "JoinCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the root's model and optimizer before the first batch. If the model creates
    its variables in the first batch, the callback broadcasts them after that batch.

    On TensorFlow the callback also prevents Keras from compiling the model with XLA, because
    TensorFlow cannot call Ronda from XLA.
    """

    def __init__(
        self,
        root_rank: int = 0,
        device: str = "",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """
        Args:
            root_rank: the rank in the job.
            device: accepted for compatibility with Horovod; not used.
            process_set: the ranks that take part.
        """
        super().__init__()
        del device
        self._root_rank, self._process_set = root_rank, process_set
        self._is_done = False

    def set_model(self, model: Any) -> None:
        """fit() calls this method before it builds the training function."""
        super().set_model(model)
        if backend_name() == "tensorflow":
            model.jit_compile = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts the model and the optimizer, if they have variables."""
        self._is_done = False
        if self.model.built:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts after the first batch, unless the broadcast has already happened."""
        if not self._is_done:
            self._broadcast()

    def _broadcast(self) -> None:
        model = self.model
        optimizer = model.optimizer
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        broadcast_variables(variables_of(model, optimizer), self._root_rank, self._process_set)
        self._is_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over the ranks, for the callbacks that come later in the
    list.
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        """
        Args:
            device: accepted for compatibility with Horovod; not used.
            process_set: the ranks that take part.
        """
        super().__init__()
        del device
        self._process_set = process_set

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replaces the numbers and arrays in `logs` by their averages."""
        begun = {
            name: reductions.allreduce_async(
                np.array(value, np.float64), name=f"metric.{name}", process_set=self._process_set
            )
            for name, value in sorted((logs or {}).items())
        }
        for name, handle in begun.items():
            average = handle.wait()
            logs[name] = average.item() if average.ndim == 0 else average


class JoinCallback(keras.callbacks.Callback):
    """Allows ranks to have different numbers of batches. At the end of its epoch a rank waits for
    the other ranks, whose steps continue without it. When all ranks have finished the epoch, they
    get the model and the optimizer of the rank that finished last, after the most steps.
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Waits for the other ranks, and gets the variables of the rank that finished last."""
        last = exchanges.join()
        broadcast_variables(variables_of(self.model, self.model.optimizer), last)


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr` times a multiplier."""

    def __init__(
        self,
        initial_lr: float | None,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """
        Args:
            initial_lr: None means the optimizer's rate when fit() begins.
            multiplier: a function of the epoch, or a number m, which means m ** epoch.
            start_epoch: the first epoch in which the callback acts.
            end_epoch: the first epoch in which the callback no longer acts.
            staircase: if true, the multiplier changes with each epoch; if false, with each batch.
            momentum_correction: whether to scale the momentum with the rate while the rate changes.
                The correction works only on torch, because in other backends the momentum is a
                constant of the compiled step.
            steps_per_epoch: None means the number that fit() counts.
        """
        super().__init__()
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier**epoch
        self.steps_per_epoch = steps_per_epoch
        self._corrects = momentum_correction and backend_name() == "torch"
        self._momentum: float | None = None
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Determines the learning rate and the number of steps, unless the caller has passed
        them.
        """
        if self.initial_lr is None:
            self.initial_lr = self._rate()
        if not self.staircase and self.steps_per_epoch is None:
            self.steps_per_epoch = self.params.get("steps")
            if self.steps_per_epoch is None:
                raise ValueError(
                    f"{type(self).__name__}: fit() does not know the number of batches: pass"
                    " steps_per_epoch"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Counts the epochs."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate."""
        is_over = self.end_epoch is not None and self._epoch >= self.end_epoch
        if self._epoch < self.start_epoch or is_over:
            return
        if not self.staircase:
            self._set_rate(self._epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set_rate(self._epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Restores the momentum from before the batch."""
        if self._momentum is not None:
            self.model.optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the rate."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set_rate(self, epoch: float) -> None:
        optimizer, old = self.model.optimizer, self._rate()
        new = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self._corrects and getattr(optimizer, "momentum", 0) and old > 0:
            self._momentum = optimizer.momentum
            optimizer.momentum = self._momentum * new / old


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr` / size() to `initial_lr` in the first epochs, as
    in Goyal et al., "Accurate, Large Minibatch SGD" (2017).
    """

    def __init__(
        self,
        initial_lr: float | None,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """
        Args:
            initial_lr: the rate after the warm-up. None means the optimizer's rate when fit()
                begins.
            warmup_epochs: the number of epochs.
            momentum_correction: as for LearningRateScheduleCallback.
            steps_per_epoch: as for LearningRateScheduleCallback.
            verbose: if it is 1, rank 0 prints a line at the end.
        """

        def multiplier(epoch: float) -> float:
            # The last batch of an epoch already uses the rate of the end of the epoch.
            epoch += 1.0 / self.steps_per_epoch
            return (epoch * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self._verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the rate."""
        super().on_epoch_end(epoch, logs)
        if self._verbose and epoch == self.end_epoch - 1 and rank() == 0:
            print(f"epoch {epoch + 1}: the warm-up of the learning rate ends at {self._rate():g}")
