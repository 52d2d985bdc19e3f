"""The 11 text datasets: reading each from its published files, and writing files of examples."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reproduction.plan import chain
from reproduction.plan.node import Node
from reproduction.plan.settings import Plan
from reproduction.tasks.catalogues import ExamplesFile, catalogue
from reproduction.tasks.task import SPLITS
from reproduction.tasks.text import TASKS
from reproduction.tasks.text.prompt_files import prompts_of
from reproduction.tasks.text.text_catalogue import example
from reproduction.tasks.text.text_tasks import TextTask
from reproduction.tasks.texts import FREE, PAIR, Text, open_texts
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import open_tensors
from text_data import made_up, table, write_csv, write_repository

Params = dict[str, Any]
COUNTS = {"train": 11, "test": 7}
HELD_OUT = 4


def written(
    out: Path, task: str, split: str, folder: Path | None, model: Params | None = None, held_out: int = HELD_OUT
) -> list[Text]:
    """The examples of a split, with `held_out` validation rows instead of the dataset's own number."""
    made = catalogue("text").recipe({}, model or {}, task, split, Path())
    recipe = json.loads(json.dumps(made.params))
    recipe["data"]["held_out"] = held_out
    catalogue("text").write(recipe, {"data": folder} if folder else {}, ExamplesFile(out, {"recipe": "r"}))
    return list(open_texts(out))


@pytest.mark.parametrize("task", TASKS)
def test_every_dataset_is_read_as_it_is_published(task: str, tmp_path: Path) -> None:
    """A task would train on its validation or test rows, or pair questions with the answers of other rows."""
    write_repository(tmp_path / "data", task, COUNTS)
    prompts = TASKS[task].prompt_file.prompts
    order, last = (np.random.RandomState(0).permutation(n) if TASKS[task].texts else np.arange(n) for n in (11, 7))
    for split in SPLITS:
        found = written(tmp_path / split, task, split, tmp_path / "data")
        part = "test" if split == "test" else "train"
        rows = {"train": order[:7], "validation": order[7:], "test": last}[split]
        expected = []
        for place, index in enumerate(rows):
            row = made_up(task, int(index), part)
            for prompt in prompts if split == "train" else [prompts[place % len(prompts)]]:
                expected.append(example(TASKS[task], prompt, row))
                assert f"{part} {index}" in expected[-1].input
        assert found == expected
        assert all((text.answer == FREE) == (task == "ropes") for text in found)
        metadata = open_tensors(tmp_path / split).metadata
        facts = json.loads(metadata["origin"])
        assert metadata["recipe"] == "r" and facts["source"] == "a local folder" and facts["rows"] == len(rows)
        assert facts["prompts"] == [prompt.name for prompt in prompts]
        (warning,) = facts["warnings"]
        assert f"{COUNTS[part]} " in warning and str(TASKS[task].counts[part]) in warning
    assert len({text.answer for text in found}) == (1 if task == "ropes" else min(7, len(found[0].answers)))


def test_fewer_rows_and_prompts(tmp_path: Path) -> None:
    """A trial run on a small machine would have to use all rows and all prompts."""
    write_repository(tmp_path / "data", "paws", COUNTS)
    model = {"templates": [9, 0], "examples": {"train": 3, "validation": 2}}
    train = written(tmp_path / "a", "paws", "train", tmp_path / "data", model)
    prompts = [prompts_of("paws").prompts[index] for index in (9, 0)]
    rows = [made_up("paws", index) for index in range(3)]
    assert train == [example(TASKS["paws"], prompt, row) for row in rows for prompt in prompts]
    assert len(written(tmp_path / "b", "paws", "validation", tmp_path / "data", model)) == 2
    assert len(written(tmp_path / "c", "paws", "test", tmp_path / "data", model)) == COUNTS["test"]


