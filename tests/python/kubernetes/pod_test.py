# SPDX-License-Identifier: Apache-2.0

"""Tests ranks under the limits of a pod. Namespaces and a cgroup of this machine act as the pod."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import unittest
from collections.abc import Sequence

from ronda_test import PACKAGE, Finished, environment, eventually, finish

# Runs a command as in a pod. A file system that all users may read holds the package and the
# trainer, in place of the pod's image.
_POD = """
mount -t tmpfs ronda-test /mnt
cp -rL "$1" /mnt/package
cp -L "$2" /mnt/train.py
shift 2
mount -t tmpfs -o size=64m,mode=1777 ronda-test /dev/shm
mount -t tmpfs -o size=16m,mode=1777 ronda-test /tmp
mount -o remount,bind,ro /
cd /tmp
exec setpriv --reuid nobody --regid nogroup --clear-groups --no-new-privs --inh-caps=-all \
  --bounding-set=-all "$@"
"""
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child")
_RONDARUN = "/mnt/package/ronda/lib/rondarun"
_TRAIN = (_RONDARUN, "-np", "2", sys.executable, "/mnt/train.py")

# The folder of cgroup version 1, in which root can create control groups.
_CPU_V1 = pathlib.Path("/sys/fs/cgroup/cpu")
# The parent folders of groups that limit memory, each with the name of the limit's file.
_MEMORY_GROUPS = (
    (pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),  # first version
    (pathlib.Path("/sys/fs/cgroup"), "memory.max"),  # second version
)
# Rank 1 allocates more memory than the pod has.
_EATS = """
import ronda
ronda.init()
ronda.barrier()
eaten = [bytearray(1 << 20) for _ in range(400)] if ronda.rank() == 1 else []
while True:
    ronda.barrier()
"""


@unittest.skipIf(os.geteuid() != 0, "only root can make namespaces as a pod has them")
class PodTest(unittest.TestCase):
    def start(
        self, command: Sequence[str], outside: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        """Starts a command as process 1 of a pod. `outside` is a prefix that runs outside the
        pod.
        """
        pod = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, "--mount-proc"]
        pod += ["sh", "-ec", _POD, "sh", str(PACKAGE.parent), "tests/python/slurm/train.py"]
        process = subprocess.Popen(
            [*outside, *pod, *command],
            env={**environment(), "PYTHONPATH": "/mnt/package", "TMPDIR": "/tmp", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(self.kill, process)
        return process

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        process.kill()  # --kill-child ends the rest
        process.communicate()

    def check_trained(self, finished: Finished, code: int = 0) -> None:
        self.assertEqual(code, finished.code, f"{finished.out}\n{finished.err}")
        ends = sorted(line for line in finished.out.splitlines() if "ends" in line)
        expected = [f"[{rank}]<stdout>: rank {rank} of 2 ends: average 0.5" for rank in range(2)]
        self.assertEqual(expected, ends)

    def test_ranks_train_without_rights_on_a_read_only_root(self) -> None:
        # The shell checks the limits of the pod, and then executes rondarun, which becomes process
        # 1.
        limits = (
            'test $$ = 1 && test "$(id -un)" = nobody && ! touch /usr/x 2> /dev/null && '
            'test "$(df --output=size -m /dev/shm | tail -n 1)" -eq 64 && '
            "grep -q 'CapBnd:.0000000000000000' /proc/self/status && exec \"$@\""
        )
        self.check_trained(finish(self.start(["sh", "-c", limits, "sh", *_TRAIN])))

    def test_sigterm_to_process_1_has_the_ranks_save_their_state(self) -> None:
        process = self.start(_TRAIN, STEPS="1000000000")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        self.assertTrue(all(line.endswith("trains\n") for line in lines), lines)
        [first] = (
            pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        os.kill(int(first), signal.SIGTERM)
        finished = finish(process)
        self.assertIn("[0]<stdout>: saved after step ", finished.out)
        self.check_trained(finished, 128 + signal.SIGTERM)

    @unittest.skipUnless(os.access(_CPU_V1 / "cgroup.procs", os.W_OK), "no cgroup of CPUs to write")
    def test_ranks_train_on_half_a_core(self) -> None:
        group = self.make_group(_CPU_V1)
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
        self.check_trained(finish(self.start(_TRAIN, self.joining(group))))
        periods = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        self.assertGreater(int(periods["nr_periods"]), 0)

    def test_rank_that_the_kernel_kills_for_lack_of_memory_is_named_as_such(self) -> None:
        group = self.make_group_of_memory(300 << 20)
        eats = (_RONDARUN, "-np", "2", sys.executable, "-c", _EATS)
        finished = finish(self.start(eats, self.joining(group)))
        self.assertEqual(128 + signal.SIGKILL, finished.code, finished.err)
        last = finished.err.splitlines()[-1]
        self.assertRegex(
            last,
            r"^rondarun: rank 1 \(pid \d+, host \S+\) was killed by signal 9 \(SIGKILL\) by the "
            r"kernel for lack of memory \(1 in its control group since the job began\)",
        )
        self.assertIn("give the host or container more memory, or run fewer ranks there", last)

    def make_group(self, parent: pathlib.Path) -> pathlib.Path:
        """Creates a cgroup, which is removed after the test."""
        group = parent / f"ronda-test-{os.getpid()}"
        group.mkdir()
        self.addCleanup(lambda: eventually(lambda: self.remove(group), 60))
        return group

    def make_group_of_memory(self, limit: int) -> pathlib.Path:
        """Creates a cgroup with this memory limit. Skips the test if that fails."""
        for parent, file in _MEMORY_GROUPS:
            if not os.access(parent / "cgroup.procs", os.W_OK):
                continue
            group = self.make_group(parent)
            if (group / file).exists():
                (group / file).write_text(str(limit))
                return group
        self.skipTest("no cgroup of memory to write")

    @staticmethod
    def joining(group: pathlib.Path) -> Sequence[str]:
        """Returns the prefix that puts a command into the cgroup."""
        return ("sh", "-ec", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")

    @staticmethod
    def remove(group: pathlib.Path) -> bool:
        """Tries to remove the cgroup, in which ended processes linger for a moment."""
        try:
            group.rmdir()
        except OSError:
            return False
        return True
