# SPDX-License-Identifier: Apache-2.0

"""Tests Horovod's elastic API with ranks that die, join and leave. The test itself acts as the
launcher.
"""

from __future__ import annotations

import functools
import os
import re
import select
import signal
import socket
import subprocess
import sys
import unittest
from collections.abc import Callable

import ronda_test

# The gradients depend only on the batch, so the result does not depend on the number of members.
PROGRAM = """
    import os, signal
    import torch
    import ronda.torch as hvd
    from ronda.torch import elastic

    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(1 if hvd.rank() == 0 else int(os.environ["MEMBER"]))
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    plan = dict(item.split(":") for item in os.environ.get("PLAN", "").split())
    resets = 0

    def count():
        global resets
        resets += 1

    @elastic.run
    def train(state):
        while state.batch < 30 or hvd.size() < int(os.environ.get("AT_LEAST", "1")):
            what = plan.pop(str(state.batch), None)
            if what is not None:
                os.kill(os.getpid(), getattr(signal, what))
            if state.batch < 30:
                inputs = torch.arange(5.0) + state.batch % 7
                optimizer.zero_grad()
                (model(inputs) - 1).square().mean().mul(0.01).backward()
                optimizer.step()
            else:
                hvd.allreduce(torch.ones(1), name="wait for others")
            state.batch += 1
            state.commit()

    state = elastic.TorchState(model=model, optimizer=optimizer, batch=0)
    state.register_reset_callbacks([count])
    train(state)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    print(f"finished {hvd.size()} {resets} {weights.sum():.5f} {weights.square().sum():.5f}")
    hvd.shutdown()
"""

# The job begins with one member. Each member prints its averaged gradients, with the number of
# members.
GROWING = """
    import torch
    import ronda.torch as hvd
    from ronda.torch import elastic

    hvd.init()
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    averages = set()

    @elastic.run
    def train(state):
        while state.together < 10:
            optimizer.zero_grad()
            model(torch.full((1, 1), hvd.rank() + 1.0)).sum().backward()
            optimizer.step()
            averages.add((hvd.size(), model.weight.grad.item()))
            state.together += hvd.size() > 1
            state.commit()

    train(elastic.TorchState(model=model, optimizer=optimizer, together=0))
    print(sorted(averages))
    hvd.shutdown()
"""

# Each member prints its device and the local ranks that it has had. The first member dies during
# the job.
DEVICES = """
    import os, signal
    import torch
    import ronda.torch as hvd
    from ronda.torch import elastic

    device = hvd.device_index()
    hvd.init()
    local_ranks = set()

    @elastic.run
    def train(state):
        while state.batch < 10 or hvd.size() < 3:
            assert hvd.device_index() == device
            local_ranks.add(hvd.local_rank())
            if state.batch == 5 and device == hvd.local_rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.allreduce(torch.ones(1))
            state.batch += 1
            state.commit()

    train(elastic.ObjectState(batch=0))
    print("device", device, "local ranks", sorted(local_ranks))
    hvd.shutdown()
"""

# One member dies in step 5, and another one in the callback that follows.
RESETS = """
    import os, signal
    import torch
    import ronda.torch as hvd
    from ronda.torch import elastic

    hvd.init()

    def reset():
        if os.environ["PLAN"] == "in reset":
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(torch.ones(1), name="reset")

    @elastic.run
    def train(state):
        while state.batch < 10:
            hvd.allreduce(torch.ones(1), name="step")
            if state.batch == 5 and os.environ["PLAN"] == "in step 5":
                os.kill(os.getpid(), signal.SIGKILL)
            state.batch += 1
            state.commit()

    state = elastic.ObjectState(batch=0)
    state.register_reset_callbacks([reset])
    train(state)
    print("finished", hvd.size(), state.batch)
    hvd.shutdown()
"""


