# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.run(), python -m ronda.check, and the examples."""

import contextlib
import io
import multiprocessing.connection
import os
import pathlib
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import numpy
import ronda
import ronda_test
from ronda import _run_job
from ronda._own_address import own_address


class OfThisModuleError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


class RunTest(unittest.TestCase):
    def test_results_by_rank(self):
        def collect(factor, add=0):
            ronda.init()
            total = ronda.allreduce([factor * (ronda.rank() + 1)], ronda.ReduceOp.SUM)
            return ronda.rank(), int(total[0]) + add

        self.assertEqual(ronda.run(collect, (10,), {"add": 1}, np=3), [(0, 61), (1, 61), (2, 61)])

    def test_number_of_another_library(self):
        self.assertEqual(ronda.run(lambda: 1, np=numpy.int64(1)), [1])

    def test_job_of_one_rank(self):
        self.assertEqual(ronda.run(lambda: "alone", np=1), ["alone"])

    def test_variables(self):
        def read():
            import os

            return os.environ["OF_THE_USER"], os.environ["RANK"]

        self.assertEqual(ronda.run(read, env={"OF_THE_USER": "1"}), [("1", "0"), ("1", "1")])

    def test_exception_of_a_rank(self):
        def fail():
            ronda.init()
            if ronda.rank() == 1:
                raise KeyError("of rank 1")
            ronda.barrier()
            ronda.barrier()

        with self.assertRaisesRegex(KeyError, "of rank 1") as caught:
            ronda.run(fail)
        self.assertRegex(str(caught.exception.__cause__), r"rank 1: Traceback (.|\n)*in fail")

    def test_exception_that_cannot_travel(self):
        def fail():
            raise OfThisModuleError("two", "arguments")

        with self.assertRaisesRegex(RuntimeError, "OfThisModuleError: two arguments"):
            ronda.run(fail, np=1)

    def test_rank_that_dies(self):
        def die():
            import os

            os._exit(9)

        with self.assertRaisesRegex(ronda.PeerFailedError, "exited with code 9"):
            ronda.run(die)

    def test_output_that_is_no_text(self):
        program = """
            import sys
            import ronda
            def write():
                for line in (b"\\xff\\n", b"\\xc3\\xa9\\n"):
                    sys.stdout.buffer.write(100000 * line)
                sys.stdout.flush()
                return 7
            print(ronda.run(write, np=1))
        """
        for encoding in ("utf-8", "ascii"):
            finished = ronda_test.run(program, env={"PYTHONIOENCODING": encoding})
            self.assertEqual(finished.code, 0, finished.err)
            self.assertEqual(finished.out.splitlines()[-1], "[7]")
            self.assertEqual(len(finished.out.splitlines()), 200001)

    def test_output_that_nobody_reads(self):
        process = ronda_test.start("""
            import itertools
            import ronda
            def write():
                for i in itertools.count():
                    print(i, "x" * 99)
            ronda.run(write, np=2)
        """)
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        finished = ronda_test.finish(process)
        self.assertEqual(finished.code, 1, finished.err)
        self.assertIn("BrokenPipeError", finished.err)

    def test_stream_that_fails(self):
        class Failing(io.StringIO):
            def write(self, text):
                raise KeyError("a bad stream")

        with (
            contextlib.redirect_stdout(Failing()),
            self.assertWarnsRegex(UserWarning, "bad stream"),
        ):
            results = ronda.run(lambda: print("x" * 1000000) or 1, np=1)
        self.assertEqual(results, [1])

    def test_long_name_of_the_temporary_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            long = pathlib.Path(folder, "x" * 120)
            long.mkdir()
            finished = ronda_test.run(
                "import ronda; print(ronda.run(abs, (-3,), np=1))", env={"TMPDIR": str(long)}
            )
        self.assertEqual((finished.code, finished.out), (0, "[3]\n"), finished.err)

    def test_rank_that_exits(self):
        with self.assertRaisesRegex(ronda.PeerFailedError, "exited with code 4"):
            ronda.run(sys.exit, (4,))

    def test_wrong_options(self):
        with self.assertRaisesRegex(ronda.PeerFailedError, "--no-such-option"):
            ronda.run(print, options=["--no-such-option"])
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "at least one rank"):
            ronda.run(print, np=0)

    def test_wrong_arguments(self):
        for np in ("2", 2.0, True, None):
            with self.assertRaisesRegex(ronda.InvalidArgumentError, f"np is {np!r}: .* np=4"):
                ronda.run(print, np=np)
        with self.assertRaisesRegex(ronda.InvalidArgumentError, r"hosts is \['a:1'\]: .*in one"):
            ronda.run(print, hosts=["a:1"])
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "env has 'A': 1: .*{'A': '1'}"):
            ronda.run(print, env={"A": 1})
        with self.assertRaisesRegex(ronda.InvalidArgumentError, r"example \['--min-np', '1'\]"):
            ronda.run(print, options="--min-np 1")

    def test_wrong_hosts(self):
        with self.assertRaisesRegex(ronda.PeerFailedError, '-H takes HOST:SLOTS .* got "alpha"'):
            ronda.run(print, hosts="alpha")
        with self.assertRaisesRegex(ronda.PeerFailedError, "nowhere.invalid"):
            ronda.run(print, np=1, hosts="nowhere.invalid:1")

    def test_function_that_cannot_be_pickled(self):
        lock = threading.Lock()
        with self.assertRaisesRegex(
            ronda.InvalidArgumentError, r"cannot be pickled \(.*lock.*\): give the ranks"
        ):
            ronda.run(lambda: lock.locked(), np=1)

    def test_without_cloudpickle(self):
        finished = ronda_test.run("""
            import sys
            sys.modules["cloudpickle"] = None  # as if it were not installed
            import functools
            import ronda
            def train():
                return 1
            def make():
                return lambda: 1
            for call in train, make(), functools.partial(make()), functools.partial(train):
                try:
                    ronda.run(call, np=1)
                except ronda.InvalidArgumentError as error:
                    print(error)
            print(ronda.run(abs, (-3,), np=1))
        """)
        self.assertEqual(finished.code, 0, finished)
        remedy = (
            "install cloudpickle \\(pip install ronda\\[run\\]\\), or take functions from a module"
        )
        lines = finished.out.splitlines()
        self.assertEqual(len(lines), 5, finished)
        self.assertRegex(lines[0], f"run: train is a function of the main program, .*: {remedy}")
        self.assertRegex(lines[1], f"run: make.<locals>.<lambda> is a function of .*: {remedy}")
        self.assertRegex(lines[2], rf"cannot be pickled \(.*lambda.*\): {remedy}")
        self.assertRegex(lines[3], rf"a rank has not got a part of the call \(.*\): {remedy}")
        self.assertEqual(lines[4], "[3]")


