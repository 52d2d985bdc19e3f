"""The paper's 11 language tasks, declared in `text_tasks.yaml`: their data, the splits, and a row's right answer.

The splits are those of `r-three/mats`, whose set-up the paper uses: training and validation data come from the
published training split, of which validation takes the last rows; test data are the published validation split, whose
labels are public.  Three surprises:

- QASC: there the same rows are validation and test data.  Here the test data are the published validation split, as for
  the other tasks.
- Story Cloze: nothing was published for training.  The published validation split takes its place, and the published
  test split is the test data.  The data are given out on request, so no repository is named.
- Cosmos QA and Social IQa: their own repositories hold scripts, which no library runs any more.  The named ones are
  copies by others; whether their rows come in the published order was not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tallmasks.tasks.dataset_files import HubFiles
from tallmasks.tasks.task import Split, Task, shipped_yaml
from tallmasks.tasks.text.rendering import Row

Kind = Literal["text", "number", "texts", "choices", "answers"]
"""What a column holds: a text (or a number, read as one), a whole number, a list of texts, a struct of two lists of
texts (`text` and `label`), a struct of one (`text`)."""


@dataclass(frozen=True)
class TextTask(Task):
    """A task with a dataset of texts.  It has prompts instead of classes: see `prompt_files`.

    Attributes:
        title: What the dataset's authors call it.
        source: Its files on the hub; without a repository where they are given out on request.
        published: The dataset's own names of the splits that "train" and "test" are made from.
        counts: Rows in these two.
        held_out: How many of the last rows of "train" are validation data.
        columns: The columns that prompts or answers need, and what each holds.
        right: The place of a row's right answer among the choices; None where the model writes its answer.
        row: A row in the dataset's schema, made up here.
        ask: Where to ask for data that are given out on request.
    """

    title: str
    source: HubFiles
    published: Mapping[str, str]
    counts: Mapping[str, int]
    held_out: int
    columns: Mapping[str, Kind]
    right: Callable[[Row], int] | None
    row: Row
    ask: str = ""

    @property
    def free(self) -> bool:
        return self.right is None

    def rows(self, split: Split) -> int:
        """How many rows a split has, of those published."""
        if split == "test":
            return self.counts["test"]
        return self.held_out if split == "validation" else self.counts["train"] - self.held_out


def text_task_of(params: Mapping[str, Any]) -> TextTask:
    """The task of a recipe with these parameters."""
    task, data = TASKS[params["task"]], params["data"]
    source = replace(task.source, revision=data.get("revision", task.source.revision))
    return replace(task, source=source, held_out=data["held_out"])


def _number(column: str, first: int = 0) -> Callable[[Row], int]:
    """The right answer's number is in a column, counted from `first`."""
    return lambda row: int(row[column]) - first


def _letter(row: Row) -> int:
    """The right answer's letter is in `answerKey`, those of the choices beside them."""
    return int(row["choices"]["label"].index(row["answerKey"]))


def _shipped(name: str, declared: dict[str, Any]) -> TextTask:
    source = HubFiles(declared.pop("hub", ""), declared.pop("files"), declared.pop("revision", None))
    answer = declared.pop("answer")
    right = {"letter": _letter, "written": None}[answer] if isinstance(answer, str) else _number(**answer)
    defaults = {"published": {"train": "train", "test": "validation"}, "held_out": 1000}
    return TextTask(name=name, classes=(), templates=(), source=source, right=right, **{**defaults, **declared})


TASKS: Mapping[str, TextTask] = {
    name: _shipped(name, declared)
    for name, declared in shipped_yaml(Path(__file__).with_name("text_tasks.yaml")).items()
}
