# SPDX-License-Identifier: Apache-2.0

"""The class Work, which is the result of a torch.distributed collective, and owns the handles of
Ronda's operations.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d
from torch.futures import Future

from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import DeadlineError, InvalidArgumentError
from ronda.torch import _tensors
from ronda.torch.c10d import _versions
from ronda.torch.c10d._typed_future import TypedPromise

_NO_TIMEOUT = timedelta(0)

# These threads complete the futures, and so run the program's callbacks. A callback may wait for
# another collective's future, as PowerSGD's callbacks do. Another thread then completes that one.
_completers = concurrent.futures.ThreadPoolExecutor(64, "ronda-c10d")


def _value_or_error(future: Any) -> Any:
    """Returns the value of a future. If the value is an exception, raises it, so that C++ code gets
    an error.
    """
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


_Base: Any = _distributed_c10d.Work


class Work(_Base):  # type: ignore[misc]
    """A collective in flight. A Work has Ronda operations, and a function to call after they have
    ended.

    Any thread may wait for the Work, or get its future, any number of times.

    Thread-safety: all methods may be called from any thread.
    """

    def __init__(
        self,
        what: str,
        handles: Sequence[int],
        tensors: list[torch.Tensor],
        finish: Callable[[], None] | None = None,
        *,
        number: int = 0,
        process_set: int | None = None,
        source: Callable[[], int] | None = None,
        parts: Sequence[Work] = (),
        ended: Callable[[], None] | None = None,
        error: Exception | None = None,
        inputs: Sequence[torch.Tensor] = (),
        drops_early: bool = False,
    ) -> None:
        """
        Args:
            what: the name of the collective, for error texts.
            handles: the handles of the operations. The Work releases the handles.
            tensors: the result, which result() and the future return.
            finish: called once, after the operations have ended. Copies results to the caller's
                tensors.
            number: the number of the collective in its group.
            process_set: the process set of the collective, or None for a message.
            source: returns the rank in the group that sent the received tensor. Called after the
                operations have ended.
            parts: the Works that own the handles, if this Work does not own them. This Work ends
                only through its parts: `finish` ends them, also after an error, and raises their
                error.
            ended: called once, when the collective and `finish` have ended, with or without an
                error.
            error: the reason why the collective has already failed.
            inputs: the tensors that the collective reads. The collective runs on the device of
                `tensors`, or of `inputs` if this rank has no result.
            drops_early: whether the Work drops the tensors of a GPU when the stream of the
                submission waits for the collective. Otherwise the operation keeps them until the
                GPU has carried it out, so the time at which torch gets their memory back differs
                between the ranks.
        """
        super().__init__()
        self._what = what
        self.handles = handles
        self._tensors = tensors
        self._finish = finish
        self._number = number
        self.process_set = process_set
        self._source = source
        self._parts = parts
        self._ended = ended
        self._lock = threading.Lock()
        self._is_over = error is not None or not (handles or parts)
        # For tensors on a GPU, _origin is the stream of the submission, and _finished is an event
        # after _finish().
        used = [*tensors, *inputs]
        self._device = used[0].device if used else None
        self._origin = _stream(used)
        for part in parts:
            if self._origin is None:
                self._device, self._origin = part._device, part._origin
        self._finished: torch.cuda.Event | None = None
        self._drops_early = drops_early
        self._is_captured = False  # whether _finished belongs to a CUDA graph, and is not queried
        self._error = error
        self._future: Future[Any] | None = None
        self._promise: Any = None  # completes the future; None when the future is complete

    def __del__(self, release: Callable[[int], None] = native.release) -> None:
        self._release(release)

    def _release(self, release: Callable[[int], None]) -> None:
        handles, self.handles = self.handles, ()
        if not self._parts:
            for handle in handles:
                release(handle)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Blocks until the collective has ended. For tensors on a GPU, makes the current stream
        wait, and does not block.

        Args:
            timeout: the longest time to wait. With zero or less, only the group's timeout limits
                the wait.

        Raises:
            RondaError: the collective has failed.
            DeadlineError: the timeout has passed. The collective is still in flight.
        """
        if self._origin is not None:
            self._order_current_stream(timeout.total_seconds())
        elif not self._is_over:
            self._synchronize(timeout.total_seconds())
            self._conclude()
        if self._error is not None:
            raise self._error
        return True

    def settle(self) -> None:
        """Waits until the collective has ended. Does not raise the collective's error; wait() does.

        Raises:
            InvalidArgumentError: the current stream is being captured, and the collective is not
                part of the graph.
        """
        if not self._is_over:
            self._synchronize(0.0)
            self._conclude()

    def _order_current_stream(self, timeout_s: float = 0.0) -> None:
        """Makes the current stream of the GPU wait for the collective."""
        self._synchronize(timeout_s)
        self._conclude()
        if self._finished is not None:
            self._finished.wait(torch.cuda.current_stream(self._device))

    def _synchronize(self, timeout_s: float) -> None:
        # The stream of the submission also waits, because torch reuses the memory of dropped
        # tensors for later work on this stream.
        streams = [] if self._origin is None else [self._origin, _tensors.current_stream()]
        limit_s = timeout_s if timeout_s > 0 else -1.0
        for part in self._parts:
            part._synchronize(timeout_s)
        for handle in () if self._parts else self.handles:
            try:
                if streams:
                    is_over = native.synchronize_on_stream(handle, streams[0], limit_s)
                    is_over = is_over and native.synchronize_on_stream(handle, streams[1], limit_s)
                else:
                    is_over = native.synchronize(handle, limit_s)
            except RuntimeError as error:
                if streams and _is_refused_in_capture(error):
                    raise  # the collective itself has not failed
                is_over = True
                self._error = self._error or in_torchs_words(error)
            if not is_over:
                raise DeadlineError(f"{self._what} has not ended within {timeout_s:g} s")
        if self._drops_early and streams and self._error is None:
            for handle in self.handles:
                native.drop_buffers(handle)

    def _conclude(self) -> None:
        """Called when the operations have ended, or when the current stream waits for them."""
        with self._lock:
            if self._is_over:
                return
            try:
                if self._error is None and self._finish is not None:
                    self._finish()
                    if self._origin is not None:
                        stream = torch.cuda.current_stream(self._device)
                        self._finished = stream.record_event()
                        self._is_captured = torch.cuda.is_current_stream_capturing()
            except Exception as error:
                self._error = error
            self._finish = None
            self._is_over = True
            if self._ended is not None:
                self._ended()
            promise, self._promise = self._promise, None
        IN_FLIGHT.forget(self)
        if promise is not None:
            # _keep_promise() is called outside of the lock, because it calls the program's
            # callbacks.
            self._keep_promise(promise)

    def synchronize(self) -> None:
        """Does the same as wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the collective has ended, with success or failure. Never waits."""
        if self._origin is not None:
            return self._is_done_on_device()
        if not self._is_over and native.poll_all(self.handles):
            self._synchronize(0.0)
            self._conclude()
        return self._is_over

    poll = is_completed

    def _is_done_on_device(self) -> bool:
        if not native.poll_all(self.handles):
            return False
        if not self._is_over:
            if torch.cuda.is_current_stream_capturing():
                return False  # the graph would copy the results at each launch
            try:
                self._order_current_stream()
            except InvalidArgumentError:
                return False  # another thread captures the stream of the submission
        return self._finished is None or self._is_captured or self._finished.query()

    def is_success(self) -> bool:
        """Returns whether the collective has ended without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Returns the error of the collective, if it has ended with an error."""
        return self._error if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """Returns the output tensors."""
        return self._tensors

    def source_rank(self) -> int:
        """Returns the rank in the group that sent the received tensor; -1 for other collectives."""
        return -1 if self._source is None else self._source()

    _source_rank = source_rank

    def _get_sequence_number(self) -> int:
        return self._number

    def forget_tensors(self) -> None:
        """Releases the tensors. REQUIRES: the collective has ended, and its result is not read
        later.
        """
        self._release(native.release)
        self._tensors, self._parts, self._finished = [], (), None

    def get_future(self) -> Future[Any]:
        """Returns a future for result(). On a GPU, a stream that waits for the future may use the
        value.
        """
        if _versions.answer(self):
            return Future()
        with self._lock:
            first, is_over = self._future is None, self._is_over
            if first:
                self._start_future()
            if is_over:
                promise, self._promise = self._promise, None
        if is_over and promise is not None:
            if self._origin is not None:
                self._order_current_stream()  # the future's value is there after that stream's work
            self._keep_promise(promise)
        elif first and self._origin is not None and torch.cuda.is_current_stream_capturing():
            # Ronda's threads do not take part in a CUDA graph capture, so this thread makes its
            # stream wait now, and completes the future.
            self._order_current_stream()
        elif first:
            self._advance(0, 0, None)
        assert self._future is not None
        return self._future

    def _keep_promise(self, promise: Any) -> None:
        promise.set_result(self._tensors if self._error is None else self._error)

    def _start_future(self) -> None:
        make_stream: Any = torch.cuda.Stream
        devices: Any = [self._device] if self._origin is not None else None
        self._side_stream = make_stream(devices[0]) if devices else None
        if not devices and self._tensors and self._tensors[0].dtype is torch.float16:
            # The caller may be DDP's built-in FP16 hook, which needs a typed future.
            self._promise = TypedPromise(self._tensors)
            self._future = self._promise.future
        else:
            self._promise = Future(devices=devices)
            self._future = self._promise.then(_value_or_error)

    def _advance(self, index: int, status: int, message: str | None) -> None:
        """Called when the operations before `index` have ended, the last of them with `status`."""
        if status != 0 and not self._parts:
            self._error = self._error or in_torchs_words(native.error(status, message or ""))
        if index == len(self.handles):
            try:
                _completers.submit(self._conclude_on_side_stream)
            except RuntimeError:  # the interpreter ends
                self._conclude_on_side_stream()
            return

        def next_one(status: int, message: str | None) -> None:
            self._advance(index + 1, status, message)

        if self._side_stream is None:
            native.on_completion(self.handles[index], next_one)
        else:
            native.synchronize_on_stream_async(
                self.handles[index], self._side_stream.cuda_stream, next_one
            )

    def _conclude_on_side_stream(self) -> None:
        with self._on_side_stream():
            self._conclude()

    def _on_side_stream(self) -> Any:
        """Returns a context manager for Ronda's threads that makes the side stream current. It
        leaves the thread on the stream's device, because a switch back would allocate memory on the
        earlier device.
        """
        if self._side_stream is not None:
            torch.cuda.set_device(self._side_stream.device)
        return torch.cuda.stream(self._side_stream)


def in_torchs_words(error: Exception) -> Exception:
    """Adds "timeout" to the error of a deadline, because programs written for torch look for this
    word.
    """
    if type(error) is DeadlineError:
        return DeadlineError(f"the timeout is over: {error}")
    return error


def _is_refused_in_capture(error: RuntimeError) -> bool:
    """Returns whether the error means that a stream is being captured into a CUDA graph, and so
    cannot wait for a collective outside the graph.
    """
    return isinstance(error, InvalidArgumentError) and "is being captured" in str(error)


def _stream(tensors: list[torch.Tensor]) -> int | None:
    return _tensors.stream(tensors[0]) if tensors else None
