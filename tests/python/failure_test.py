# SPDX-License-Identifier: Apache-2.0

"""Tests what happens to a job when one of its ranks ends unexpectedly."""

import os
import re
import signal
import sys
import unittest

import ronda_test

# The program of a rank. The program makes steps until an error occurs, and prints the error and the
# seconds since the time in the file $TIME.
_TRAINER = """
    import os, signal, sys, time
    import ronda
    ronda.init()
    for step in range(1_000_000):
        if step == 20 and ronda.rank() == 1:
            open(os.environ["TIME"], "w").write(str(time.time()))
            {deed}
        try:
            ronda.allreduce(bytearray(100), ronda.ReduceOp.SUM, name="gradient")
        except ronda.RondaError as error:
            seconds = time.time() - float(open(os.environ["TIME"]).read())
            print(type(error).__name__, f"after {{seconds:.3f}} s:", error, flush=True)
            sys.exit(3)
"""


class FailureTest(unittest.TestCase):
    def setUp(self):
        self._time = ronda_test.program("")

    def train(self, deed, **options):
        program = _TRAINER.format(deed=deed)
        return ronda_test.run(program, ranks=3, env={"TIME": self._time}, **options)

    def expect_others_learn_of_it(self, finished, culprit):
        """Expects that ranks 0 and 2 get an error that names rank 1, in less than a second."""
        for rank in (0, 2):
            line = re.search(
                rf"\[{rank}\]<stdout>: PeerFailedError after (\S+) s: (.*)", finished.out
            )
            self.assertIsNotNone(line, finished)
            self.assertLess(float(line[1]), 1, finished)
            self.assertRegex(line[2], culprit)

    def test_killed_rank_is_named(self):
        finished = self.train("os.kill(os.getpid(), signal.SIGKILL)")
        self.expect_others_learn_of_it(finished, r"rank 1 \(host .*, pid .*\) died")
        self.assertRegex(finished.err, r"rondarun: rank 1 .* was killed by signal 9")

    def test_rank_with_an_exception_does_not_wait_for_the_others(self):
        finished = self.train("raise ValueError('out of data')")
        self.expect_others_learn_of_it(finished, r"rank 1 .* has ended without ronda_shutdown\(\)")
        self.assertRegex(
            finished.err, 'rank 1 .* exited with code 1; last error: "ValueError: out of data"'
        )

    def test_rank_that_exits_with_an_error(self):
        finished = self.train("sys.exit(5)")
        self.expect_others_learn_of_it(finished, "rank 1")
        self.assertRegex(finished.err, "rondarun: rank . .* exited with code [35]")

    def test_rank_that_leaves_early(self):
        finished = self.train("ronda.shutdown(); break")
        self.expect_others_learn_of_it(finished, "rank 1")


class LastLineTest(unittest.TestCase):
    """rondarun's last line quotes the error that ended the rank."""

    def expect_last_error(self, error, source, **options):
        finished = ronda_test.run(source, ranks=1, **options)
        self.assertEqual(finished.code, 1, finished)
        last_line = finished.err.splitlines()[-1]
        self.assertRegex(last_line, r"rondarun: rank 0 \(pid \d+, host .*\) exited with code 1;")
        self.assertEqual(last_line.partition("; last error: ")[2], f'"{error}"', finished)

    def test_exception_of_a_rank_with_a_hook_of_its_own(self):
        program = """
            import atexit, sys
            import ronda
            sys.excepthook = lambda *error: print("sorry", *error, file=sys.stderr)
            atexit.register(lambda: print("run summary: 12 files uploaded", file=sys.stderr))
            error = RuntimeError("CUDA error: no kernel image\\nmore words")
            raise error
        """
        for options in ([], ["--launcher", "ssh"]):
            self.expect_last_error(
                "RuntimeError: CUDA error: no kernel image", program, options=options
            )

    def test_exception_of_a_program_that_a_shell_starts(self):
        path = ronda_test.program("import ronda, sys; sys.stderr.close(); raise KeyError('lr')")
        self.expect_last_error(
            "KeyError: 'lr'",
            f"""
            import os, sys
            os.execvp("sh", ["sh", "-c", sys.executable + " {path}; exit $?"])
            """,
        )

    def test_message_that_begins_with_an_empty_line(self):
        self.expect_last_error(
            "OSError: disk on fire", "import ronda; raise OSError('\\n\\ndisk on fire\\n')"
        )

    def test_syntax_error(self):
        self.expect_last_error("SyntaxError: invalid syntax", "import ronda; exec('for in')")

    @unittest.skipIf(sys.version_info < (3, 11), "this Python has no groups of exceptions")
    def test_group_of_exceptions(self):
        self.expect_last_error(
            "ExceptionGroup: loaders failed (2 sub-exceptions): ValueError: first",
            """
            import ronda
            raise ExceptionGroup("loaders failed", [ValueError("first"), TypeError("second")])
            """,
        )

    @ronda_test.forks
    def test_exception_of_a_child_is_not_the_ranks(self):
        self.expect_last_error(
            "disk on fire",
            """
            import os, sys
            import ronda
            child = os.fork()
            if child == 0:
                sys.stderr = open(os.devnull, "w")
                raise ValueError("of the child")
            os.waitpid(child, 0)
            sys.exit("disk on fire")
            """,
        )

    def test_program_without_ronda(self):
        self.expect_last_error(
            "RuntimeError: CUDA error: no kernel image",
            """
            import atexit, sys
            atexit.register(lambda: print("run summary: 12 files uploaded", file=sys.stderr))
            raise RuntimeError("CUDA error: no kernel image\\nmore words")
            """,
        )


