"""Examples of text classifiers: texts with labels, and the task's head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.tasks.texts import Texts, open_texts
from tallmasks.io.tensor_files import load_state

TOKENIZER = "tokenizer"
"""Name of the uint8 tensor in a pretrained file that contains the tokenizer's files, as a safetensors file."""


@dataclass(frozen=True)
class ClassifierExamples:
    """Examples of one task; implements `reproduction.models.families.Examples`.

    Attributes:
        texts: the choices of an example are the classes of the task.
        head: the tensors of the task's head by name; empty before it is trained.
    """

    texts: Texts
    head: Mapping[str, NDArray[np.float32]]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, some: Any) -> ClassifierExamples:
        return replace(self, texts=self.texts[some])


def open_examples(path: Path, head: Path | None) -> ClassifierExamples:
    return ClassifierExamples(open_texts(path), load_state(head) if head else {})
