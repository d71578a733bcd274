# SPDX-License-Identifier: Apache-2.0

"""ronda.keras, under the name of Horovod's module for tf.keras."""

from ronda.keras import *  # noqa: F403
