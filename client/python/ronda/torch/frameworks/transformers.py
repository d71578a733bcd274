"""Has transformers take `--ddp_backend ronda`: `import ronda.torch.frameworks.transformers`.

TrainingArguments made in Python take any name, those of a command line one of a list. Accelerate,
which transformers trains with, is told as well.
"""

from __future__ import annotations

from transformers import TrainingArguments

import ronda.torch.frameworks.accelerate  # noqa: F401
from ronda.torch.frameworks import known

# HfArgumentParser reads the list when a program makes a parser. Subclasses share the field.
with known("transformers"):
    TrainingArguments.__dataclass_fields__["ddp_backend"].metadata["choices"].append("ronda")
