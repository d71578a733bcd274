# SPDX-License-Identifier: Apache-2.0

"""Fits a line to points that are spread over the ranks, by gradient descent with only NumPy.

rondarun -np 4 python3 examples/numpy_allreduce.py
"""

import numpy as np
import ronda


def main():
    ronda.init()
    # This rank's 1,000 points, on the line y = 3 x + 2.
    x = np.random.default_rng(seed=ronda.rank()).uniform(-1, 1, 1000)
    y = 3 * x + 2
    weights = ronda.broadcast(np.random.default_rng().normal(size=2))  # rank 0's, for all ranks
    for _ in range(200):
        error = weights[0] * x + weights[1] - y
        gradient = np.array([np.mean(error * x), np.mean(error)])
        weights -= 0.5 * ronda.allreduce(gradient, name="gradient")  # the average over the ranks
    if ronda.rank() == 0:
        print(f"y = {weights[0]:.2f} x + {weights[1]:.2f}, from {1000 * ronda.size()} points")
    ronda.shutdown()


if __name__ == "__main__":
    main()
