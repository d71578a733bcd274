# SPDX-License-Identifier: Apache-2.0

"""DistributedOptimizer, which makes a program's optimizer reduce its gradients over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ronda import _groups
from ronda.process_sets import ProcessSet, global_process_set, id_of, is_active
from ronda.torch._async_operations import allreduce_async_
from ronda.torch._basics import Adasum, Average, Sum
from ronda.torch._check import StepChecks
from ronda.torch._gradient import Reduction
from ronda.torch._gradients import GradientReducer
from ronda.torch.compression import Compression, Compressor
from ronda.types import ReduceOp

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object

_Named = Iterable[tuple[str, torch.Tensor]] | None


def _name_parameters(
    optimizer: torch.optim.Optimizer, named_parameters: _Named
) -> dict[torch.Tensor, str]:
    """Returns the name of each of the optimizer's parameters.

    Raises:
        ValueError: `named_parameters` does not consist of pairs, has a name twice, or lacks a
            parameter.
    """
    if named_parameters is None:
        return _number_parameters(optimizer.param_groups)
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), as"
            " model.named_parameters() makes them"
        )
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names in named_parameters must be unique: {', '.join(twice)}")
    name_of = {parameter: name for name, parameter in pairs}
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            if parameter not in name_of:
                raise ValueError(
                    f"parameter {j} of group {i}, of shape {tuple(parameter.shape)}, is not in"
                    " named_parameters: pass those of the whole model"
                )
    return name_of


def _number_parameters(groups: Sequence[dict[str, Any]], first: int = 0) -> dict[torch.Tensor, str]:
    return {
        parameter: f"allreduce.noname.{i}.{j}"
        for i, group in enumerate(groups, first)
        for j, parameter in enumerate(group["params"])
    }


def _as_hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps torch from wrapping a step() that calls the step() of the program's optimizer. torch
    has wrapped the latter already, and would run hooks twice after load_state_dict().
    """
    step.hooked = True  # type: ignore[attr-defined]
    return step


class _Distributed(_Base):
    """The base class of distributed optimizers. _Distributed precedes the program's class in the
    list of bases.
    """

    process_set: ProcessSet
    _parameter_names: dict[
        torch.Tensor, str
    ]  # Horovod's name: programs that extend its class read it
    _own_class: type[torch.optim.Optimizer]
    _options: dict[str, Any]  # the other arguments of DistributedOptimizer()
    _checks: StepChecks

    @classmethod
    def _wrap(
        cls,
        optimizer: torch.optim.Optimizer,
        names: dict[torch.Tensor, str],
        options: dict[str, Any],
    ) -> Any:
        """Returns an optimizer of a new class that is derived from `cls` and `optimizer`'s class.

        The result and `optimizer` share their contents, so a learning rate scheduler made for
        `optimizer` also works for the result.

        Raises:
            ValueError: `optimizer` is already a distributed optimizer.
        """
        own = type(optimizer)
        if isinstance(optimizer, _Distributed):
            first = next(iter(optimizer._parameter_names.values()), "")
            raise ValueError(
                f"the {own.__name__} is a DistributedOptimizer already, which reduces the gradient"
                f" of '{first}': wrap it once"
            )
        wrapped_class: Any = type(own.__name__, (cls, own), {"__module__": __name__})
        wrapped = wrapped_class.__new__(wrapped_class)
        wrapped.__dict__.update(optimizer.__dict__)
        wrapped._parameter_names = names
        wrapped._own_class, wrapped._options = own, options
        wrapped._checks = StepChecks(has_own_gradients=options["op"] == Adasum)
        wrapped.process_set = options["process_set"]
        wrapped.__dict__.pop("step", None)  # a scheduler's wrapper around the original's step()
        return wrapped

    def __reduce__(self) -> Any:
        """Turns copies and unpickled objects into distributed optimizers with the same names."""
        named = list(self._parameter_names.items())
        return _distribute, (self._own_class, super().__getstate__(), named, self._options)

    def _average(self, loss: Any, name: str, op: ReduceOp) -> Any:
        """Averages a closure's loss over all ranks, or adds it with op=Sum, so that every rank
        calls the closure the same number of times. Returns a loss that is neither a tensor nor a
        number unchanged.
        """
        is_tensor = isinstance(loss, torch.Tensor)
        if not is_tensor and not isinstance(loss, (float, int)):
            return loss
        own = loss.detach().clone() if is_tensor else torch.tensor(loss, dtype=torch.float64)
        if not own.is_floating_point():
            own = own.to(torch.float64)
        handle = allreduce_async_(own, name=name, op=op, process_set=self.process_set)
        return handle.wait() if is_tensor else handle.wait().item()

    def _check_step(self) -> None:
        if self._checks.is_due():
            own = (p for group in self.param_groups for p in group["params"])
            names = {each: self._parameter_names[each] for each in own}
            self._checks.check(names, self.process_set)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Does the same as the program's optimizer, and names the new parameters."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        self._parameter_names.update(_number_parameters(self.param_groups[-1:], number))