class Launcher:
    """Assigns ranks to the members in the order in which they started."""

    def __init__(self, env: dict[str, str] | None = None, command: list[str] | None = None) -> None:
        self.command = [sys.executable, *(command or [ronda_test.program(PROGRAM)])]
        self.env = {**ronda_test.environment(), **(env or {})}
        self.env["RONDA_JOB_ID"] = f"test-python-elastic-{os.getpid()}-{id(self):x}"
        self.members: list[subprocess.Popen[str]] = []
        self.sockets: list[socket.socket] = []
        self.stages: list[str] = []  # starting, joined, placed, met, leaving or ended
        self.sizes: list[int] = []
        self.epoch = -1

    def start(self, plan: str = "") -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fd = theirs.fileno()
        env = {"PLAN": plan, "MEMBER": str(len(self.members) + 2), "RONDA_MEMBERSHIP_FD": str(fd)}
        self.members.append(
            subprocess.Popen(
                self.command,
                env={**self.env, **env},
                pass_fds=[fd],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        theirs.close()
        self.sockets.append(ours)
        self.stages.append("starting")

    def run(self, on_met: Callable[[int], None] = lambda size: None) -> list[ronda_test.Finished]:
        told_change = False
        while any(stage != "ended" for stage in self.stages):
            alive = [s for s, stage in zip(self.sockets, self.stages) if stage != "ended"]
            ready, _, _ = select.select(alive, [], [], 60)
            if not ready:
                for member in self.members:
                    member.kill()
                raise AssertionError(f"the members do nothing: {self.stages}")
            for each in ready:
                self._listen(self.sockets.index(each))
            if "placed" not in self.stages and "met" in self.stages:
                if len(self.sizes) <= self.epoch:
                    self.sizes.append(self.stages.count("met"))
                    told_change = False
                    on_met(self.sizes[-1])
                if "joined" in self.stages and "starting" not in self.stages and not told_change:
                    told_change = True
                    self._tell_change()
            if "joined" in self.stages and not {"starting", "placed", "met"} & set(self.stages):
                self._place()
        finished = []
        for member, each in zip(self.members, self.sockets):
            out, err = member.communicate(timeout=60)
            each.close()
            finished.append(ronda_test.Finished(member.returncode, out, err, 0))
        return finished

    def _listen(self, member: int) -> None:
        try:
            word = self.sockets[member].recv(4096).decode().split(" ")[0]
        except ConnectionResetError:
            word = ""
        stages = {"join": "joined", "met": "met", "leave": "leaving", "": "ended"}
        self.stages[member] = stages[word]

    def _tell_change(self) -> None:
        for each, stage in zip(self.sockets, self.stages):
            if stage == "met":
                try:
                    each.send(b"change")
                except BrokenPipeError:
                    pass  # it has just died

    def _place(self) -> None:
        self.epoch += 1
        joined = [i for i, stage in enumerate(self.stages) if stage == "joined"]
        for rank, member in enumerate(joined):
            place = f"place {self.epoch} {rank} {len(joined)} {rank} {len(joined)} 0 1 0 "
            self.stages[member] = "placed"
            self.sockets[member].send(place.encode())


@functools.cache
def weights_of_one_rank() -> str:
    launcher = Launcher()
    launcher.start()
    return launcher.run()[0].out.split(" ", 3)[3].strip()


class ElasticTest(unittest.TestCase):
    def results(self, finished: list[ronda_test.Finished]) -> list[list[str]]:
        """Returns what finished members print: the number of ranks, the number of resets, and the
        weights.
        """
        found = []
        for each in finished:
            match = re.search(r"finished (\d+) (\d+) (\S+ \S+)", each.out)
            if match is not None:
                self.assertEqual(each.code, 0, each.err)
                found.append(list(match.groups()))
        return found

    def test_survivors_redo_the_step_under_way(self) -> None:
        want = weights_of_one_rank()
        for victim in (0, 2):
            with self.subTest(victim=victim):
                launcher = Launcher()
                for member in range(3):
                    launcher.start("12:SIGKILL" if member == victim else "")
                finished = launcher.run()
                self.assertEqual(finished[victim].code, -signal.SIGKILL)
                self.assertEqual(launcher.sizes, [3, 2])
                results = self.results(finished)
                self.assertEqual([each[:2] for each in results], [["2", "1"]] * 2, finished)
                self.assertEqual({each[2] for each in results}, {want})

    def test_a_rank_leaves_at_its_commit_and_the_others_lose_nothing(self) -> None:
        launcher = Launcher()
        launcher.start()
        launcher.start("12:SIGTERM")
        finished = launcher.run()
        self.assertEqual((finished[1].code, finished[1].out), (0, ""), finished[1].err)
        self.assertEqual(launcher.sizes, [2, 1])
        self.assertEqual(self.results(finished), [["1", "1", weights_of_one_rank()]])

    def test_joining_rank_gets_the_state(self) -> None:
        launcher = Launcher({"AT_LEAST": "3"})
        launcher.start()
        launcher.start()
        finished = launcher.run(lambda size: launcher.start() if size == 2 else None)
        self.assertEqual(launcher.sizes, [2, 3])
        results = self.results(finished)
        self.assertEqual(len(results), 3, finished)
        self.assertEqual(len({each[2] for each in results}), 1)
        self.assertEqual(results[0][2], weights_of_one_rank())

    def test_a_rank_dies_in_a_reset_callback_of_another_failure(self) -> None:
        launcher = Launcher(command=[ronda_test.program(RESETS)])
        for plan in ("", "in step 5", "in reset"):
            launcher.start(plan)
        finished = launcher.run()
        self.assertEqual(launcher.sizes, [3, 2, 1], finished)
        self.assertEqual([each.code for each in finished], [0, -9, -9], finished)
        self.assertEqual(finished[0].out, "finished 1 10\n")

    def test_optimizer_of_a_single_member_averages_when_the_job_has_grown(self) -> None:
        launcher = Launcher(command=[ronda_test.program(GROWING)])
        launcher.start()
        finished = launcher.run(lambda size: launcher.start() if size == 1 else None)
        self.assertEqual(launcher.sizes, [1, 2], finished)
        outs = [each.out for each in finished]
        self.assertEqual(outs, ["[(1, 1.0), (2, 1.5)]\n", "[(2, 1.5)]\n"], finished)

    def test_the_device_stays_while_the_local_rank_changes(self) -> None:
        done = ronda_test.run(DEVICES, ranks=3, options=["--min-np", "2"])
        self.assertEqual(done.code, 0, done.err)
        told = dict(re.findall(r"device (\d) local ranks (.*)", done.out))
        self.assertEqual(sorted(told), ["0", "1", "2"], done.out + done.err)
        self.assertIn("0, 1", told["1"])
        self.assertIn("1, 2", told["2"])

    def test_the_example_learns_while_a_rank_comes_and_the_first_one_dies(self) -> None:
        launcher = Launcher(command=["examples/pytorch_elastic.py", "--epochs", "2"])
        launcher.start()
        launcher.start()

        def on_met(size: int) -> None:
            if size == 3:
                launcher.members[0].kill()
            elif len(launcher.members) == 2:
                launcher.start()

        finished = launcher.run(on_met)
        self.assertEqual(launcher.sizes, [2, 3, 2])
        self.assertEqual([each.code for each in finished], [-signal.SIGKILL, 0, 0], finished)
        accuracy = re.search(r"epoch 2: accuracy (0\.\d+)", finished[1].out)
        self.assertIsNotNone(accuracy, finished)
        self.assertGreater(float(accuracy[1]), 0.9)

    def test_without_an_elastic_launcher_a_reform_is_refused(self) -> None:
        done = ronda_test.run(
            """
            import ronda
            from ronda._library import native
            ronda.init()
            native.elastic_begin_update()
            native.elastic_end_update()
            print(native.elastic_sync(-1), native.elastic_poll())
            try:
                native.elastic_reform("a reason")
            except ronda.InvalidArgumentError as error:
                print("--min-np" in str(error))
            """
        )
        self.assertEqual((done.code, done.out), (0, "(1, 0, 0, 0, 0) 0\nTrue\n"), done.err)

    def test_a_process_that_has_lost_its_gpu_ends(self) -> None:
        done = ronda_test.run(
            """
            from ronda import _elastic, errors
            from ronda.torch import elastic

            def reform(reason):
                print(reason, flush=True)
                raise errors.InternalError("cuda:0 cannot be used by this process any more")

            class State(elastic.State):
                def sync_with_newest(self): pass
                def restore(self): pass

            _elastic.is_elastic, _elastic.reform = lambda: True, reform

            @elastic.run
            def train(state):
                raise errors.PeerFailedError("rank 1 died")

            train(State())
            """
        )
        self.assertEqual((done.code, done.out), (1, "rank 1 died\n"), done.err)
        self.assertIn("InternalError: cuda:0 cannot be used by this process any more", done.err)


if __name__ == "__main__":
    unittest.main()
