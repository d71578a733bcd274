# SPDX-License-Identifier: Apache-2.0

"""Implements ronda.run(). The functions before main() run in the program; main() and the functions
after it run in a rank.

The program listens on a socket. Each rank connects, receives the call, and sends back the outcome.
The connection stays open until the job has ended, so that a rank notices when the program ends, and
then ends itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import pickle
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import IO, Any, NamedTuple

from ronda import _env, job, objects
from ronda._own_address import own_address
from ronda.errors import InvalidArgumentError, PeerFailedError

# Environment variables of the ranks: the address on which the program listens, and the key that
# proves that a rank belongs to the program.
_ADDRESS = "_RUN_ADDRESS_OF_RONDA"
_KEY = "_RUN_KEY_OF_RONDA"

_AUTHENTICATION_SECONDS = 60

_REMEDY = "install cloudpickle (pip install ronda[run]), or take functions from a module"


class Call(NamedTuple):
    """The function call that each rank makes."""

    func: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class _Outcome(NamedTuple):
    """How a rank's call has ended. `size` is the number of ranks in the epoch of an elastic job in
    which the call has ended; None in other jobs.
    """

    rank: int
    size: int | None
    result: bytes | None  # pickled
    error: bytes | None  # a pickled exception
    traceback: str


class _RankTraceback(Exception):
    """The cause of an exception raised on a rank. Its text is the traceback from that rank."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class _Job:
    """A job that rondarun runs. One thread per rank receives the rank's outcome."""

    def __init__(self, call: bytes, listener: socket.socket, key: str) -> None:
        self._call = call
        self._listener = listener
        self._key = key
        self._has_ended = threading.Event()
        self._lock = threading.Lock()
        self._outcomes: list[_Outcome] = []  # in the order of their arrival
        threading.Thread(target=self._accept, daemon=True).start()

    def outcomes(self) -> list[_Outcome]:
        with self._lock:
            return list(self._outcomes)

    def end(self) -> None:
        """Stops listening."""
        self._has_ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._listener.close()

    def _accept(self) -> None:
        while not self._has_ended.is_set():
            try:
                peer, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()
            except (OSError, RuntimeError):  # too many files or threads; another rank may end now
                self._has_ended.wait(0.1)

    def _serve(self, peer: socket.socket) -> None:
        try:
            connection = _authenticate(peer, self._key)
        except Exception:
            return  # a process without the key, whatever it has sent
        try:
            connection.send_bytes(self._call)
            outcome = _Outcome(*connection.recv())
            with self._lock:
                self._outcomes.append(outcome)
            connection.send_bytes(b"")
        except (EOFError, OSError):
            pass  # the rank has died, which rondarun reports


def _authenticate(peer: socket.socket, key: str) -> Connection:
    """Returns the connection to a process that has proved to know the key. Waits at most
    _AUTHENTICATION_SECONDS for each of its messages.
    """

    def limit(seconds: int) -> None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))

    with peer:
        connection = Connection(os.dup(peer.fileno()))
        limit(_AUTHENTICATION_SECONDS)
        deliver_challenge(connection, key.encode())
        answer_challenge(connection, key.encode())
        limit(0)
    return connection


def run(
    launcher: str,
    call: Call,
    np: int,
    hosts: str | None,
    env: Mapping[str, str],
    options: Sequence[str],
) -> list[Any]:
    """See ronda.run(); `launcher` is the path of rondarun."""
    _check(np, hosts, env, options)
    pickled = pickle.dumps((sys.path, _pickle(call)))
    key = secrets.token_hex(32)
    variables = {**_env.inherited(), **env, _KEY: key}
    listener, variables[_ADDRESS] = _listen(hosts, variables)
    # PYTHONPATH is needed only for this package; the program's other paths are sent with the call.
    package = str(pathlib.Path(__file__).parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [package, variables.get("PYTHONPATH")]))
    command = [launcher, "-np", str(np), *(["-H", hosts] if hosts else [])]
    for name in (_ADDRESS, _KEY, *env):
        command += ["-x", name]
    command += [*options, sys.executable, "-m", "ronda._run_job"]
    running = _Job(pickled, listener, key)
    try:
        code, last_line = _wait(command, variables)
    finally:
        running.end()
    return _results(running.outcomes(), np, code, last_line)


