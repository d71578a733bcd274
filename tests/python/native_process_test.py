# SPDX-License-Identifier: Apache-2.0

"""Tests how processes with the low-level binding start and end. The test itself starts the jobs."""

import os
import signal
import subprocess
import sys
import unittest

import ronda_test
from ronda._ports import free_port

_PRELUDE = """
import array, os, signal, sys, threading, time
from ronda import errors, job
from ronda._library import native

def submit(name, count=1):
    numbers = array.array("f", [1] * count)
    address = numbers.buffer_info()[0]
    return native.allreduce_async(name, 6, (count,), address, address, numbers, 0)

def say(*words):
    print(*words, flush=True)
"""


def run(source, ranks=0, timeout=60.0):
    return ronda_test.run(_PRELUDE + source, ranks, timeout=timeout)


def start_rank(source, rank, size, port):
    """Starts one rank, without rondarun."""
    place = {
        "RONDA_RANK": str(rank),
        "RONDA_SIZE": str(size),
        "RONDA_LOCAL_RANK": str(rank),
        "RONDA_LOCAL_SIZE": str(size),
        "RONDA_MASTER_ADDR": "127.0.0.1",
        "RONDA_MASTER_PORT": str(port),
    }
    return ronda_test.start(_PRELUDE + source, env=place)


class ExitTest(unittest.TestCase):
    """Tests that the interpreter ends without an error, whatever the state of the job."""

    def assert_ends(self, source, ranks=0, out=None):
        result = run(source, ranks)
        self.assertEqual(result.code, 0, result.err)
        if out is not None:
            self.assertEqual(result.out, out)
        for word in ("Fatal", "Traceback", "terminate called", "Exception ignored"):
            self.assertNotIn(word, result.err)

    def test_without_anything(self):
        self.assert_ends("import ronda._library")

    def test_without_init(self):
        self.assert_ends("say(native.is_initialized())", out="False\n")

    def test_handles_that_are_kept(self):
        self.assert_ends("job.init(); handles = [submit(str(i)) for i in range(100)]")

    def test_without_the_shutdown_at_exit(self):
        """A single rank without ronda.job does not shut down at exit, but still ends without an
        error.
        """
        self.assert_ends("native.init(); handles = [submit(str(i)) for i in range(100)]")

    def test_operations_in_flight(self):
        """The shutdown at exit fails operations that the other ranks do not submit."""
        source = """
job.init()
if native.rank() == 0:
    native.release(submit("released"))
    native.on_completion(submit("awaited"), lambda status, message: say(status != 0))
native.monitored_barrier()
"""
        result = run(source, ranks=2)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("True", result.out)

    def test_callbacks_that_run_at_exit(self):
        """The interpreter waits for a running callback, but does not start later ones."""
        self.assert_ends(
            """
native.init()
began = threading.Event()

def work(status, message):
    began.set()
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        sum(range(1000))
    say("worked")

native.on_completion(submit("x"), work)
began.wait()
native.on_completion(submit("y"), lambda status, message: say("late"))
""",
            out=None,
        )

    def test_threads_that_wait_at_exit(self):
        source = """
job.init()
submitted = threading.Semaphore(0)

def wait(name):
    handle = submit(name)
    submitted.release()
    native.synchronize(handle)

if native.rank() == 0:
    for name in "abcd":
        threading.Thread(target=wait, args=(name,), daemon=True).start()
        submitted.acquire()
native.monitored_barrier()
"""
        result = run(source, ranks=2)
        self.assertEqual(result.code, 0, result.err)
        self.assertNotIn("Fatal", result.err)

    def test_an_exception(self):
        result = run("job.init(); submit('x'); raise SystemExit(3)")
        self.assertEqual(result.code, 3, result.err)
        result = run("job.init(); submit('x'); os._exit(4)")
        self.assertEqual(result.code, 4, result.err)

    def test_forked_children(self):
        """A forked child of a rank exits like any Python program, and the rank continues."""
        source = """
job.init()
entered, go_on = threading.Event(), threading.Event()

def work(status, message):
    entered.set()
    go_on.wait()

native.on_completion(submit("x"), work)
entered.wait()  # the callback is inside while this forks
child = os.fork()
if child == 0:
    say(native.is_initialized())
    sys.exit(5)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go_on.set()
say(code, native.synchronize(submit("y")))
"""
        self.assert_ends(source, out="False\n5 True\n")


