# SPDX-License-Identifier: Apache-2.0

"""Tests whole Fleet programs, and Fleet's settings."""

import re
import signal
import subprocess
import sys
import unittest

import ronda_test
from ronda.paddle.fleet import DistributedStrategy
from ronda.types import ReduceOp


def accuracy_on(ranks: int) -> float:
    """Returns the accuracy of the example after two epochs."""
    done = subprocess.run(
        [ronda_test.RONDARUN, "-np", str(ranks), sys.executable, "examples/paddle_mnist.py"]
        + ["--epochs", "2"],
        capture_output=True,
        text=True,
        env=ronda_test.environment(),
    )
    found = re.search(r"epoch 2: accuracy (0\.\d+)", done.stdout)
    assert done.returncode == 0 and found, done.stdout + done.stderr
    return float(found[1])


class ProgramTest(unittest.TestCase):
    def test_two_ranks_learn_as_much_as_one(self):
        one, two = accuracy_on(1), accuracy_on(2)
        self.assertGreater(one, 0.93)
        self.assertLess(abs(one - two), 0.02)

    def test_a_call_before_init_says_so(self):
        done = ronda_test.run("from ronda.paddle import fleet\nfleet.worker_num()\n")
        self.assertNotEqual(done.code, 0)
        self.assertIn("worker_num(): call fleet.init(is_collective=True) first", done.err)

    def test_a_job_may_follow_another(self):
        done = ronda_test.run(
            """
            import os
            from ronda.paddle import fleet
            for _ in range(2):
                fleet.init(is_collective=True)
                assert os.environ["PADDLE_TRAINERS_NUM"] == "1"
                fleet.stop_worker()
                assert "PADDLE_TRAINERS_NUM" not in os.environ
            """
        )
        self.assertEqual(done.code, 0, done.err)

    def test_an_optimizer_steps_in_the_next_job_too(self):
        done = ronda_test.run(
            """
            import paddle
            from ronda.paddle import fleet
            layer = paddle.nn.Linear(1, 1, weight_attr=paddle.nn.initializer.Constant(0.0))
            sgd = paddle.optimizer.SGD(1.0, parameters=layer.parameters())
            for job in range(2):
                fleet.init(is_collective=True)
                optimizer = fleet.distributed_optimizer(sgd) if job == 0 else optimizer
                for _ in range(2):
                    layer(paddle.ones([1, 1])).sum().backward()
                    optimizer.step()
                    optimizer.clear_grad()
                fleet.stop_worker()
            assert layer.weight.item() == -4, layer.weight
            """,
            ranks=2,
        )
        self.assertEqual(done.code, 0, done.err)

    def test_a_model_that_is_older_than_the_job_trains(self):
        done = ronda_test.run(
            """
            import paddle
            zeros = paddle.nn.initializer.Constant(0.0)
            layer = paddle.nn.Linear(1, 1, weight_attr=zeros, bias_attr=False)
            model = paddle.Model(layer)
            from ronda.paddle import fleet
            fleet.init(is_collective=True)
            sgd = paddle.optimizer.SGD(1.0, parameters=model.parameters())
            model.prepare(fleet.distributed_optimizer(sgd), lambda output, label: output.sum())
            data = paddle.io.TensorDataset([paddle.to_tensor([[1.0], [3.0]]), paddle.zeros([2, 1])])
            model.fit(data, batch_size=1, shuffle=False, verbose=0)
            assert layer.weight.item() == -2, layer.weight
            """,
            ranks=2,
        )
        self.assertEqual(done.code, 0, done.err)

    def test_a_rank_with_a_damaged_heap_ends(self):
        done = ronda_test.run(
            """
            import ctypes
            from ronda.paddle import fleet
            fleet.init(is_collective=True)
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            libc.free.argtypes = [ctypes.c_void_p]
            block, next_block = libc.malloc(3000), libc.malloc(3000)
            libc.free(block)
            libc.free(block)
            """,
            ranks=1,
        )
        self.assertEqual(done.code, 128 + signal.SIGABRT, done.err)
        self.assertIn("was killed by signal 6 (SIGABRT)", done.err)


class StrategyTest(unittest.TestCase):
    def test_has_paddles_defaults(self):
        strategy = DistributedStrategy()
        self.assertEqual(strategy.fuse_grad_size_in_MB, 32)
        self.assertEqual(strategy.gradient_merge_configs, {"k_steps": 1, "avg": True})
        self.assertFalse(strategy.sharding)
        self.assertEqual(strategy.job_options(), {})
        self.assertEqual(strategy.op(), ReduceOp.AVERAGE)
        self.assertEqual(strategy.merging(), (1, 1.0))

    def test_settings_have_their_effect(self):
        strategy = DistributedStrategy()
        strategy.fuse_grad_size_in_MB = 16
        self.assertEqual(strategy.job_options(), {"fusion_threshold": 16 << 20})
        strategy.fuse_all_reduce_ops = False
        self.assertEqual(strategy.job_options(), {"fusion_threshold": -1})
        strategy.gradient_merge_configs = {"k_steps": 4}
        self.assertEqual(strategy.merging(), (1, 1.0))
        strategy.gradient_merge = True
        self.assertEqual(strategy.merging(), (4, 0.25))
        strategy.gradient_merge_configs = {"avg": False}
        self.assertEqual(strategy.merging(), (4, 1.0))
        strategy.nccl_comm_num = 2
        strategy.sharding = False

    def test_an_unknown_setting_names_the_nearest(self):
        strategy = DistributedStrategy()
        with self.assertRaisesRegex(AttributeError, "no fp16_allreduc; is it fp16_allreduce"):
            strategy.fp16_allreduc = True
        with self.assertRaisesRegex(ValueError, "has no k_step; is it k_steps"):
            strategy.gradient_merge_configs = {"k_step": 2}

    def test_missing_setting_names_a_remedy(self):
        strategy = DistributedStrategy()
        with self.assertRaisesRegex(ValueError, "dgc is not there: .* in C"):
            strategy.dgc = True
        with self.assertRaisesRegex(ValueError, "sharding is not there: Ronda replicates"):
            strategy.sharding = True

    def test_a_value_of_another_kind_is_refused(self):
        strategy = DistributedStrategy()
        for name, value in {
            "fp16_allreduce": 1,
            "fuse_grad_size_in_MB": "32",
            "gradient_merge_configs": {"k_steps": 0},
            "gradient_scale_configs": {"scale_strategy": "customized"},
        }.items():
            with self.assertRaisesRegex(ValueError, name):
                setattr(strategy, name, value)


if __name__ == "__main__":
    unittest.main()
