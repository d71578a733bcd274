# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits with JAX and Optax, trained by any number of ranks.

    rondarun -np 2 python3 examples/jax_mnist.py

The lines with `rj.` turn a program for a single process into a distributed program.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import ronda.jax as rj

DIGITS = pathlib.Path(__file__).parent / "lenet_mnist" / "data"
Params = dict[str, Any]


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Reads a uint8 array from a gzipped file in the MNIST format."""
    data = gzip.decompress(path.read_bytes())
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load_digits(part: str, folder: pathlib.Path = DIGITS) -> tuple[np.ndarray, np.ndarray]:
    """Reads images (N, 28, 28, 1), from -0.5 to 0.5, and labels; `part` is train or t10k."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").astype(np.float32) / 255 - 0.5
    return images[..., None], read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int32)


def first_parameters(key: jax.Array) -> Params:
    """Returns random parameters for LeNet-5."""
    shapes = {
        "conv1": (5, 5, 1, 6),
        "conv2": (5, 5, 6, 16),
        "fc1": (400, 120),
        "fc2": (120, 84),
        "fc3": (84, 10),
    }
    initial = jax.nn.initializers.he_normal()
    keys = dict(zip(shapes, jax.random.split(key, len(shapes))))
    return {
        name: {"w": initial(keys[name], shape), "b": jnp.zeros(shape[-1])}
        for name, shape in shapes.items()
    }


def lenet(params: Params, x: jax.Array) -> jax.Array:
    """Returns the scores of the ten digits, of shape (N, 10)."""
    for name, padding in (("conv1", "SAME"), ("conv2", "VALID")):
        x = jax.lax.conv_general_dilated(
            x, params[name]["w"], (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[name]["b"])
        n, height, width, channels = x.shape
        x = x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
    x = x.reshape(len(x), -1)
    for name in ("fc1", "fc2"):
        x = jax.nn.relu(x @ params[name]["w"] + params[name]["b"])
    return x @ params["fc3"]["w"] + params["fc3"]["b"]


def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(lenet(params, images), labels).mean()


def batches(
    digits: tuple[np.ndarray, np.ndarray], size: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields this rank's part of each batch of an epoch. The order is the same on all ranks."""
    images, labels = digits
    order = np.random.default_rng(seed).permutation(len(labels))
    share = max(size // rj.size(), 1)
    for first in range(0, len(order) - share * rj.size() + 1, share * rj.size()):
        own = order[first + rj.rank() * share :][:share]
        yield images[own], labels[own]


def main() -> None:
    """Trains and prints the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in 16 bits")
    args = parser.parse_args()

    jax.config.update("jax_platforms", "cpu")
    rj.init()
    digits = {part: load_digits(part, args.data) for part in ("train", "t10k")}
    steps = len(digits["train"][1]) // args.batch_size
    rate = optax.exponential_decay(args.lr, steps, 0.6)
    compression = rj.Compression.fp16 if args.fp16_allreduce else rj.Compression.none
    optimizer = rj.DistributedOptimizer(optax.sgd(rate, momentum=0.9), compression=compression)
    params = rj.broadcast_parameters(first_parameters(jax.random.PRNGKey(42 + rj.rank())))
    state = optimizer.init(params)

    @jax.jit
    def train_step(params: Params, state: Any, images: Any, labels: Any) -> tuple[Params, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, images, labels), state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def right_answers(params: Params, images: Any, labels: Any) -> jax.Array:
        return rj.allreduce((lenet(params, images).argmax(1) == labels).mean(), name="accuracy")

    images, labels = (each[rj.rank() :: rj.size()] for each in digits["t10k"])
    for epoch in range(args.epochs):
        for batch in batches(digits["train"], args.batch_size, epoch):
            params, state = train_step(params, state, *batch)
        accuracy = right_answers(params, images, labels)
        if rj.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}")
    rj.shutdown()


if __name__ == "__main__":
    main()