class ElasticTest(unittest.TestCase):
    def run_elastic(self, plan, np=2, least=2):
        """Runs an elastic job of 30 steps. `plan` is called in the fifth one. Returns the results,
        which are ranks and sizes.
        """

        def train(flag):
            from ronda import _elastic, _horovod

            _horovod.init()
            state = _elastic.ObjectState(step=0)

            @_elastic.run
            def go(state):
                while state.step < 30 or _horovod.size() < least:
                    ronda.allreduce([1.0], name="step")
                    state.step += 1
                    if state.step == 5 and _horovod.size() == np and not flag.exists():
                        plan(_horovod.rank(), flag)
                    state.commit()
                return _horovod.rank(), _horovod.size()

            result = go(state)
            _horovod.shutdown()
            return result

        with tempfile.TemporaryDirectory() as folder:
            flag = pathlib.Path(folder, "flag")
            return ronda.run(train, (flag,), np=np, options=["--min-np", str(least)])

    def test_results_of_a_member_that_was_replaced(self):
        def die(rank, flag):
            if rank == 0:
                flag.touch()
                os._exit(3)

        self.assertEqual(self.run_elastic(die), [(0, 2), (1, 2)])

    def test_results_without_a_member_that_has_left(self):
        def leave(rank, flag):
            if rank == 0:
                os.kill(os.getpid(), signal.SIGTERM)

        results = self.run_elastic(leave, least=1)
        self.assertEqual(results, [(rank, len(results)) for rank in range(len(results))])

    def test_error_of_a_member_that_was_replaced(self):
        def fail(rank, flag):
            if rank == 0:
                flag.touch()
                raise KeyError("of a former member")

        self.assertEqual(self.run_elastic(fail), [(0, 2), (1, 2)])

    def test_results_come_from_the_last_epoch(self):
        def outcome(rank, size, error=None):
            return _run_job._Outcome(rank, size, pickle.dumps((rank, size)), error, "")

        former = [outcome(0, 3), outcome(1, 2, pickle.dumps(KeyError("former")))]
        last = [outcome(1, 2), outcome(0, 2)]
        self.assertEqual(_run_job._results([*former, *last], 3, 0, ""), [(0, 2), (1, 2)])
        with self.assertRaisesRegex(KeyError, "former"):
            _run_job._results([*former, *last], 3, 1, "")
        with self.assertRaisesRegex(ronda.PeerFailedError, "1 ranks without result"):
            _run_job._results(last[:1], 3, 0, "rondarun: member 0 exited with code 0")


class ListenerTest(unittest.TestCase):
    def test_other_processes_do_not_keep_a_rank_from_its_call(self):
        listener, text = _run_job._listen("localhost:1", {})
        running = _run_job._Job(b"the call", listener, "the key")
        address = _run_job._address_of(text)
        with contextlib.closing(socket.create_connection(address)) as silent:
            resetting = socket.create_connection(address)
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            resetting.close()
            wrong = socket.create_connection(address)
            wrong.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection = multiprocessing.connection.Client(address, authkey=b"the key")
            self.assertEqual(connection.recv_bytes(), b"the call")
            connection.send((0, None, b"result", None, ""))
            self.assertEqual(connection.recv_bytes(), b"")
            self.assertEqual([each.result for each in running.outcomes()], [b"result"])
            wrong.close()
            silent.close()
        running.end()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address)

    def test_address(self):
        with mock.patch(
            "socket.gethostbyname_ex", return_value=("vm", [], ["127.0.1.1", "10.1.2.3"])
        ):
            self.assertEqual(own_address(), "10.1.2.3")
        with mock.patch("socket.gethostbyname_ex", return_value=("vm", [], ["127.0.1.1"])):
            self.assertNotEqual(own_address(), "127.0.1.1")
        self.assertEqual(own_address(["no-such", "lo"]), "127.0.0.1")
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "'no-such': should name a network"):
            own_address(["no-such"])


class ProgramsTest(unittest.TestCase):
    def test_check(self):
        finished = subprocess.run(
            [sys.executable, "-m", "ronda.check"],
            capture_output=True,
            text=True,
            env=ronda_test.environment(),
        )
        self.assertEqual(finished.returncode, 0, finished)
        self.assertIn(f"ronda {ronda.__version__}, _native, in", finished.stdout)
        self.assertIn("2 ranks on this host: all-reduce works, 16 MiB in", finished.stdout)

    def test_numpy_example(self):
        example = pathlib.Path("examples/numpy_allreduce.py").read_text()
        finished = ronda_test.run(example, ranks=2)
        self.assertEqual(finished.code, 0, finished)
        self.assertIn("y = 3.00 x + 2.00, from 2000 points", finished.out)


if __name__ == "__main__":
    unittest.main()
