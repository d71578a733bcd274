# SPDX-License-Identifier: Apache-2.0

"""A sampler that knows which samples of an epoch have been processed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Any

import torch.utils.data

from ronda.torch._basics import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Distributes the unprocessed samples of the epoch among the ranks.

    Make the sampler an attribute of the TorchState, call record_batch() after each batch, and
    set_epoch() at the end of each epoch. Every rank gets the same number of samples. If necessary,
    some of the first samples are distributed twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """
        Args:
            dataset: must have a constant length.
            shuffle: whether the order changes from epoch to epoch.
            seed: the seed of the order, the same on every rank.
        """
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch with no processed samples."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that every rank has processed a batch of `batch_size` samples."""
        del batch_idx
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch, and the number of its processed samples."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from the epoch and sample in `state_dict`."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Distributes the remaining samples again."""
        self.rank, self.num_replicas = rank(), size()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Returns an iterator over this rank's samples."""
        left = self.remaining_indices
        missing = self.total_size - len(left)
        dealt = left + [left[i % len(left)] for i in range(missing)]
        return iter(dealt[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        """Returns the number of samples that each rank gets."""
        return self.num_samples