class InterruptTest(unittest.TestCase):
    """Tests Ctrl-C while this process waits for ranks that will not come."""

    def interrupt(self, source):
        process = start_rank(source, 1, 2, free_port())
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.send_signal(signal.SIGINT)
        return ronda_test.finish(process)

    def test_init(self):
        result = self.interrupt("""
timer = threading.Timer(0.2, say, ["waits"])
timer.start()
native.init()
""")
        self.assertEqual(result.code, -signal.SIGINT, result.err)
        self.assertLess(result.seconds, 5)
        self.assertIn("KeyboardInterrupt", result.err)

    def test_shutdown(self):
        source = """
native.init()
if native.rank() == 0:
    signal.pause()
say("waits")
native.shutdown()
"""
        port = free_port()
        processes = [start_rank(source, rank, 2, port) for rank in range(2)]
        self.assertEqual(processes[1].stdout.readline(), "waits\n")
        processes[1].send_signal(signal.SIGINT)
        result = ronda_test.finish(processes[1])
        processes[0].kill()
        ronda_test.finish(processes[0])
        self.assertEqual(result.code, -signal.SIGINT, result.err)
        self.assertLess(result.seconds, 5)


class FailureTest(unittest.TestCase):
    def test_a_killed_rank(self):
        """Each rank that waits for the killed rank, in any call, immediately gets an error that
        names that rank.
        """
        source = """
native.init()
native.monitored_barrier()
if native.rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
waits = [
    lambda: native.synchronize(submit("x")),
    lambda: native.synchronize_all([submit("x")]),
    lambda: native.monitored_barrier(),
    lambda: native.allreduce("x", 6, (), *[array.array("f", [1]).buffer_info()[0]] * 2, None, 0),
]
for wait in waits:
    begin = time.monotonic()
    try:
        wait()
    except errors.PeerFailedError as error:
        assert "rank 2" in str(error), error
        assert time.monotonic() - begin < 5, time.monotonic() - begin
    else:
        raise AssertionError("nothing was raised")
try:
    native.shutdown()
except errors.PeerFailedError:
    say("told")
"""
        port = free_port()
        processes = [start_rank(source, rank, 3, port) for rank in range(3)]
        results = [ronda_test.finish(process) for process in processes]
        self.assertEqual(results[2].code, -signal.SIGKILL, results[2].err)
        for result in results[:2]:
            self.assertEqual((result.code, result.out), (0, "told\n"), result.err)

    def test_an_aborted_job(self):
        """Both ranks of an aborted job get the reason, and can then start a new job."""
        source = """
native.init()
native.job_status()
try:
    native.monitored_barrier()
except errors.PeerFailedError:
    pass  # rank 0 may still be in it when rank 1 has left it
if native.rank() == 1:
    native.abort("it is late")
for wait in (native.monitored_barrier, native.job_status, native.shutdown):
    try:
        wait()
    except errors.PeerFailedError as error:
        assert "rank 1" in str(error) and "it is late" in str(error), error
    else:
        raise AssertionError("nothing was raised")
native.init({"epoch": 1})
native.monitored_barrier()
native.shutdown()
say("again")
"""
        port = free_port()
        processes = [start_rank(source, rank, 2, port) for rank in range(2)]
        for process in processes:
            result = ronda_test.finish(process)
            self.assertEqual((result.code, result.out), (0, "again\n"), result.err)


class LibraryTest(unittest.TestCase):
    """Tests the import of the binding."""

    def test_free_threaded_python_is_refused(self):
        result = subprocess.run(
            [sys.executable, "-c", "import sys; sys.abiflags += 't'; import ronda"],
            env=ronda_test.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.returncode, 1)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        self.assertIn(
            f"ImportError: ronda: {sys.executable} is a free-threaded Python, which Ronda does not "
            "support",
            result.stderr,
        )
        self.assertIn(
            f"Run the program with the Python {version} that has a GIL (python{version}).",
            result.stderr,
        )


if __name__ == "__main__":
    os.environ.setdefault("RONDA_STALL_DEADLINE", "30s")
    unittest.main()
