# SPDX-License-Identifier: Apache-2.0

"""DistributedOptimizer, which makes an optimizer reduce its gradients over the ranks."""

from __future__ import annotations

import importlib
from typing import Any

import keras

from ronda import _groups
from ronda._horovod import Average, ProcessSet, global_process_set
from ronda._reduction import of_gradients
from ronda.keras._backends import GradientReduction, backend_name
from ronda.keras.compression import Compression
from ronda.types import ReduceOp, Wire


class _Distributed:
    """A mixin that makes an optimizer class reduce the gradients."""

    _reduce_gradients: GradientReduction

    def __setattr__(self, name: str, value: Any) -> None:
        # The constructor of LossScaleOptimizer sets this attribute of its inner optimizer to None.
        # The constructor of this optimizer has set it before.
        if name == "loss_scale_factor" and value is None and name in self.__dict__:
            raise ValueError(_SCALED_OUTSIDE)
        super().__setattr__(name, value)

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Does the same as the optimizer's own method, with the reduced gradients."""
        grads, variables = list(grads), _variables_of(self, trainable_variables)
        if not self.gradient_accumulation_steps:
            grads = self._reduce_gradients(grads, variables)
        return super().apply(grads, None if trainable_variables is None else variables)

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        # An assignment `self.x = ...` would make Keras treat the variables as the optimizer's own.
        self.__dict__["_variables_in_step"] = list(trainable_variables)
        return super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        # If gradients are accumulated, Keras calls this method with the sum of the gradients over
        # the passes of a step.
        if self.gradient_accumulation_steps:
            grads = self._reduce_accumulated(grads)
        clipped: list[Any] = super()._clip_gradients(grads)
        return clipped

    def _reduce_accumulated(self, grads: list[Any]) -> list[Any]:
        variables = self._variables_in_step
        if backend_name() != "jax":
            return self._reduce_gradients(grads, variables)
        # On JAX, Keras also calls this method in the earlier passes of a step, and discards the
        # result.
        jax = importlib.import_module("jax")
        is_last = (self._iterations + 1) % self.gradient_accumulation_steps == 0
        reduced: list[Any] = jax.lax.cond(
            is_last, lambda: self._reduce_gradients(grads, variables), lambda: list(grads)
        )
        return reduced


_SCALED_OUTSIDE = (
    "the inner optimizer of a LossScaleOptimizer is a DistributedOptimizer, so each rank would"
    " check its own gradients for infinities: pass"
    " DistributedOptimizer(LossScaleOptimizer(optimizer))."
    " With the policy mixed_float16, model.compile() makes a LossScaleOptimizer: set the policy"
    " before you call DistributedOptimizer(), or call model.compile(auto_scale_loss=False)"
)


