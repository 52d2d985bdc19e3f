"""Questions such as `3+4=` with four answers, for a look at whether a model works at all before a long evaluation."""

import operator
import random
from typing import Any

from datasets import Dataset, DatasetDict

OPERATIONS = {"sums": ("+", operator.add), "differences": ("-", operator.sub), "products": ("*", operator.mul)}


def questions(name: str) -> list[dict[str, Any]]:
    """All 100 questions of a name in OPERATIONS: the text, four different choices, and the place of the right one."""
    sign, compute = OPERATIONS[name]
    draw = random.Random(name)
    asked = []
    for left, right in ((left, right) for left in range(10) for right in range(10)):
        answer = compute(left, right)
        wrong = [number for number in range(answer - 5, answer + 6) if number != answer]
        choices = [answer, *draw.sample(wrong, 3)]
        draw.shuffle(choices)
        texts = [str(choice) for choice in choices]
        asked.append({"question": f"{left}{sign}{right}=", "choices": texts, "answer": choices.index(answer)})
    return asked


def dataset(name: str, **_: Any) -> DatasetDict:
    """The same, as lm_eval asks for it."""
    return DatasetDict({"test": Dataset.from_list(questions(name))})
