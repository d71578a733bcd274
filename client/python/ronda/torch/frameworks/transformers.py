# SPDX-License-Identifier: Apache-2.0

"""Lets transformers accept `--ddp_backend ronda`: `import ronda.torch.frameworks.transformers`.

TrainingArguments created in Python accept any backend name, but the command line only accepts the
names in a list. The import also registers Ronda with Accelerate, which transformers uses for
training.
"""

from __future__ import annotations

from transformers import TrainingArguments

import ronda.torch.frameworks.accelerate  # noqa: F401
from ronda.torch.frameworks import known

# HfArgumentParser reads the list of names from this field when a program creates a parser.
# Subclasses of TrainingArguments share the field.
with known("transformers"):
    TrainingArguments.__dataclass_fields__["ddp_backend"].metadata["choices"].append("ronda")
