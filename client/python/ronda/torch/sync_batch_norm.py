# SPDX-License-Identifier: Apache-2.0

"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ronda.torch.mpi_ops import Sum, allgather_async, allreduce, size, synchronize


class SyncBatchNorm(_BatchNorm):
    """torch's BatchNorm for any number of dimensions, with statistics over the batches of all
    ranks.

    The module works on CPUs and GPUs. Every rank must call the module the same number of times.
    Batches may have different sizes, and may be empty. In evaluation mode the module behaves like
    BatchNorm. A module without running statistics (track_running_stats=False) takes the statistics
    of all ranks' batches in evaluation mode too, as in Horovod. A backward pass with
    create_graph=True raises a RuntimeError, because the module has no second derivatives.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes `input`, of shape (N, C, ...)."""
        self._check_input_dim(input)
        uses_batch = self.training or not self.track_running_stats
        if not uses_batch or size() == 1:
            return super().forward(input)
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._track(mean, variance, count)
        normalized: torch.Tensor = output
        return normalized

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        """Updates the running statistics with the unbiased variance, as torch does. If all batches
        are empty, the statistics stay as they are.
        """
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            # The weight is a tensor, so that the host does not wait for a GPU.
            running.lerp_(value.to(running.dtype), (count > 0).to(running.dtype) * momentum)


def _shaped(channels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Reshapes a tensor of shape (C,) for arithmetic with a tensor of shape (N, C, ...)."""
    return channels.view(1, -1, *([1] * (like.dim() - 2)))


def _sum_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    return allreduce(tensor, op=Sum)


def _statistics(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the mean and the biased variance of each channel over all ranks, and the number of
    elements per channel.

    Each rank's count, mean and sum of squared deviations are combined as in Chan, Golub and
    LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", Stanford
    CS-TR-79-773, 1979. The method of Chan et al. loses no digits if the mean is large.
    """
    dims = [0, *range(2, input.dim())]
    count = input.numel() // max(input.size(1), 1)
    wide = input.to(torch.promote_types(input.dtype, torch.float32))
    mean = wide.mean(dims) if count else wide.new_zeros(input.size(1))
    squares = (wide - _shaped(mean, wide)).square_().sum(dims)
    own = torch.cat([wide.new_tensor([count]), mean, squares])
    ranks = synchronize(allgather_async(own.unsqueeze(0)))
    counts, means, sums = ranks.split([1, input.size(1), input.size(1)], dim=1)
    total = counts.sum()
    divisor = total.clamp(min=1)  # all batches may be empty
    mean = (counts * means).sum(0) / divisor
    squares = (sums + counts * (means - mean).square()).sum(0)
    return mean, squares / divisor, total


class _Normalize(torch.autograd.Function):
    """Computes (x - mean) / sqrt(variance + eps) * weight + bias. Also returns mean, variance and
    count.

    Backward sums its terms over the ranks, because the statistics depend on all batches.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, ...]:
        mean, variance, count = _statistics(input)
        scale = torch.rsqrt(variance + eps)
        normal = (input - _shaped(mean, input)) * _shaped(scale, input)
        ctx.save_for_backward(normal, weight, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        output = normal
        if weight is not None and bias is not None:
            output = normal * _shaped(weight, input) + _shaped(bias, input)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        # torch's once_differentiable would not do: torch.autograd.grad() passes by its error.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "SyncBatchNorm has no second derivatives: leave create_graph=True out, or use"
                " torch.nn.BatchNorm2d or another normalization"
            )
        normal, weight, scale, count = ctx.saved_tensors
        gradient = gradients[0].to(normal.dtype)
        dims = [0, *range(2, normal.dim())]
        of_bias, of_weight = gradient.sum(dims), (gradient * normal).sum(dims)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = _sum_over_ranks(torch.cat([of_bias, of_weight])) / count
            mean, slope = sums.split(len(of_bias))
            factor = scale if weight is None else scale * weight
            inner = gradient - _shaped(mean, normal) - normal * _shaped(slope, normal)
            of_input = (inner * _shaped(factor, normal)).to(gradients[0].dtype)
        if weight is None:
            return of_input, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None
