# SPDX-License-Identifier: Apache-2.0

"""A Slurm cluster on this host, in separate namespaces. All processes of the cluster end with the
test.

The machine that submits jobs and each node have separate process ids, hostnames and /dev/shm, so
Ronda treats the nodes as separate hosts. The nodes share a network that no other process sees.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from ronda_test import Finished, environment, eventually, finish

_NODES = ("node0", "node1")

_NEEDED = "munged slurmctld slurmd srun unshare nsenter setpriv ip openssl".split()
# The daemons are in folders that may be missing from a user's PATH.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

_HOSTS = """
127.0.0.1 localhost
10.70.0.9 head
10.70.0.10 node0
10.70.0.11 node1
"""

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=head(10.70.0.9)
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0
# Slurm notices a lost node soon, and gives ranks that save their state much time on a busy machine.
SlurmdTimeout=10
KillWait=120
NodeName=node0 NodeAddr=10.70.0.10 Port=6820 CPUs=4
NodeName=node1 NodeAddr=10.70.0.11 Port=6821 CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""

_MACHINE = """
hostname head
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/etc /etc/slurm
mount -t tmpfs ronda-test /run
ip link set lo up
ip link add eth0 type veth peer name eth1
for last in 9 10 11; do ip address add 10.70.0.$last/24 dev eth0; done
ip link set eth0 up
ip link set eth1 up
mkdir /run/munge
munged --force --key-file {folder}/key --seed-file {folder}/seed --log-file {folder}/munged.log
slurmctld -c
"""

_NODE = "hostname $0; mount -t tmpfs ronda-test /dev/shm; slurmd -D -N $0"

# A process with this prefix is killed when the process that started it ends.
_WITH_ITS_PARENT = ("setpriv", "--pdeathsig", "KILL")
_KINDS = ("--mount", "--uts", "--pid")
_OWN = (*_WITH_ITS_PARENT, "unshare", *_KINDS, "--fork", "--kill-child", "--mount-proc")


def missing() -> str | None:
    """Returns why no cluster can run here, or None if one can."""
    if os.geteuid() != 0:
        return "only root can make the hosts of a cluster of Slurm"
    absent = [name for name in _NEEDED if not shutil.which(name, path=PATH)]
    if absent:
        packages = "slurmctld, slurmd, slurm-client, munge, iproute2, openssl"
        return f"{', '.join(absent)} not installed; they are in Debian's {packages}"
    return None


def _environment() -> dict[str, str]:
    return {**environment(), "PATH": PATH}


class Cluster:
    """A running cluster, until close(). Commands run in `folder`, which the nodes can also
    access.
    """

    def __init__(self) -> None:
        self._cleanup = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Creates a new folder, because socket paths must be short, and munged checks the owner of
        # its folder.
        own = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="slurm-"))
        self.folder = pathlib.Path(own, "work")
        for name in ("work", "etc", "state", *_NODES):
            pathlib.Path(own, name).mkdir()
        pathlib.Path(own, "hosts").write_text(_HOSTS)
        pathlib.Path(own, "etc/slurm.conf").write_text(_CONFIGURATION.format(folder=own))
        # PMIx uses the same path on both nodes. The path must be in /dev/shm, because the nodes
        # share /tmp.
        pathlib.Path(own, "etc/mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")
        key = pathlib.Path(own, "key")
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        machine = self._background([*_OWN, "--net", "sleep", "infinity"])
        children = pathlib.Path(f"/proc/{machine.pid}/task/{machine.pid}/children")
        if not eventually(lambda: bool(children.read_text().split()), 60):
            raise AssertionError("unshare has started nothing")
        self._machine = children.read_text().split()[0]
        self._must(["sh", "-ec", _MACHINE.format(folder=own)])
        self._nodes = {name: self._start_node(name) for name in _NODES}
        if not eventually(lambda: self.run("sinfo -h -t idle -o %D").out.split() == ["2"], 120):
            raise AssertionError(f"the nodes have not come: {self.run('scontrol show node').out}")

    def close(self) -> None:
        """Ends all processes of the cluster."""
        self._cleanup.close()

    def _start_node(self, name: str) -> subprocess.Popen[bytes]:
        """Starts a node."""
        inside = [*_WITH_ITS_PARENT, *self._inside()]
        return self._background([*inside, *_OWN, "sh", "-c", _NODE, name])

    def end_node(self, name: str) -> None:
        """Kills a node, as if it lost power."""
        self._nodes[name].kill()

    def run(self, command: str, env: Mapping[str, str] | None = None) -> Finished:
        """Runs a bash command line on the machine that submits jobs."""
        process = subprocess.Popen(
            [*_WITH_ITS_PARENT, *self._inside(), "bash", "-ec", command],
            env={**_environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return finish(process)

    def _must(self, command: list[str]) -> None:
        subprocess.run([*self._inside(), *command], check=True, env=_environment())

    def _inside(self) -> list[str]:
        return ["nsenter", "--target", self._machine, f"--wd={self.folder}", "--net", *_KINDS]

    def _background(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
        )

        def end() -> None:
            process.kill()  # --kill-child ends the rest
            process.wait()

        self._cleanup.callback(end)
        return process
