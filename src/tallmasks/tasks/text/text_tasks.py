"""The paper's 11 language tasks: where their data are, how these are split, and which answer of a row is right.

The splits are those of `r-three/mats`, whose set-up the paper uses: training and validation data come from the
published training split, of which validation takes the last rows; test data are the published validation split, whose
labels are public.  Where data and set-up are not what one expects:

- QASC: there the same rows are validation and test data.  Here the test data are the published validation split, as for
  the other tasks.
- Story Cloze: nothing was published for training.  The published validation split takes its place, and the published
  test split is the test data.  The data are given out on request, so no repository is named here.
- Cosmos QA and Social IQa: their own repositories hold scripts, which no library runs any more.  The ones named here
  are copies by others; whether their rows come in the published order was not checked.
- Commits of seven digits: no more is known to us of these; the full one is found when the data are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tallmasks.tasks.dataset_files import HubFiles
from tallmasks.tasks.task import Task
from tallmasks.tasks.text.rendering import Row

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Kind = Literal["text", "number", "numeral", "texts", "choices", "answers"]
"""What a column holds: a text, a whole number, a number that is written as a text or as a number, a list of texts, a
struct of two lists of texts (`text` and `label`), a struct of one (`text`)."""


@dataclass(frozen=True)
class TextTask(Task):
    """A task with a dataset of texts.  It has prompts instead of classes: see `prompt_files`.

    Attributes:
        title: What the dataset's authors call it.
        source: Its files on the hub; without a repository where they are given out on request.
        published: What the dataset calls the splits that "train" and "test" are made from.
        counts: Rows in these two.
        held_out: How many of the last rows of "train" are validation data.
        columns: The columns that prompts or answers need, and what each holds.
        right: The place of a row's right answer among the choices; of a free answer, None.
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


def task_of(params: Mapping[str, Any]) -> TextTask:
    """The task whose examples a recipe with these parameters is of."""
    task, data = TASKS[params["task"]], params["data"]
    source = replace(task.source, revision=data.get("revision", task.source.revision))
    return replace(task, source=source, held_out=data["held_out"])


def _number(column: str, first: int = 0) -> Callable[[Row], int]:
    """The right answer's number is in a column, counted from `first`."""
    return lambda row: int(row[column]) - first


def _letter(row: Row) -> int:
    """The right answer's letter is in `answerKey`, those of the choices beside them."""
    return int(row["choices"]["label"].index(row["answerKey"]))


def _task(
    name: str,
    title: str,
    description: str,
    source: HubFiles,
    rows: tuple[int, int],
    columns: Mapping[str, Kind],
    right: Callable[[Row], int] | None,
    row: Row,
    held_out: int = 1000,
    published: tuple[str, str] = ("train", "validation"),
    ask: str = "",
) -> TextTask:
    """Rows and published names are of the splits that training and test data are made from."""
    counts, names = (
        dict(zip(("train", "test"), rows, strict=True)),
        dict(zip(("train", "test"), published, strict=True)),
    )
    return TextTask(name, (), (), description, title, source, names, counts, held_out, columns, right, row, ask)


def _parquet(hub: str, revision: str, folder: str) -> HubFiles:
    files = {"train": f"{folder}/train-*.parquet", "test": f"{folder}/validation-*.parquet"}
    return HubFiles(hub, files, revision)


def _any_parquet(hub: str, revision: str) -> HubFiles:
    """A repository of which the names of the folders are not known to us."""
    return HubFiles(hub, {"train": "*train*.parquet", "test": "*validation*.parquet"}, revision)