def test_story_cloze_as_parquet_and_as_it_is_given_out(tmp_path: Path) -> None:
    """A story with a comma, a quotation mark or a line break would be split in the wrong places."""
    rows = [made_up("story_cloze", index) for index in range(6)]
    rows[0]["input_sentence_2"] = 'She said, "flour,\nwater".'
    write_csv(tmp_path / "csv" / "cloze_test_val__spring2016 - cloze_test_ALL_val.csv", rows)
    (tmp_path / "parquet").mkdir()
    pq.write_table(table("story_cloze", rows), tmp_path / "parquet" / "validation-00000-of-00001.parquet")
    read = [written(tmp_path / f"{kind}.out", "story_cloze", "train", tmp_path / kind) for kind in ("csv", "parquet")]
    assert read[0] == read[1] and 'flour,\nwater"' in read[0][0].input


def write_changed(folder: Path, task: str, change: Any, count: int = 8) -> None:
    """Writes training data after `change` was applied to the table."""
    folder.mkdir()
    pq.write_table(change(table(task, [made_up(task, index) for index in range(count)])), folder / "train.parquet")


def other(name: str, values: list[Any]) -> Any:
    """A change that replaces the values of one column."""
    return lambda content: content.set_column(content.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [
        ("wiki_qa", lambda t: t.drop_columns(["answer"]), "wiki_qa: .*answer.*question, document_title"),
        ("quartz", other("para", ["a", "b", None] + ["c"] * 5), "quartz: row 2 .*para"),
        ("wsc", other("label", [0, 1, -1] * 2 + [0, 1]), "row 2 of train"),
    ],
)
def test_what_is_not_this_tasks_data_is_refused(task: str, change: Any, said: str, tmp_path: Path) -> None:
    """Hours of fine-tuning on the wrong texts or labels would end up as a row in a results table."""
    write_changed(tmp_path / "data", task, change)
    with pytest.raises(TallmasksError, match=said) as error:
        written(tmp_path / "out", task, "train", tmp_path / "data")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


@pytest.fixture
def params(params: Params) -> Params:
    """The project's parameters plus a model with text tasks."""
    model = copy.deepcopy(params["models"]["tiny"])
    params["models"]["reader"] = {**model, "tasks": "text"}
    del params["models"]["reader"]["examples"]
    return params


def examples(params: Params, task: str = "paws", split: str = "train") -> Node:
    return chain.examples(Plan(params), "reader", task, split)


def test_what_decides_the_examples_names_them(params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples with other prompts, or from another commit or local copy, would be reused as if they were right."""
    monkeypatch.chdir(tmp_path)
    node = examples(params)
    assert node.path.startswith("store/data/text/examples/paws-train-") and not node.sources
    digests = {node.digest}
    reader = params["models"]["reader"]
    for change in ({"templates": [0]}, {"templates": [1]}, {"templates": [1, 0]}, {"examples": {"train": 9}}):
        params["models"]["reader"] = {**reader, **change}
        digests.add(examples(params).digest)
    params["models"]["reader"] = {**reader, "templates": list(range(11)), "examples": {"test": 9}}
    assert examples(params).digest == node.digest
    params["models"]["reader"] = reader
    write_repository(tmp_path / "a", "paws", {"train": 9, "test": 3})
    for data in ({"revision": "a" * 40}, {"path": str(tmp_path / "a")}):
        params["data"] = {"paws": data}
        digests.add(examples(params).digest)
        assert examples(params, "qasc").digest == examples({**params, "data": {}}, "qasc").digest
    assert len(digests) == 7
    others = tuple(prompt._replace(jinja=f"Well: {prompt.jinja}") for prompt in prompts_of("paws").prompts)
    monkeypatch.setattr(TextTask, "prompt_file", prompts_of("paws")._replace(prompts=others))
    params["data"] = {}
    assert examples(params).digest not in digests


def test_texts_of_classification_tasks_are_whole() -> None:
    """A published classifier would be given other texts than in its training: prompts are cut and stripped."""
    text, other = "good film " * 600, "the parental units "
    for task, row, expected in (
        ("imdb", {"text": text}, text),
        ("sst2", {"sentence": other}, other),
        ("qqp", {"question1": "", "question2": other}, f"{PAIR}{other}"),
    ):
        assert example(TASKS[task], TASKS[task].prompt_file.prompts[0], {**row, "label": 1}).input == expected
