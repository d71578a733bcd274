# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits in a training loop of TensorFlow 2, trained by any number of ranks.

    rondarun -np 2 python3 examples/tensorflow_mnist.py

Ronda appears only in the import. With `import horovod.tensorflow as hvd` this is a Horovod program.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import numpy as np
import ronda.tensorflow as hvd
import tensorflow as tf

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


class LeNet(tf.Module):
    """LeNet-5 with rectifiers, and a momentum for each of its variables."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(5, 5, 1, 6), (5, 5, 6, 16), (400, 120), (120, 84), (84, 10)]
        scales = [(2 / np.prod(shape[:-1])) ** 0.5 for shape in shapes]
        self.weights = [
            tf.Variable(tf.random.normal(shape, stddev=scale))
            for shape, scale in zip(shapes, scales)
        ]
        self.biases = [tf.Variable(tf.zeros(shape[-1])) for shape in shapes]
        self.momenta = [tf.Variable(tf.zeros_like(each)) for each in self.weights + self.biases]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the scores of the ten digits, shape (N, 10), for images (N, 28, 28, 1)."""
        for i, padding in enumerate(("SAME", "VALID")):
            x = tf.nn.conv2d(x, self.weights[i], 1, padding) + self.biases[i]
            x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
        x = tf.reshape(x, [-1, 400])
        for i in (2, 3):
            x = tf.nn.relu(x @ self.weights[i] + self.biases[i])
        return x @ self.weights[4] + self.biases[4]


@tf.function(reduce_retracing=True)
def train_step(model: LeNet, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> None:
    """Updates the variables with one step of SGD with momentum."""
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        loss = tf.reduce_mean(losses)
    tape = hvd.DistributedGradientTape(tape)
    variables = model.weights + model.biases
    for variable, momentum, gradient in zip(
        variables, model.momenta, tape.gradient(loss, variables)
    ):
        momentum.assign(0.9 * momentum + gradient)
        variable.assign_sub(rate * momentum)


def main() -> None:
    """Trains and prints the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    hvd.init()
    tf.random.set_seed(42 + hvd.rank())
    images, labels = load_digits("train", args.data)
    batch = max(args.batch_size // hvd.size(), 1)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shard(hvd.size(), hvd.rank())
    data = data.shuffle(len(images)).batch(batch).take(len(images) // hvd.size() // batch)
    model = LeNet()
    hvd.broadcast_variables(model.variables, root_rank=0)
    test_images, test_labels = load_digits("t10k", args.data)
    for epoch in range(args.epochs):
        rate = tf.constant(args.lr * 0.6**epoch)
        for batch_images, batch_labels in data:
            train_step(model, batch_images, batch_labels, rate)
        right = tf.argmax(model(test_images), 1, tf.int32) == test_labels
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {tf.reduce_mean(tf.cast(right, tf.float32)):.4f}")


if __name__ == "__main__":
    main()
