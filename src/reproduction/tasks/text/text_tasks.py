"""The paper's 11 language tasks, declared in `text_tasks.yaml`, and classification tasks in `class_tasks.yaml`.

The splits of the 11 follow `r-three/mats`, as in the paper: validation is the last rows of the published training
split, and test is the published validation split, because its labels are public.  Three exceptions:

- QASC: `r-three/mats` uses the same rows for validation and test.  Here it is split like the other tasks.
- Story Cloze has no published training split.  Training and validation use the published validation split, test the
  published test split.  The authors send the data on request, so no repository is named.
- Cosmos QA and Social IQa: the original repositories contain loading scripts, which the libraries no longer run.  The
  repositories named here are copies by others; their row order was not compared with the original.

Classification tasks use the published splits, too.  Some datasets are sorted by label, so their training rows are
shuffled before the last ones are taken for validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from reproduction.tasks.dataset_files import HubFiles
from reproduction.tasks.task import Split, Task, shipped_yaml
from reproduction.tasks.text.prompt_files import Prompt, PromptFile, prompts_of
from reproduction.tasks.text.rendering import Row
from reproduction.tasks.texts import PAIR

Kind = Literal["text", "number", "texts", "choices", "answers"]
"""The type of a column: a string, an integer, a list of strings, a struct of two such lists (`text` and `label`), or a
struct of one (`text`).  Numbers in a "text" column are read as strings."""


@dataclass(frozen=True)
class TextTask(Task):
    """A task on a text dataset.  It has prompts instead of classes: see `prompt_files`.

    Attributes:
        source: Its files on the hub; the repository is "" for data sent on request.
        published: The dataset's own names of the splits used as "train" and "test".
        counts: Rows in these two.
        held_out: Number of rows at the end of "train" used for validation.
        columns: The columns that prompts and answers need.
        right: Returns the index of the right choice for a row; None if the model generates its answer.
        row: An invented row in the dataset's schema.
        ask: Where to request the data, if they are sent on request.
        texts: Of a classification task, the columns of the text, or of a pair of texts.
        label: Of a classification task, the column with the number of the class.
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
    texts: tuple[str, ...] = ()
    label: str = ""

    @property
    def prompt_file(self) -> PromptFile:
        """The prompts; a classification task has one, with the bare texts and the classes as choices."""
        if not self.texts:
            return prompts_of(self.name)
        text = PAIR.join(f"{{{{ {column} }}}}" for column in self.texts)
        choices = " ||| ".join(self.classes)
        prompt = Prompt("plain", choices, f"{text} ||| {{{{ answer_choices[{self.label}] }}}}")
        return PromptFile("the bare texts", "no prompts", 1, (prompt,))

    @property
    def writes_answers(self) -> bool:
        return self.right is None

    def rows(self, split: Split) -> int:
        """The published number of rows in a split."""
        if split == "test":
            return self.counts["test"]
        return self.held_out if split == "validation" else self.counts["train"] - self.held_out


def text_task_of(params: Mapping[str, Any]) -> TextTask:
    """The task of a recipe, with the recipe's revision and number of validation rows."""
    task, data = TASKS[params["task"]], params["data"]
    source = replace(task.source, revision=data.get("revision", task.source.revision))
    return replace(task, source=source, held_out=data["held_out"])


def _number(column: str, first: int = 0) -> Callable[[Row], int]:
    """For datasets with the index of the right choice in a column, counted from `first`."""
    return lambda row: int(row[column]) - first


def _letter(row: Row) -> int:
    """For datasets with the letter of the right choice in `answerKey`."""
    return int(row["choices"]["label"].index(row["answerKey"]))


def _shipped(name: str, declared: dict[str, Any]) -> TextTask:
    source = HubFiles(declared.pop("hub", ""), declared.pop("files"), declared.pop("revision", None))
    answer = declared.pop("answer")
    right = {"letter": _letter, "written": None}[answer] if isinstance(answer, str) else _number(**answer)
    defaults = {"published": {"train": "train", "test": "validation"}, "held_out": 1000}
    return TextTask(name=name, classes=(), templates=(), source=source, right=right, **{**defaults, **declared})


def _classification(name: str, declared: dict[str, Any]) -> TextTask:
    source = HubFiles(declared.pop("hub"), declared.pop("files"), declared.pop("revision", None))
    texts, label, first = tuple(declared.pop("text")), declared.pop("label", "label"), declared.pop("first", 0)
    classes, templates = tuple(declared.pop("classes")), tuple(declared.pop("templates"))
    return TextTask(
        name=name,
        classes=classes,
        templates=templates,
        source=source,
        texts=texts,
        label=f"{label} - {first}" if first else label,
        columns={**dict.fromkeys(texts, "text"), label: "number"},
        right=_number(label, first),
        row={**{column: f"The {column} of an example." for column in texts}, label: first},
        **{"published": {"train": "train", "test": "test"}, "held_out": 1000, **declared},
    )


def _declared(file: str, kind: Callable[[str, dict[str, Any]], TextTask]) -> dict[str, TextTask]:
    return {name: kind(name, declared) for name, declared in shipped_yaml(Path(__file__).with_name(file)).items()}


TASKS: Mapping[str, TextTask] = {
    **_declared("text_tasks.yaml", _shipped),
    **_declared("class_tasks.yaml", _classification),
}