_ALL = (
    _task(
        "qasc",
        "QASC",
        "questions for eight choices; two facts together answer one",
        _parquet("allenai/qasc", "a34ba204eb9a33b919c10cc08f4f1c8dae5ec070", "data"),
        (8134, 926),
        {"question": "text", "choices": "choices", "answerKey": "text", "fact1": "text", "fact2": "text"},
        _letter,
        {
            "question": "What can a greenhouse raise?",
            "choices": {
                "text": ["rain", "rocks", "heat", "tides", "snow", "noise", "rust", "wind"],
                "label": list("ABCDEFGH"),
            },
            "answerKey": "C",
            "fact1": "a greenhouse traps light behind glass.",
            "fact2": "Light that is trapped behind glass raises heat.",
        },
        held_out=500,
    ),
    _task(
        "quartz",
        "QuaRTz",
        "questions about what becomes more or less, and a paragraph that says why",
        _parquet("allenai/quartz", "28c1dbb56caf81799296cb17892fa73402e23464", "data"),
        (2696, 384),
        {"question": "text", "choices": "choices", "answerKey": "text", "para": "text"},
        _letter,
        {
            "question": "A kettle with less water in it boils _____ than a full one.",
            "choices": {"text": ["sooner", "later"], "label": ["A", "B"]},
            "answerKey": "A",
            "para": "The less water there is to heat, the sooner it boils.",
        },
        held_out=200,
    ),
    _task(
        "paws",
        "PAWS",
        "pairs of sentences with the same words; do they mean the same?",
        _parquet("google-research-datasets/paws", "161ece9501cf0a11f3e48bd356eaa82de46d6a09", "labeled_final"),
        (49401, 8000),
        {"sentence1": "text", "sentence2": "text", "label": "number"},
        _number("label"),
        {
            "sentence1": "The ferry went from Bergen to Stavanger .",
            "sentence2": "The ferry went from Stavanger to Bergen .",
            "label": 0,
        },
    ),
    _task(
        "story_cloze",
        "Story Cloze 2016",
        "four sentences of a story and two endings",
        HubFiles("", {"train": "cloze_test_val__spring2016*.csv", "test": "cloze_test_test__spring2016*.csv"}, None),
        (1871, 1871),
        {
            **{f"input_sentence_{n}": "text" for n in (1, 2, 3, 4)},
            "sentence_quiz1": "text",
            "sentence_quiz2": "text",
            "answer_right_ending": "number",
        },
        _number("answer_right_ending", first=1),
        {
            "input_sentence_1": "Ida wanted to bake bread.",
            "input_sentence_2": "She mixed flour and water.",
            "input_sentence_3": "Then she saw that the oven was broken.",
            "input_sentence_4": "Her neighbour let her use his.",
            "sentence_quiz1": "Ida threw the dough away.",
            "sentence_quiz2": "Ida brought him half of the bread.",
            "answer_right_ending": 2,
        },
        published=("validation", "test"),
        ask="https://cs.rochester.edu/nlp/rocstories",
    ),
    _task(
        "wiki_qa",
        "WikiQA",
        "a question and a sentence of Wikipedia; does it answer?",
        _parquet("microsoft/wiki_qa", "3f104672b5de699878fe7907afc486f0de325eb5", "data"),
        (20360, 2733),
        {"question": "text", "document_title": "text", "answer": "text", "label": "number"},
        _number("label"),
        {
            "question": "how long is a marathon",
            "document_title": "Marathon",
            "answer": "The race has a length of 42.195 kilometres .",
            "label": 1,
        },
    ),
    _task(
        "winogrande",
        "WinoGrande",
        "a sentence with a gap and two names for it",
        _parquet("allenai/winogrande", "01e74176c63542e6b0bcb004dcdea22d94fb67b5", "winogrande_xl"),
        (40398, 1267),
        {"sentence": "text", "option1": "text", "option2": "text", "answer": "numeral"},
        _number("answer", first=1),
        {
            "sentence": "The shelf fell on the vase because the _ was badly fixed.",
            "option1": "shelf",
            "option2": "vase",
            "answer": "1",
        },
    ),
    _task(
        "wsc",
        "WSC",
        "does a pronoun stand for a name of the same sentence?",
        _parquet("aps/super_glue", "3de24cf8022e94f4ee4b9d55a6f539891524d646", "wsc.fixed"),
        (554, 104),
        {"text": "text", "span1_text": "text", "span2_text": "text", "span2_index": "number", "label": "number"},
        _number("label"),
        {
            "text": "Olga thanked Marit because she had carried the boxes.",
            "span1_text": "Marit",
            "span2_text": "she",
            "span2_index": 4,
            "label": 1,
        },
        held_out=100,
    ),
    _task(
        "cosmos_qa",
        "Cosmos QA",
        "a report from somebody's life and a question about what it does not say",
        _any_parquet("Samsoup/cosmos_qa", "5511553"),
        (25262, 2985),
        {"context": "text", "question": "text", **{f"answer{n}": "text" for n in range(4)}, "label": "number"},
        _number("label"),
        {
            "context": "We stood at the gate for an hour . Then the board said that the crew had come at last .",
            "question": "Why did they wait ?",
            "answer0": "They had lost their tickets .",
            "answer1": "Nobody was there yet to fly the plane .",
            "answer2": "They liked the airport .",
            "answer3": "None of the above choices .",
            "label": 1,
        },
    ),
    _task(
        "quail",
        "QuAIL",
        "a long text and a question of which the answer may not be known",
        _any_parquet("textmachinelab/quail", "ca5c18f"),
        (10246, 2164),
        {"context": "text", "question": "text", "answers": "texts", "correct_answer_id": "number"},
        _number("correct_answer_id"),
        {
            "context": "Jon shut the shop at six. He walked home along the river, and his dog met him at the bridge.",
            "question": "How old is Jon?",
            "answers": ["thirty", "not enough information", "sixty", "six"],
            "correct_answer_id": 1,
        },
    ),
    _task(
        "ropes",
        "ROPES",
        "a background, a situation that it applies to, and a question with an answer in the model's words",
        _parquet("allenai/ropes", "d59f1e2ee2b423d7c6ba71edd47fceb4158b07dd", "plain_text"),
        (10924, 1688),
        {"background": "text", "situation": "text", "question": "text", "answers": "answers"},
        None,
        {
            "background": "Salt lowers the temperature at which water freezes.",
            "situation": "On a cold day Anna puts salt on her steps. Bente puts none on hers.",
            "question": "Whose steps freeze first?",
            "answers": {"text": ["Bente's"]},
        },
    ),
    _task(
        "social_iqa",
        "Social IQa",
        "what somebody did, and a question about why, or what next, or what others feel",
        _any_parquet("lighteval/siqa", "54c6a1f"),
        (33410, 1954),
        {"context": "text", "question": "text", **{f"answer{c}": "text" for c in "ABC"}, "label": "numeral"},
        _number("label", first=1),
        {
            "context": "Lars lent Kim his bicycle for the week.",
            "question": "What will Kim want to do next?",
            "answerA": "sell it",
            "answerB": "hide it",
            "answerC": "thank Lars",
            "label": "3",
        },
    ),
)
TASKS: Mapping[str, TextTask] = {task.name: task for task in _ALL}
