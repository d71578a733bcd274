# SPDX-License-Identifier: Apache-2.0

"""Tests whole Keras programs: the example, and jobs that lose a rank in model.fit()."""

import re
import subprocess
import sys
import unittest

import ronda_test

# Rank 1 dies in the second epoch.
KILLED = """
    import os, signal
    import keras
    import numpy as np
    import ronda.keras as hvd

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (hvd.rank(), self.epoch, batch) == (1, 1, 1):
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

    def fit(*callbacks, **options):
        inputs, labels = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)
        options |= {"batch_size": 2, "epochs": 4, "verbose": 0}
        model.fit(inputs, labels, callbacks=[*callbacks, Kill()], **options)

    hvd.init()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
"""

REPORT = """
    try:
        fit(hvd.callbacks.BroadcastGlobalVariablesCallback())
    except Exception as error:
        print(f"raised {type(error).__name__}: {error}", flush=True)
        raise SystemExit(3)
"""

GO_ON = """
    @hvd.elastic.run
    def train(state):
        fit(
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=0),
            initial_epoch=state.epoch,
        )

    state = hvd.elastic.KerasState(model, epoch=0)
    train(state)
    print(f"finished {hvd.size()} {state.epoch} {int(model.optimizer.iterations)}", flush=True)
    hvd.shutdown()
"""


class ProgramTest(unittest.TestCase):
    def test_the_example(self):
        done = subprocess.run(
            [ronda_test.RONDARUN, "-np", "2", sys.executable, "examples/keras_mnist.py"],
            capture_output=True,
            text=True,
            env={**ronda_test.environment(), "KERAS_BACKEND": "jax"},
        )
        accuracy = re.search(r"epoch \d: accuracy (0\.\d+)", done.stdout)
        self.assertTrue(done.returncode == 0 and accuracy, done.stdout + done.stderr)
        self.assertGreaterEqual(float(accuracy[1]), 0.97)

    def test_a_killed_rank_is_named_by_the_others(self):
        for backend in ("jax", "tensorflow", "torch"):
            with self.subTest(backend):
                env = {"KERAS_BACKEND": backend}
                done = ronda_test.run(KILLED + REPORT, ranks=2, env=env)
                self.assertNotEqual(done.code, 0)
                self.assertRegex(done.out, "raised (?s:.*)PeerFailedError|raised PeerFailedError")
                self.assertRegex(done.out, "rank 1")
                if backend == "jax":
                    self.assertRegex(done.out, r"\[allreduce at program.py:\d+\]")

    def test_the_others_go_on_from_the_last_commit(self):
        done = ronda_test.run(KILLED + GO_ON, 2, ["--min-np", "1"], {"KERAS_BACKEND": "jax"})
        # rondarun replaces rank 1. The new process may join in time, or only after training has
        # ended.
        self.assertRegex(done.out, "finished [12] 4 16", done.err)

    def test_the_package_imports_no_framework(self):
        done = ronda_test.run(
            """
            import sys
            import ronda
            print({"keras", "tensorflow", "jax", "torch", "numpy"} & set(sys.modules))
            """
        )
        self.assertEqual(done.out, "set()\n", done.err)


if __name__ == "__main__":
    unittest.main()
