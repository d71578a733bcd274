# SPDX-License-Identifier: Apache-2.0

"""apex.parallel: DistributedDataParallel, Reducer and synchronized batch normalization."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ronda._in_flight import first_conflict
from ronda._library import native
from ronda.errors import RondaError
from ronda.torch import _tensors
from ronda.torch._hooks import (
    call_after_accumulation,
    call_in_outer_pass,
    is_nested,
    make_sharing_test,
    separate,
)
from ronda.torch.functions import broadcast_parameters
from ronda.torch.sync_batch_norm import SyncBatchNorm
from ronda.types import ReduceOp

__all__ = ["DistributedDataParallel", "Reducer", "SyncBatchNorm", "convert_syncbn_model"]


class _Sums:
    """Sums tensors over the ranks, and keeps track of the sums in flight."""

    def __init__(self, prefix: str, factor: float = 1.0, averages: bool = True) -> None:
        """
        Args:
            prefix: the beginning of the operations' names.
            factor: divides the tensors before the sum, and multiplies an average after the sum.
            averages: whether a sum is divided by the number of ranks at the time of the sum.
        """
        self._prefix = prefix
        postscale = factor if averages else 1.0
        self._scales: dict[str, Any] = {"prescale": 1.0 / factor, "postscale": postscale}
        self._op = ReduceOp.AVERAGE if averages else ReduceOp.SUM
        self._under_way: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_under_way": []}

    def submit(self, name: str, tensor: torch.Tensor, sends_copy: bool = False) -> None:
        """Starts to sum `tensor` in place, or a copy of it, which wait() copies back. The sum is
        complete after wait().
        """
        dense = tensor.detach().contiguous()
        if sends_copy and dense.data_ptr() == tensor.data_ptr():
            dense = dense.clone()
        arguments = _tensors.allreduce_arguments(
            f"{self._prefix}/{name}", dense, dense, int(self._op), **self._scales
        )
        self._under_way.append((native.allreduce_async(*arguments), tensor, dense))

    def wait(self) -> None:
        """Waits for the sums that have been started. On a GPU only the current stream waits.

        Raises:
            RondaError: the first error of a sum. By then, all sums have ended.
        """
        under_way, self._under_way = self._under_way, []
        try:
            streams = [_tensors.stream(tensor) for _, tensor, _ in under_way]
            native.synchronize_all([each[0] for each, on in zip(under_way, streams) if on is None])
            for (handle, tensor, dense), stream in zip(under_way, streams):
                if stream is not None:
                    native.synchronize_on_stream(handle, stream)
                if tensor.data_ptr() != dense.data_ptr():
                    tensor.detach().copy_(dense)
        finally:
            for handle, _, _ in under_way:
                native.release(handle)


def _separate(parameters: list[nn.Parameter]) -> None:
    """Copies gradients that share memory with another gradient, because sums are made in place."""
    spans = [[_tensors.span(each.grad, True)] for each in parameters if each.grad is not None]
    while (conflict := first_conflict(spans)) is not None:
        later = conflict[1]
        parameters[later].grad = copy = parameters[later].grad.clone()
        spans[later] = [_tensors.span(copy, True)]


def _check_job() -> None:
    if not native.is_initialized():
        raise RuntimeError(
            "the process has joined no job: call ronda.init(), or "
            "torch.distributed.init_process_group('ronda'), first"
        )


# Advice for arguments that torch's DistributedDataParallel has, and that Apex also rejects.
_OF_TORCH = {
    "device_ids": "move the module to its device first: model.to(device)",
    "output_device": "outputs stay on the module's device",
    "dim": "a batch is not divided: give each rank its own",
    "broadcast_buffers": "buffers are rank 0's at first, then each rank's own; "
    "convert_syncbn_model() keeps those of batch normalization equal",
    "init_sync": "the constructor always gives the module rank 0's parameters and buffers",
    "process_group": "the gradients are those of all ranks",
    "bucket_cap_mb": "RONDA_FUSION_THRESHOLD says how much is fused",
    "find_unused_parameters": "a parameter that backward does not reach counts as zeros; "
    "delay_allreduce=True leaves it out",
    "check_reduction": "nothing has to be checked",
    "gradient_as_bucket_view": "gradients are reduced in place already",
    "static_graph": "steps that repeat themselves are found out",
    "delay_all_reduce_named_params": "delay_allreduce=True delays all of them",
    "param_to_hook_all_reduce": "delay_allreduce=True delays all of them",
    "mixed_precision": "ronda.apex.amp.initialize() has mixed precision",
    "device_mesh": "the gradients are those of all ranks",
    "skip_all_reduce_unused_params": "delay_allreduce=True does so",
}


def _refuse(name: str) -> TypeError:
    remedy = _OF_TORCH.get(name)
    if remedy is None:
        return TypeError(f"apex's DistributedDataParallel has no argument {name!r}")
    return TypeError(
        f"{name} is an argument of torch's DistributedDataParallel, not of apex's: leave it out "
        f"({remedy}), or use torch.nn.parallel.DistributedDataParallel over "
        "init_process_group('ronda')"
    )


class DistributedDataParallel(nn.Module):
    """Averages the gradients of a module over the ranks while backward computes them.

    When the constructor returns, the module has rank 0's parameters and buffers. When backward
    returns, the gradients are averages. Ronda itself fuses small gradients.
    """

    _count = 0

    def __init__(
        self,
        module: nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        shared_param: bool | None = None,
        allreduce_trigger_params: list[torch.Tensor] | None = None,
        retain_allreduce_buffers: bool = False,
        allreduce_always_fp32: bool = False,
        num_allreduce_streams: int = 1,
        allreduce_communicators: Any = None,
        gradient_average: bool = True,
        gradient_predivide_factor: float = 1.0,
        gradient_average_split_factor: float | None = None,
        prof: bool = False,
        **others: Any,
    ) -> None:
        """
        Args:
            module: the same on every rank.
            message_size: ignored, because RONDA_FUSION_THRESHOLD sets how much is fused.
            delay_allreduce: if true, gradients are reduced after backward has computed them all,
                and missing gradients are skipped. If false, each gradient is reduced at once, and a
                gradient that backward did not compute counts as zeros.
            shared_param, allreduce_trigger_params, num_allreduce_streams, prof: ignored, because
                any parameters may be shared, and nothing needs tuning.
            retain_allreduce_buffers: must be False, because no buffers exist besides the gradients.
            allreduce_always_fp32: ignored, because sums are always computed in fp32.
            allreduce_communicators: must be None.
            gradient_average: divide by the number of ranks.
            gradient_predivide_factor: gradients are divided by this factor before the sum, and by
                the rest of the divisor afterwards.
            gradient_average_split_factor: Apex's older name of gradient_predivide_factor.
            others: must be empty. For arguments of torch's class, the error text suggests an
                alternative.

        Raises:
            NotImplementedError: an argument does not have its required value.
            RuntimeError: the process has not joined a job.
            TypeError: the argument does not exist, or device_ids was passed in the position of
                message_size.
        """
        super().__init__()
        for name in others:
            raise _refuse(name)
        if not isinstance(message_size, (int, float)):
            raise _refuse("device_ids")  # torch's second argument
        if retain_allreduce_buffers or allreduce_communicators is not None:
            raise NotImplementedError(
                "retain_allreduce_buffers and allreduce_communicators are not there: gradients are "
                "reduced in place"
            )
        _check_job()
        self.module = module
        self.delay_allreduce = delay_allreduce
        factor = gradient_average_split_factor or gradient_predivide_factor
        self._sums = _Sums(
            f"apex/{DistributedDataParallel._count}",
            factor,
            gradient_average,
        )
        DistributedDataParallel._count += 1
        self._is_enabled = True
        self._is_queued = False
        self._submitted: set[str] = set()
        self._shared: set[str] = set()  # the gradients of which copies are summed
        broadcast_parameters(module.state_dict(), root_rank=0)
        self._install_hooks()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_nodes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Completes a copy of an object, made by a deep copy or by unpickling. The copy averages
        gradients like the original, with the same tensor names.
        """
        super().__setstate__(state)
        self._is_queued = False
        self._submitted, self._shared = set(), set()
        self._install_hooks()

    def _install_hooks(self) -> None:
        self._nodes: list[Any] = []  # the objects that own the hooks
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                self._install_hook(name, parameter)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module's forward()."""
        if (self._is_queued or self._submitted) and not is_nested():
            self._abandon()
        return self.module(*args, **kwargs)

    def _abandon(self) -> None:
        """Ends a backward pass that an exception has ended before _finish(). Waits for its sums,
        and ignores their errors.
        """
        self._is_queued = False
        self._submitted.clear()
        self._shared.clear()
        with contextlib.suppress(RondaError):
            self._sums.wait()

    def enable_allreduce(self) -> None:
        """Makes backward passes average gradients again."""
        self._is_enabled = True

    def disable_allreduce(self) -> None:
        """From now on, backward passes only add to this rank's gradients, without averaging."""
        self._is_enabled = False

    def _install_hook(self, name: str, parameter: torch.Tensor) -> None:
        is_shared = make_sharing_test()
        kept: list[weakref.ref[Any]] = []

        def hook(*arguments: Any) -> None:
            value: Any = parameter.grad
            if value.layout is torch.strided and is_shared(_tensors.storage(value), arguments):
                if separate(parameter, kept):
                    self._shared.add(name)
            self._take(name, parameter)

        self._nodes += call_after_accumulation(parameter, hook)

    def _take(self, name: str, parameter: torch.Tensor) -> None:
        """The hook that autograd calls when backward has added to a gradient."""
        if not self._is_enabled:
            return
        self._queue()
        if not self.delay_allreduce:
            self._submit(name, parameter)

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)

    def _submit(self, name: str, parameter: torch.Tensor) -> None:
        if name in self._submitted:
            raise RuntimeError(
                f"{name} got two gradients in one backward, for instance as part of a checkpointed "
                "segment: pass delay_allreduce=True"
            )
        self._submitted.add(name)
        assert parameter.grad is not None
        self._sums.submit(name, parameter.grad, sends_copy=name in self._shared)

    def _finish(self) -> None:
        """Submits the remaining gradients, and waits for all sums. Autograd calls this at the end
        of backward. At the end of a nested pass the outer pass may compute further gradients.
        """
        if is_nested():
            self._is_queued = False
            call_in_outer_pass(self._queue)
            return
        try:
            for name, parameter in self.module.named_parameters():
                if not parameter.requires_grad or name in self._submitted:
                    continue
                if parameter.grad is None and not self.delay_allreduce:
                    parameter.grad = torch.zeros_like(parameter)
                if parameter.grad is not None:
                    self._submit(name, parameter)
        finally:
            self._is_queued = False
            self._submitted.clear()
            self._shared.clear()
            self._sums.wait()