def _check(np: Any, hosts: Any, env: Any, options: Any) -> None:
    if isinstance(np, bool) or not hasattr(np, "__index__"):
        raise InvalidArgumentError(f"run: np is {np!r}: give a number of ranks, for example np=4")
    if np < 1:
        raise InvalidArgumentError(f"run: np is {np}: a job has at least one rank")
    if hosts is not None and not isinstance(hosts, str):
        raise InvalidArgumentError(
            f"run: hosts is {hosts!r}: give hosts with their slots in one text, for example "
            'hosts="alpha:4,beta:4"'
        )
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"run: env has {name!r}: {value!r}: give texts, for example {{'{name}': '{value}'}}"
            )
    if isinstance(options, str):
        raise InvalidArgumentError(
            f"run: options is {options!r}: give a list of words, for example {options.split()}"
        )


def _pickle(call: Call) -> bytes:
    name = getattr(call.func, "__qualname__", repr(call.func))
    has_cloudpickle = importlib.util.find_spec("cloudpickle") is not None
    if not has_cloudpickle and getattr(call.func, "__module__", None) == "__main__":
        raise InvalidArgumentError(
            f"run: {name} is a function of the main program, which the ranks cannot import: "
            + _REMEDY
        )
    try:
        return objects.dumps(call)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        remedy = (
            "give the ranks what they make such objects from, instead of these"
            if has_cloudpickle
            else _REMEDY
        )
        raise InvalidArgumentError(
            f"run: {name}, or an argument of it, cannot be pickled ({error}): {remedy}"
        ) from error


def _listen(hosts: str | None, variables: Mapping[str, str]) -> tuple[socket.socket, str]:
    """Returns a listening socket, and its address as text for _address_of()."""
    if hosts is None:
        listener = socket.socket(socket.AF_UNIX)
        name = f"ronda-run-{secrets.token_hex(16)}"
        listener.bind(f"\0{name}")  # not in the file system, so TMPDIR may have any length
        text = f"@{name}"
    else:
        listener = socket.socket(socket.AF_INET)
        interfaces = variables.get("RONDA_NETWORK_INTERFACE", "")
        listener.bind((own_address(interfaces.split(",") if interfaces else []), 0))
        text = ":".join(map(str, listener.getsockname()))
    listener.listen(1024)
    return listener, text


def _address_of(text: str) -> str | tuple[str, int]:
    if text.startswith("@"):
        return f"\0{text[1:]}"
    host, _, port = text.rpartition(":")
    return host, int(port)


