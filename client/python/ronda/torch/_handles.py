# SPDX-License-Identifier: Apache-2.0

"""The handles that the *_async functions return, and the functions poll() and synchronize()."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import RondaError
from ronda.handles import SoleOwner
from ronda.torch import _tensors
from ronda.torch._watch import Watch


class Handle(SoleOwner):
    """One or several operations that end together, and the function that returns their result.

    Programs only pass a handle to poll() and synchronize(). Calling a handle does the same as
    synchronize(), as for Horovod's sparse_allreduce_async(). A handle that is destroyed releases
    its operations.
    """

    __slots__ = ("_finish", "_ids", "_stream", "_watch")

    def __init__(
        self,
        ids: list[int],
        stream: int | None,
        finish: Callable[[list[int]], Any],
        watch: Watch | None = None,
    ) -> None:
        """Takes ownership of the native handles.

        Args:
            ids: native handles; at least one.
            stream: the stream on which the operations were submitted; None for host memory.
            finish: returns the result of `ids`, after the operations have ended or the current
                stream waits for them.
            watch: in the checked mode, the Watch of the tensors that the operations use.
        """
        self._ids: list[int] | None = ids
        self._stream = stream
        self._finish = finish
        self._watch = watch

    def poll(self) -> bool:
        """Returns whether wait() would return at once."""
        return self._ids is None or native.poll_all(self._ids)

    def wait(self) -> Any:
        """Waits and returns the result, or None if an earlier call has returned the result. For
        tensors on a GPU the current stream waits, not the host.

        Raises:
            RondaError: the error of the first operation that failed.
            ValueError: in the checked mode, the program has changed a tensor during the operation.
        """
        ids, self._ids = self._ids, None
        if ids is None:
            return None
        try:
            if self._stream is None:
                native.synchronize_all(ids)
            else:
                self._order(ids, self._stream)
            if self._watch is not None:
                self._watch.check()
            return self._finish(ids)
        finally:
            IN_FLIGHT.forget(self)
            self._give_back(ids)

    def _order(self, ids: list[int], origin: int) -> None:
        """Makes the current stream wait for the operations, because later work on it uses their
        tensors.

        The stream on which the operations were submitted also waits, because torch reuses the
        memory of dropped tensors for later work on that stream.
        """
        self._stream = _tensors.current_stream()
        for stream in {origin, self._stream}:
            for id in ids:
                native.synchronize_on_stream(id, stream)

    __call__ = wait

    def settle(self) -> None:
        """Waits until the operations have ended. Does not raise their error; wait() does."""
        ids = self._ids
        if ids is not None:
            with contextlib.suppress(RondaError):
                native.synchronize_all(ids)

    def _give_back(
        self,
        ids: list[int],
        # The functions are default arguments, because `native` no longer exists at interpreter
        # exit.
        release: Callable[[int], None] = native.release,
        release_on_stream: Callable[[int, int], None] = native.release_on_stream,
    ) -> None:
        for id in ids:
            if self._stream is None:
                release(id)
            else:
                release_on_stream(id, self._stream)

    def __del__(self) -> None:
        if self._ids is not None:
            self._give_back(self._ids)


def poll(handle: Handle) -> bool:
    """Returns whether synchronize() would return at once.

    Args:
        handle: from an *_async function.
    """
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits until an operation has ended.

    For tensors on a GPU the current stream waits, not the host.

    Args:
        handle: from an *_async function.

    Returns:
        The result of the function without _async, or None if the handle was synchronized before.

    Raises:
        HorovodInternalError: the operation failed. The text names the tensor and the rank.
    """
    return handle.wait()