class ShutdownTest(unittest.TestCase):
    def test_rank_that_shuts_down_with_an_operation_in_flight_keeps_nobody_waiting(self):
        finished = ronda_test.run(
            """
            import ronda
            ronda.init()
            if ronda.rank() == 1:
                handle = ronda.allreduce_async(bytearray(4), name="only on rank 1")
            else:
                try:
                    ronda.barrier()
                except ronda.PeerFailedError as error:
                    print("told:", error, flush=True)
            ronda.shutdown()
            if "handle" in globals():
                try:
                    handle.wait()
                except ronda.PeerFailedError as error:
                    print("told:", error, flush=True)
            """,
            ranks=2,
            env={"RONDA_STALL_DEADLINE": "600s"},
        )
        self.assertEqual(finished.code, 0, finished)
        self.assertRegex(
            finished.out,
            r"\[0\]<stdout>: told: .*rank 1 .* has shut down and will not submit the barr",
        )
        self.assertRegex(
            finished.out,
            r"\[1\]<stdout>: told: .*rank 0 .* has shut down .* tensor 'only on rank 1'",
        )

    def test_calls_after_the_end_say_that_it_was_the_end(self):
        finished = ronda_test.run(
            """
            import ronda
            ronda.init()
            ronda.shutdown()
            for call in (ronda.rank, lambda: ronda.allreduce(1.0), ronda.barrier, ronda.shutdown):
                try:
                    call()
                except ronda.NotInitializedError as error:
                    print(error)
            """,
            ranks=1,
        )
        self.assertEqual(finished.code, 0, finished)
        self.assertEqual(finished.out.count("Ronda has been shut down: "), 3, finished)


class DeadlockTest(unittest.TestCase):
    def test_ranks_that_wait_for_each_other_are_told_while_they_wait(self):
        process = ronda_test.start(
            """
            import ronda
            ronda.init()
            if ronda.rank() == 0:
                ronda.allreduce(bytearray(4), name="gradient")
            else:
                ronda.barrier()
            """,
            ranks=2,
            env={"RONDA_STALL_WARNING": "600s", "RONDA_STALL_DEADLINE": "600s"},
        )
        text = next((line for line in process.stderr if "deadlock of" in line), "")
        process.terminate()
        ronda_test.finish(process)
        self.assertRegex(text, r"deadlock of rank 0 .*, rank 1 .*, which wait for each other: ")
        self.assertRegex(text, r"tensor 'gradient' \(.*\): submitted by rank 0, not by rank 1")
        self.assertRegex(text, "the barrier: submitted by rank 1, not by rank 0")