def _wait(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
    """Runs the launcher. Returns the launcher's exit code, and the last line that the launcher
    itself printed, which names the rank that failed.

    Raises:
        OSError, ValueError: sys.stdout or sys.stderr is closed. The job has been ended.
    """
    process = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    outputs = [
        _Output(process, process.stdout, lambda: sys.stdout),
        _Output(process, process.stderr, lambda: sys.stderr),
    ]
    try:
        code = process.wait()
    except BaseException:
        # An exception such as KeyboardInterrupt has interrupted the wait. On SIGTERM, rondarun ends
        # the ranks.
        process.terminate()
        process.wait()
        for output in outputs:
            output.wait(1)  # the program's stream may accept nothing
        raise
    for output in outputs:
        output.finish()
    return code, outputs[1].last_line


class _Output:
    """Copies one of the launcher's streams to a stream of the program, line by line, in a thread.

    The thread reads until the launcher closes its end, whatever happens to the program's stream.
    Otherwise the launcher would wait for a reader for ever. If the program's stream is closed, the
    thread ends the launcher.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        source: IO[bytes] | None,
        target: Callable[[], IO[str]],
    ) -> None:
        assert source is not None
        self.last_line = ""  # of the launcher itself
        self._process, self._source, self._target = process, source, target
        self._closed: Exception | None = None
        self._lost: Exception | None = None
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Waits for the end of the launcher's stream."""
        self._thread.join(seconds)

    def finish(self) -> None:
        """Waits for the end of the launcher's stream. Raises the error of a closed target."""
        self.wait()
        if self._closed is not None:
            raise self._closed
        if self._lost is not None:
            warnings.warn(f"run: a part of the output is lost: {self._lost!r}", stacklevel=5)

    def _copy(self) -> None:
        with self._source:
            for data in self._source:
                line = data.decode(errors="replace")
                if line.startswith("rondarun: "):
                    self.last_line = line.strip()
                if self._closed is None:
                    self._write(line)

    def _write(self, line: str) -> None:
        try:
            target = self._target()
            target.write(_encodable(line, target))
            target.flush()
        except (BrokenPipeError, ValueError) as error:
            self._closed = error
            self._process.terminate()
        except Exception as error:
            self._lost = error


def _encodable(line: str, target: IO[str]) -> str:
    """Returns the line, with escapes for the characters that the target's encoding lacks."""
    encoding = getattr(target, "encoding", None) or "utf-8"
    return line.encode(encoding, errors="backslashreplace").decode(encoding)


def _results(outcomes: Sequence[_Outcome], np: int, code: int, last_line: str) -> list[Any]:
    # If the job has succeeded, the errors are those of former members of an elastic job.
    for outcome in outcomes:
        if code != 0 and outcome.error is not None:
            raise pickle.loads(outcome.error) from _RankTraceback(
                f"rank {outcome.rank}: {outcome.traceback}"
            )
    if code != 0:
        raise PeerFailedError(last_line or f"rondarun has ended with code {code}")
    finished = [outcome for outcome in outcomes if outcome.error is None]
    last_size = finished[-1].size if finished else None
    size = np if last_size is None else last_size
    by_rank = {each.rank: each.result for each in finished if each.size == last_size}
    if len(by_rank) < size:
        raise PeerFailedError(f"the job has ended, and {size - len(by_rank)} ranks without result")
    return [pickle.loads(by_rank[rank] or b"") for rank in range(size)]


# -- On a rank --


def main() -> int:
    """Runs the function that the program sends, and returns the exit code."""
    address = _address_of(os.environ.pop(_ADDRESS))
    connection = Client(address, authkey=os.environ.pop(_KEY).encode())
    paths, call = pickle.loads(connection.recv_bytes())
    sys.path[:] = paths
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    outcome = _make(call)
    connection.send(tuple(outcome))
    if outcome.error is None:
        return 0
    job.leave_at_exit()
    return 1


def _end_with(connection: Connection) -> None:
    """Ends this process if the program ends first."""
    try:
        connection.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def _make(pickled: bytes) -> _Outcome:
    rank = int(os.environ.get("RONDA_RANK", "0"))
    is_elastic = "RONDA_MEMBERSHIP_FD" in os.environ
    try:
        func, args, kwargs = _unpickle(pickled)
        result = objects.dumps(func(*args, **kwargs))
        place = job.last_place() if is_elastic else None  # a member's rank changes
        if place is not None:
            return _Outcome(place[0], place[1], result, None, "")
        return _Outcome(rank, None, result, None, "")
    except Exception as error:
        text = traceback.format_exc()
        return _Outcome(rank, None, None, _dump_error(error, text), text)


def _unpickle(pickled: bytes) -> Call:
    try:
        call: Call = pickle.loads(pickled)
        return call
    except (AttributeError, ImportError) as error:
        raise InvalidArgumentError(
            f"run: a rank has not got a part of the call ({error}): " + _REMEDY
        ) from error


def _dump_error(error: Exception, text: str) -> bytes:
    try:
        data = objects.dumps(error)
        pickle.loads(data)  # some exceptions cannot be made from their arguments
        return data
    except Exception:
        return objects.dumps(RuntimeError(text))


if __name__ == "__main__":
    sys.exit(main())
