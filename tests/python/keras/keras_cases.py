# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests of ronda.keras: a small model and its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import ronda.keras as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

SHARE = 4  # examples per rank and batch
STEPS = 4
INPUTS = np.random.default_rng(0).normal(size=(SHARE * SIZE * STEPS, 4)).astype(np.float32)
LABELS = INPUTS.sum(axis=1, keepdims=True)


def own(share: int = SHARE) -> tuple[np.ndarray, np.ndarray]:
    """Returns this rank's `share` examples of each batch of share * SIZE examples."""
    batches = np.arange(len(INPUTS)).reshape(-1, share * SIZE)
    rows = batches[:, share * RANK : share * (RANK + 1)].ravel()
    return INPUTS[rows], LABELS[rows]


def model_of(optimizer: Any, seed: int = 7, **options: Any) -> Any:
    """Returns a compiled model; equal seeds give equal models."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(optimizer, "mse", **options)
    return model


def fit(
    model: Any,
    data: tuple[np.ndarray, np.ndarray],
    batch_size: int = SHARE,
    callbacks: Sequence[Any] = (),
    epochs: int = 1,
    **options: Any,
) -> Any:
    """Runs model.fit() without shuffling, and returns the history."""
    return model.fit(
        *data,
        batch_size=batch_size,
        shuffle=False,
        epochs=epochs,
        verbose=0,
        callbacks=list(callbacks),
        **options,
    ).history


def weights_alone(optimizer: Any, batch_size: int = SHARE * SIZE, epochs: int = 1) -> np.ndarray:
    """Returns the weights that one process learns from all data."""
    model = model_of(optimizer)
    fit(model, (INPUTS, LABELS), batch_size, epochs=epochs)
    return weights_of(model)


def weights_of(model: Any) -> np.ndarray:
    """Returns all weights in one array."""
    return np.concatenate([each.ravel() for each in model.get_weights()])
