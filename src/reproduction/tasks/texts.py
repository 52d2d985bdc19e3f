"""The file format of text examples, which text catalogues write and language models read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallmasks.io.tensor_files import open_tensors, write_tensors

FREE = -1
"""`answer` of an example without choices: the model generates text, and every entry of ``answers`` is right."""


PAIR = "\x1f"
"""Separates the two texts of an input that is a pair, such as a premise and a hypothesis."""


def joined(*texts: str) -> str:
    """One input of a text, or of a pair of texts."""
    return PAIR.join(text.replace(PAIR, " ") for text in texts)


class Text(NamedTuple):
    """One example.

    Attributes:
        answers: the choices, or all accepted free answers, with the training target first.
        answer: the index of the right choice, or `FREE`.
    """

    input: str
    answers: tuple[str, ...]
    answer: int

    @property
    def target(self) -> str:
        return self.answers[max(self.answer, 0)]


@dataclass(frozen=True)
class Texts(Sequence[Text]):
    """Examples of one task; implements `reproduction.models.families.Examples`.

    Attributes:
        letters: uint8, all distinct strings in UTF-8, concatenated; can be memory-mapped.
        ends: int64 [strings], the end of each string in ``letters``.
        inputs: int64 [N], the index of each example's input string.
        answers: int64, the string indices of all answers of all examples.
        spans: int64 [N, 2], start and end of each example's answers in ``answers``.
        right: int64 [N], the index of the right answer, or `FREE`.
    """

    letters: NDArray[np.uint8]
    ends: NDArray[np.int64]
    inputs: NDArray[np.int64]
    answers: NDArray[np.int64]
    spans: NDArray[np.int64]
    right: NDArray[np.int64]

    @classmethod
    def of(cls, examples: Iterable[Text], choices: Sequence[str] | None = None) -> Texts:
        """Pack examples; equal strings are stored once.  ``choices``: the answers of all examples, stored once."""
        strings: dict[str, int] = {}
        inputs: list[int] = []
        answers = [strings.setdefault(choice, len(strings)) for choice in choices or ()]
        spans: list[tuple[int, int]] = []
        right: list[int] = []
        for example in examples:
            inputs.append(strings.setdefault(example.input, len(strings)))
            start = 0
            if choices is None:
                start = len(answers)
                answers += [strings.setdefault(answer, len(strings)) for answer in example.answers]
            spans.append((start, len(answers)))
            right.append(example.answer)
        encoded = [string.encode() for string in strings]
        return cls(
            letters=np.frombuffer(b"".join(encoded), np.uint8),
            ends=np.cumsum([len(letters) for letters in encoded], dtype=np.int64),
            inputs=np.array(inputs, np.int64),
            answers=np.array(answers, np.int64),
            spans=np.array(spans, np.int64).reshape(-1, 2),
            right=np.array(right, np.int64),
        )

    def __len__(self) -> int:
        return len(self.right)

    def __getitem__(self, some: Any) -> Any:
        """A `Text` for an integer, `Texts` for a slice or indices int64 [n]."""
        if not isinstance(some, int | np.integer):
            return Texts(self.letters, self.ends, self.inputs[some], self.answers, self.spans[some], self.right[some])
        start, end = self.spans[some]
        answers = tuple(self._string(index) for index in self.answers[start:end])
        return Text(self._string(self.inputs[some]), answers, int(self.right[some]))

    @property
    def questions(self) -> list[str]:
        """The input of each example."""
        return list(map(self._string, self.inputs))

    def _string(self, index: int) -> str:
        start = int(self.ends[index - 1]) if index else 0
        return bytes(self.letters[start : int(self.ends[index])]).decode()


def write_texts(
    path: Path, examples: Iterable[Text], metadata: Mapping[str, str], choices: Sequence[str] | None = None
) -> int:
    """Write the examples atomically and return their number.  ``choices``: see `Texts.of`."""
    texts = Texts.of(examples, choices)
    write_tensors(path, vars(texts), metadata)
    return len(texts)


def open_texts(path: Path) -> Texts:
    tensors = open_tensors(path)
    rest = {name: tensors.read(name) for name in ("ends", "inputs", "answers", "spans", "right")}
    return Texts(letters=tensors.view("letters"), **rest)