class InterruptTest(unittest.TestCase):
    _WAITING = """
        import os
        import ronda
        ronda.init()
        if ronda.rank() == 0:
            print("pid", os.getpid(), flush=True)
            data = bytearray(1)
            ronda.allreduce(data, out=data)
        else:
            ronda.barrier()  # which rank 0 never comes to
            ronda.barrier()
    """

    def start(self):
        process = ronda_test.start(self._WAITING, ranks=2)
        line = process.stdout.readline()
        return process, int(line.rpartition("pid ")[2])

    def test_interrupt_of_a_rank_ends_its_wait(self):
        process, pid = self.start()
        os.kill(pid, signal.SIGINT)
        finished = ronda_test.finish(process)
        self.assertIn("KeyboardInterrupt", finished.err)
        self.assertNotEqual(finished.code, 0)

    def test_interrupt_of_the_job_leaves_no_rank(self):
        process, pid = self.start()
        process.send_signal(signal.SIGINT)
        ronda_test.finish(process)
        self.assertTrue(ronda_test.eventually(lambda: not os.path.exists(f"/proc/{pid}")))


class ExitTest(unittest.TestCase):
    def expect_success(self, source, ranks=2):
        finished = ronda_test.run(source, ranks=ranks)
        self.assertEqual(finished.code, 0, finished)
        return finished.out

    def test_program_that_does_not_shut_down(self):
        self.expect_success("""
            import ronda
            ronda.init()
            kept = ronda.allreduce_async([1.0])  # in flight at the end, and its handle alive
            rows = ronda.allgather([ronda.rank()])
        """)

    @ronda_test.forks
    def test_forked_child_is_no_rank(self):
        self.expect_success("""
            import os, sys
            import ronda
            ronda.init()
            child = os.fork()
            if child == 0:
                try:
                    ronda.allreduce([1.0])
                except ronda.NotInitializedError:
                    sys.exit(7)  # with all that the interpreter does at its end
                sys.exit(8)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            assert ronda.allreduce([1.0], ronda.ReduceOp.SUM)[0] == ronda.size()
            ronda.shutdown()
        """)

    @ronda_test.forks
    def test_workers_of_a_pool(self):
        self.expect_success("""
            import multiprocessing
            import ronda
            ronda.init()
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
            assert ronda.allreduce([1.0], ronda.ReduceOp.SUM)[0] == ronda.size()
        """)

    def test_many_jobs_of_a_process_need_no_more_memory(self):
        self.expect_success(
            """
            import os
            import ronda
            import ronda_test
            def job():
                ronda.init()
                ronda.allreduce([1.0])
                ronda.allgather([1.0])
                ronda.shutdown()
            def count():
                return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
            for _ in range(200):
                job()
            before, memory = count(), ronda_test.resident_bytes()
            for _ in range(1000):
                job()
            assert count() == before, (before, count())
            now = ronda_test.resident_bytes()
            assert now <= memory + (2 << 20), (memory, now)
            """,
            ranks=0,
        )

    def test_jobs_of_two_ranks_one_after_another(self):
        self.expect_success("""
            import ronda
            for number in range(20):
                ronda.init()
                assert ronda.allreduce([number])[0] == number
                ronda.shutdown()
        """)


class ImportTest(unittest.TestCase):
    def test_no_other_library_is_imported(self):
        finished = ronda_test.run("""
            import sys
            import ronda
            print([name for name in ("numpy", "torch", "cloudpickle", "asyncio") if name in
            sys.modules])
        """)
        self.assertEqual(finished.out, "[]\n", finished)


class SigtermTest(unittest.TestCase):
    def test_signal_after_the_job_ends_the_process(self):
        finished = ronda_test.run("""
            import os, signal
            import ronda
            ronda.init()
            ronda.should_stop()
            ronda.shutdown()
            print("job over", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        """)
        self.assertEqual((finished.code, finished.out), (-signal.SIGTERM, "job over\n"))

    def test_signal_of_which_no_call_has_told_ends_the_process_at_shutdown(self):
        finished = ronda_test.run("""
            import os, signal
            import ronda
            ronda.init()
            ronda.should_stop()
            os.kill(os.getpid(), signal.SIGTERM)
            print("job goes on", flush=True)
            ronda.shutdown()
            print("not printed", flush=True)
        """)
        self.assertEqual((finished.code, finished.out), (-signal.SIGTERM, "job goes on\n"))

    def test_signal_of_which_a_call_has_told_is_over(self):
        finished = ronda_test.run("""
            import os, signal
            import ronda
            ronda.init()
            ronda.should_stop()
            os.kill(os.getpid(), signal.SIGTERM)
            print([ronda.should_stop() for _ in range(2)])
            ronda.shutdown()
            print("saved")
        """)
        self.assertEqual((finished.code, finished.out), (0, "[False, True]\nsaved\n"))


if __name__ == "__main__":
    unittest.main()