class _DistributedLossScale:
    """A mixin for LossScaleOptimizer. Gradients are reduced before the optimizer checks for
    infinities, so that all ranks skip the same steps.
    """

    _reduce_gradients: GradientReduction

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Does the same as the optimizer's own method, with the reduced gradients."""
        variables = _variables_of(self, trainable_variables)
        reduced = self._reduce_gradients(list(grads), variables)
        return super().apply(reduced, None if trainable_variables is None else variables)

    def stateless_apply(
        self, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        """Does the same as the optimizer's own method, with the reduced gradients."""
        reduced = self._reduce_gradients(list(grads), _variables_of(self, None))
        return super().stateless_apply(optimizer_variables, reduced, trainable_variables)


def _variables_of(optimizer: Any, given: Any) -> list[Any]:
    """Returns the variables that belong to the gradients in a call to apply(). If the caller passed
    none, returns all variables of the optimizer.
    """
    return list(optimizer._trainable_variables if given is None else given)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes an optimizer reduce its gradients over the ranks before it applies them.

        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())), loss)

    With the dtype policy mixed_float16 the result is a LossScaleOptimizer, as model.compile() would
    make it. A LossScaleOptimizer checks for infinities after the gradients have been reduced. The
    result cannot be the inner optimizer of another LossScaleOptimizer.

    Args:
        optimizer: a Keras optimizer, which is also the result. The optimizer's class is replaced by
            a derived class of the same name, so that saved models can be loaded with and without
            Ronda.
        name: the name of the gradients in reports. Two optimizers that reduce at the same time need
            different names.
        device_dense: accepted for compatibility with Horovod, as is device_sparse; not used.
        compression: the format in which dense gradients are sent, Compression.fp16 or .bf16. Ronda
            adds in 32 bits.
        sparse_as_dense: turns TensorFlow's IndexedSlices into tensors first.
        backward_passes_per_step: the number of batches after which gradients are reduced and
            applied. This number becomes Keras's gradient_accumulation_steps.
        op: Average, Sum, Min, Max, Product or Adasum.
        gradient_predivide_factor: for an average, the part of the divisor that is applied before
            the sum.
        average_aggregated_gradients: if true, gradients of several passes are averaged; if false,
            they are added.
        num_groups: deprecated; use groups.
        groups: lists of variables, or a number of groups. The gradients of a list are reduced
            together, and every other gradient is reduced on its own. With a number, the gradients
            are divided into this many groups of about equal length. None means that all dense
            gradients of a step are reduced together.
        process_set: the ranks that take part.

    Raises:
        ValueError: an argument is wrong, or `optimizer` is distributed already.
    """
    del device_dense, device_sparse
    groups = _groups.chosen(groups, num_groups)
    _groups.check(groups, "variables", lambda each: hasattr(each, "assign"))
    backend_name()
    optimizer = _checked(optimizer)
    factor = _set_passes(optimizer, backward_passes_per_step, average_aggregated_gradients)
    reduce_gradients = GradientReduction(
        name or "DistributedOptimizer",
        of_gradients(op, _wire_of(compression), gradient_predivide_factor, factor, process_set),
        compression,
        sparse_as_dense,
        groups,
    )
    own = type(optimizer)
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    mixin = _DistributedLossScale if scales else _Distributed
    saved = keras.saving.serialize_keras_object(optimizer)
    # Because of the original name, Keras finds the original class when it loads a saved model.
    attributes = {"__module__": saved["module"], "_reduce_gradients": reduce_gradients}
    optimizer.__class__ = type(saved["class_name"], (mixin, own), attributes)
    return optimizer


def _wire_of(compression: Any) -> Wire:
    """Returns the format in which Ronda sends gradients, or NONE if the program's own compressor
    casts them.
    """
    wire = getattr(compression, "wire", None)
    if wire is None and backend_name() != "tensorflow":
        raise ValueError(
            f"compression is {compression!r}: on {backend_name()} it must be Compression.none,"
            " .fp16 or .bf16"
        )
    return Wire.NONE if wire is None else wire


def _checked(optimizer: Any) -> Any:
    if isinstance(optimizer, (_Distributed, _DistributedLossScale)):
        raise ValueError(
            f"the {type(optimizer).__name__} is a DistributedOptimizer already: wrap it once"
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"{type(optimizer).__name__} is no optimizer of Keras {keras.__version__}: pass one of"
            " keras.optimizers"
        )
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if keras.config.dtype_policy().name == "mixed_float16" and not is_scaled:
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _set_passes(optimizer: Any, passes: int, averages: bool) -> float:
    """Sets the number of backward passes per step, and returns a factor for the gradients. Without
    `averages`, the factor turns the average that Keras computes into the sum.
    """
    if passes < 1:
        raise ValueError("backward_passes_per_step must be at least 1")
    if passes == 1:
        return 1.0
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "backward_passes_per_step is not for a LossScaleOptimizer: set"
            " gradient_accumulation_steps of its inner optimizer"
        )
    if optimizer.built:
        raise ValueError(
            "backward_passes_per_step: the optimizer has its variables already: wrap it before the"
            " first step"
        )
    optimizer.gradient_accumulation_steps = passes
    return 1.0 if averages else float(passes)