class Reducer:
    """Averages gradients when the program calls reduce(). A Reducer is for training loops that
    decide themselves when to average gradients.
    """

    _count = 0

    def __init__(self, module_or_grads_list: nn.Module | Iterable[torch.Tensor]) -> None:
        """
        Args:
            module_or_grads_list: a module, or tensors in the same order on each rank. For a module,
                the constructor copies rank 0's parameters to all ranks, and reduce() averages the
                module's gradients. For tensors, reduce() averages the tensors.
        """
        _check_job()
        self._sums = _Sums(f"apex/reducer/{Reducer._count}")
        Reducer._count += 1
        self.module = module_or_grads_list if isinstance(module_or_grads_list, nn.Module) else None
        if self.module is not None:
            broadcast_parameters(self.module.state_dict(), root_rank=0)
        else:
            self.grads = list(module_or_grads_list)  # type: ignore[arg-type]

    def reduce(self) -> None:
        """Averages in place. For a module, averages the gradients that exist."""
        if self.module is not None:
            named = [each for each in self.module.named_parameters() if each[1].grad is not None]
            _separate([parameter for _, parameter in named])
            for name, parameter in named:
                assert parameter.grad is not None
                self._sums.submit(name, parameter.grad)
        else:
            for index, tensor in enumerate(self.grads):
                self._sums.submit(str(index), tensor)
        self._sums.wait()


def convert_syncbn_model(
    module: nn.Module, process_group: None = None, channel_last: bool = False
) -> nn.Module:
    """Replaces every BatchNorm in `module` with a SyncBatchNorm that has the same parameters and
    statistics.

    Args:
        module: the function changes the module, and returns it unless it is a BatchNorm itself.
        process_group: must be None, because the statistics always cover all ranks.
        channel_last: ignored, because every memory format works.

    Raises:
        NotImplementedError: a process group was passed.
    """
    if process_group is not None:
        raise NotImplementedError("SyncBatchNorm takes the statistics of all ranks: pass no group")
    for name, child in module.named_children():
        setattr(module, name, convert_syncbn_model(child))
    if not isinstance(module, _BatchNorm) or isinstance(module, SyncBatchNorm):
        return module
    converted = SyncBatchNorm(
        module.num_features,
        module.eps,
        module.momentum,
        module.affine,
        module.track_running_stats,
    )
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(converted, name, getattr(module, name))
    converted.train(module.training)
    return converted