class _DistributedOptimizer(_Distributed):
    """Reduces each gradient as soon as backward has computed it."""

    _reducer: GradientReducer
    _synchronized = False
    _should_synchronize = True

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes after which gradients are reduced."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets the number of backward passes before step(). Call this method between steps."""
        self._passes = self._options["backward_passes_per_step"] = passes
        self._reducer.set_passes(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Does the same as the program's optimizer, and reduces the new parameters' gradients from
        now on.
        """
        super().add_param_group(param_group)
        added = self.param_groups[-1]["params"]
        self._reducer.add({each: self._parameter_names[each] for each in added})

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Does the same as the program's optimizer, and also begins a new step."""
        self._reducer.abandon()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, so that the program can clip or inspect them
        before step().

        If backward has not computed a gradient, its current value is reduced. If this rank lacks a
        gradient that another rank has, this rank contributes zeros.

        Raises:
            HorovodInternalError: a reduction failed. The gradients are then undefined, and a new
                step begins.
            ValueError: the program has changed a gradient during its reduction, or in different
                ways on different ranks.
        """
        self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside this context step() does not call synchronize(), because the program has called
        synchronize() itself.
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @_as_hooked
    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Synchronizes and applies the gradients.

        Args:
            args: positional arguments for the step() of the program's optimizer; `kwargs` are its
                keyword arguments. The first argument or `closure` may be a closure that computes
                the loss and the gradients. The loss and the gradients are reduced after each call,
                so that all ranks get the same values.
        """
        first = args[0] if args else kwargs.get("closure")
        closure = first if callable(first) else None
        is_pending = self._reducer.is_pending()
        if is_pending or (self._should_synchronize and closure is None):
            if self._synchronized and self._should_synchronize:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() after"
                    " synchronize(): the gradients are reduced again",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        if closure is not None:
            closure = self._and_synchronize(closure)
            args, kwargs = (
                ((closure, *args[1:]), kwargs) if args else ((), {**kwargs, "closure": closure})
            )
        result = super().step(*args, **kwargs)
        self._check_step()
        return result

    def _and_synchronize(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            loss = closure()
            if not self._reducer.is_active():
                return loss
            # Another rank may have computed gradients that this rank has not.
            self._reducer.synchronize(takes_old=self._reducer.is_pending())
            op = Sum if self._options["op"] == Sum else Average
            first = next(iter(self._parameter_names.values()), "")
            return self._average(loss, f"loss of the optimizer of {first}", op)

        return call

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Does the same as the program's optimizer. If the program skips a step, zero_grad() ends
        the step.

        Raises:
            AssertionError: a gradient is being reduced.
        """
        name = self._reducer.abolish()
        if name is not None:
            raise AssertionError(
                "zero_grad() between backward() and step() or synchronize(): the gradient of"
                f" '{name}' is being reduced"
            )
        self._synchronized = False
        super().zero_grad(*args, **kwargs)


class _DistributedAdasumOptimizer(_Distributed):
    """Each rank makes its own step, and Adasum combines the ranks' changes to the parameters."""

    _compression: type[Compressor]

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Does nothing, because gradients are not reduced."""

    def synchronize(self) -> None:
        """Does nothing, because step() does everything."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Raises AssertionError, because step() combines the changes."""
        raise AssertionError("skip_synchronize() is not for op=Adasum: step() reduces the changes")
        yield

    @_as_hooked
    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Applies the gradients, and combines the changes. The arguments are those of the step() of
        the program's optimizer.
        """
        if not is_active(self.process_set):
            return super().step(*args, **kwargs)
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        starts = [parameter.detach().clone() for parameter in parameters]
        loss = super().step(*args, **kwargs)
        with torch.no_grad():
            pending = [self._begin(each, start) for each, start in zip(parameters, starts)]
            for parameter, start, (handle, context) in zip(parameters, starts, pending):
                change = self._compression.decompress(handle.wait(), context)
                parameter.copy_(start.add_(change))
        self._check_step()
        return loss

    def _begin(self, parameter: torch.Tensor, start: torch.Tensor) -> tuple[Any, object]:
        short, context = self._compression.compress((parameter - start).contiguous())
        name, process_set = self._parameter_names[parameter], self.process_set
        return allreduce_async_(short, name=name, op=Adasum, process_set=process_set), context


def _check_arguments(op: ReduceOp, predivide: float, passes: int, groups: _groups.Groups) -> None:
    if predivide != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=Average: leave it out")
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be at least 1")
    _groups.check(groups, "torch.Tensor", lambda each: isinstance(each, torch.Tensor))


def _reducer(
    optimizer: torch.optim.Optimizer, names: dict[torch.Tensor, str], options: dict[str, Any]
) -> GradientReducer:
    divides = options["op"] == Average
    predivide = options["gradient_predivide_factor"]
    reduction = Reduction(
        op=options["op"],
        prescale=1.0 / predivide if divides else 1.0,
        postscale=predivide if divides else 1.0,
        compression=options["compression"],
        process_set=options["process_set"],
    )
    own = {p: names[p] for group in optimizer.param_groups for p in group["params"]}
    return GradientReducer(
        own,
        reduction,
        options["backward_passes_per_step"],
        options["groups"] or None,
        options["sparse_as_dense"],
    )


def _distribute(
    own_class: type[torch.optim.Optimizer],
    state: dict[str, Any],
    named: list[tuple[torch.Tensor, str]],
    options: dict[str, Any],
) -> Any:
    """Returns a copy of a distributed optimizer."""
    optimizer: Any = own_class.__new__(own_class)
    optimizer.__setstate__(state)
    return DistributedOptimizer(optimizer, [(name, each) for each, name in named], **options)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: _Named = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: _groups.Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that gradients are reduced over the ranks while backward computes other
    gradients.

    step() waits for the reduced gradients, and applies them. To inspect or clip the reduced
    gradients:

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    Args:
        optimizer: an optimizer with the interface of torch.optim. The result is of a class derived
            from the optimizer's class, and shares the optimizer's state.
        named_parameters: pairs of names and parameters, as from model.named_parameters(); the same
            on every rank.
        compression: with Compression.fp16, .bf16 or .fp8 the gradients are sent in this format and
            added in 32 bits. fp8 also adds its rounding errors to the next step. The program's own
            Compressor is called for each gradient.
        backward_passes_per_step: how many times backward adds to the gradients before step(). The
            sum over the passes is reduced once.
        op: Average, Sum, or Adasum, which combines the ranks' changes to the parameters. Min, Max
            and Product are also possible.
        gradient_predivide_factor: for an average, the part of the divisor that is applied before
            the sum.
        num_groups: deprecated; use groups.
        groups: lists of parameters whose gradients are reduced together, or the number of such
            lists, of about equal length. With None or 0, each gradient is reduced when it is ready,
            as are sparse gradients, and all gradients with the program's own Compressor.
        sparse_as_dense: if true, sparse gradients are reduced as dense gradients.
        process_set: the ranks that take part.

    Raises:
        ValueError: an argument is wrong.
    """
    groups = _groups.chosen(groups, num_groups)
    _check_arguments(op, gradient_predivide_factor, backward_passes_per_step, groups)
    names = _name_parameters(optimizer, named_parameters)
    id_of(process_set)
    options = {
        "compression": compression,
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    if op == Adasum:
        wrapped = _DistributedAdasumOptimizer._wrap(optimizer, names, options)
        wrapped._compression = compression
        return wrapped
    wrapped = _DistributedOptimizer._wrap(optimizer, names, options)
    wrapped._passes = backward_passes_per_step
    wrapped._reducer = _reducer(optimizer, names, options)
    return wrapped
