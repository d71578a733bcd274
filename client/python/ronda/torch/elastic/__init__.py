# SPDX-License-Identifier: Apache-2.0

"""Horovod's elastic API for PyTorch; ronda/_elastic.py explains how it works."""

from ronda._elastic import HostsUpdatedInterrupt, ObjectState, State, run
from ronda.torch.elastic.sampler import ElasticSampler
from ronda.torch.elastic.state import TorchState

__all__ = [
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]
