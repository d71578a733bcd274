# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits with Keras, trained by any number of ranks.

    KERAS_BACKEND=jax rondarun -np 2 python3 examples/keras_mnist.py

The backend is tensorflow, jax or torch.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import keras
import numpy as np
import ronda.keras as hvd

DIGITS = pathlib.Path(__file__).parent / "lenet_mnist" / "data"


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Reads a uint8 array from a gzipped file in the MNIST format."""
    data = gzip.decompress(path.read_bytes())
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load_digits(part: str, folder: pathlib.Path = DIGITS) -> tuple[np.ndarray, np.ndarray]:
    """Reads images (N, 28, 28, 1), from -0.5 to 0.5, and labels; `part` is train or t10k."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").astype(np.float32) / 255 - 0.5
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int32)
    return images[..., None], labels


def lenet() -> keras.Model:
    """LeNet-5 with rectifiers."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    """Trains and prints the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in 16 bits")
    args = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(42 + hvd.rank())
    images, labels = load_digits("train", args.data)
    share = len(images) // hvd.size()  # the same on every rank, so that all have as many batches
    mine = slice(hvd.rank(), share * hvd.size(), hvd.size())

    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(args.lr), compression=compression)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = lenet()
    model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(
        images[mine],
        labels[mine],
        batch_size=max(args.batch_size // hvd.size(), 1),
        epochs=args.epochs,
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(args.lr, warmup_epochs=1),
            hvd.callbacks.LearningRateScheduleCallback(
                args.lr, lambda epoch: 0.6 ** (epoch - 1), start_epoch=1
            ),
        ],
    )
    accuracy = model.evaluate(*load_digits("t10k", args.data), verbose=0, return_dict=True)
    if hvd.rank() == 0:
        print(f"epoch {args.epochs}: accuracy {accuracy['accuracy']:.4f}")


if __name__ == "__main__":
    main()
