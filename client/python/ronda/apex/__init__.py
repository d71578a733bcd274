"""The parts of NVIDIA's Apex that trainers import, which Apex itself has removed.

from ronda import apex
model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
model = apex.parallel.DistributedDataParallel(model)
with apex.amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()
"""

from ronda.apex import amp, parallel

__all__ = ["amp", "parallel"]
