"""Your own texts: read from every format alike, split without leaks, and refused in one line."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from reproduction.tasks.catalogues import ExamplesFile, catalogue
from reproduction.tasks.task import SPLITS
from reproduction.tasks.text.own_texts import evaluated_texts
from reproduction.tasks.texts import PAIR, Text, open_texts
from tallmasks.errors import TallmasksError

ROWS = [{"id": n, "body": f"00{n} text\n of {n % 3}", "queue": ("it", "hr", "law")[n % 3]} for n in range(60)]
ENTRY = {"text": "body", "label": "queue"}


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    lines = [",".join(names), *(",".join(f'"{row[name]}"' for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


WRITE = {
    ".csv": write_csv,
    ".jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    ".parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
}


def params_of(folder: Path, rows: list[dict[str, Any]] = ROWS, suffix: str = ".csv", **entry: Any) -> dict[str, Any]:
    WRITE[suffix](folder / f"tickets{suffix}", rows)
    return {"data": {"support": {"files": str(folder / f"tickets{suffix}"), **ENTRY, **entry}}}


def splits_of(folder: Path, params: dict[str, Any], **limits: int) -> dict[str, list[Text]]:
    """The texts of every split, as the workflow writes them."""
    found = {}
    for split in SPLITS:
        recipe = catalogue("text").recipe(params, {"examples": limits}, "support", split, folder)
        out = ExamplesFile(folder / split, {}, say=lambda line: None)
        catalogue("text").write(json.loads(json.dumps(recipe.params)), recipe.sources, out)
        found[split] = list(open_texts(out.path))
    return found


@pytest.mark.parametrize("suffix", WRITE)
def test_every_format_gives_the_same_texts(suffix: str, tmp_path: Path) -> None:
    """Leading zeros, line breaks or numbers as labels would be lost: a model that reads code would see other texts."""
    spaced = [row | {"queue": f"{row['queue']} "} if n < 9 else row for n, row in enumerate(ROWS)]
    params = params_of(tmp_path, spaced, suffix=suffix)
    task = catalogue("text").tasks(params)["support"]
    assert task.classes == ("hr", "it", "law")
    splits = splits_of(tmp_path, params)
    texts = {text.input: text.answers[text.answer] for own in splits.values() for text in own}
    assert texts == {row["body"]: row["queue"] for row in ROWS}


def test_fractions_are_of_every_class_and_equal_texts_stay_together(tmp_path: Path) -> None:
    """A test text would have been trained on, or a small class be missing from the test."""
    rows = ROWS + ROWS[:30] + [{"id": 0, "body": text, "queue": "rare"} for text in ("x", "y", "z")]
    params = params_of(tmp_path, rows)
    splits = splits_of(tmp_path, params)
    inputs = {split: {text.input for text in own} for split, own in splits.items()}
    assert sum(map(len, inputs.values())) == len(set.union(*inputs.values())) == 63
    assert sum(map(len, splits.values())) == len(rows)
    counts = Counter(text.answers[text.answer] for text in set(splits["test"]))
    assert counts == {"it": 4, "hr": 4, "law": 4, "rare": 1}
    assert splits_of(tmp_path, params) == splits
    other = splits_of(tmp_path, params_of(tmp_path, rows, seed=1))
    assert {text.input for text in other["test"]} != inputs["test"]
    few = splits_of(tmp_path, params_of(tmp_path, sorted(rows, key=lambda row: row["queue"])), train=20)["train"]
    assert len(few) == 20 and len({text.answer for text in few}) > 2  # not the first of a sorted file


def test_a_small_file_is_split_as_ever(tmp_path: Path) -> None:
    """The same file would have other test texts tomorrow: no table could be compared with an earlier one."""
    rows = [{"body": f"text {letter}", "queue": "it" if letter < "h" else "hr"} for letter in "abcdefghijk"]
    rows += [{"body": f" text\n{letter} ", "queue": "hr"} for letter in "abcde"]  # the same texts, of both classes
    fractions = {"validation": 0.25, "test": 0.35}  # of 7 and of 9 texts
    params = params_of(tmp_path, rows, fractions=fractions, seed=3)
    splits = splits_of(tmp_path, params)
    letters = {split: "".join(text.input.split()[1] for text in own) for split, own in splits.items()}
    assert letters == {"train": "dfgijkd", "validation": "bchbc", "test": "aeae"}
    sample = [text.input for text in splits_of(tmp_path, params, train=2)["train"]]
    assert sample == ["text g", "text i"]


def test_evaluate_has_the_texts_of_the_table(tmp_path: Path) -> None:
    """`--split test` would score texts on which the model was trained, or others than the table's."""
    params = params_of(tmp_path, fractions={"validation": 0.25, "test": 0.35})
    (entry,), splits = params["data"].values(), splits_of(tmp_path, params)
    splits["all"] = [text for own in splits.values() for text in own]
    for split, own in splits.items():
        texts = evaluated_texts("support", entry, split, lambda labels: {"hr": 0, "it": 1, "law": 2})
        assert Counter(texts) == Counter(own)


def numbered(classes: int) -> list[dict[str, Any]]:
    return [{"id": n, "body": f"text {n}", "queue": n % classes} for n in range(10 * classes)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_as_labels_are_in_the_order_of_a_trained_head(suffix: str, tmp_path: Path) -> None:
    """A model's 12 outputs would be compared with the labels 0, 1, 10, 11, 2, ...: silently, a wrong accuracy."""
    params = params_of(tmp_path, numbered(12), suffix)
    assert catalogue("text").tasks(params)["support"].classes == tuple(map(str, range(12)))
    params = params_of(tmp_path, numbered(3), suffix, classes=["it", "hr", "law"])
    texts = [text for own in splits_of(tmp_path, params).values() for text in own]
    assert {(int(text.input[5:]) % 3, text.answer, text.answers) for text in texts} == {
        (n, n, ("it", "hr", "law")) for n in range(3)
    }
    params = params_of(tmp_path, numbered(2), suffix, classes=["1", "0"])  # the labels themselves, in another order
    texts = [text for own in splits_of(tmp_path, params).values() for text in own]
    assert all(text.answers[text.answer] == str(int(text.input[5:]) % 2) for text in texts)


def test_numbered_labels_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """LABEL_10 is the eleventh class of transformers, not the third; -1 is below 0."""
    for labels in ([f"LABEL_{n}" for n in range(12)], ["-1", "0", "1"]):
        rows = [{"id": n, "body": f"text {n}", "queue": labels[n % len(labels)]} for n in range(60)]
        assert catalogue("text").tasks(params_of(tmp_path, rows))["support"].classes == tuple(labels)


def test_texts_that_look_like_dates_stay_texts(tmp_path: Path) -> None:
    """Arrow's reader turned 2024-01-01 into 2024-01-01 00:00:00, in texts and in labels."""
    rows = [{"body": f"2024-01-{n + 1:02}", "queue": ("2023-01-01", "2024-01-01")[n % 2]} for n in range(28)]
    params = params_of(tmp_path, rows, ".jsonl")
    assert {text.input for own in splits_of(tmp_path, params).values() for text in own} == {row["body"] for row in rows}
    assert catalogue("text").tasks(params)["support"].classes == ("2023-01-01", "2024-01-01")


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_columns_of_lists_are_refused(suffix: str, tmp_path: Path) -> None:
    """Arrow's error of this kind is no ValueError, and would be a traceback."""
    rows = [{"body": ["two", "words"], "queue": ("it", "hr")[n % 2]} for n in range(28)]
    with pytest.raises(TallmasksError, match=rf"cannot be read as \{suffix}: .*list"):
        assert catalogue("text").tasks(params_of(tmp_path, rows, suffix))["support"].classes


def test_a_split_column_and_pairs_of_texts(tmp_path: Path) -> None:
    """Published splits could not be used, or the second text of a pair be lost."""
    rows = [row | {"part": SPLITS[n % 9 // 3], "answer": f"yes {n}{PAIR}"} for n, row in enumerate(ROWS)]
    params = params_of(tmp_path, rows, split="part", text=["body", "answer"], classes=["law", "it", "hr"])
    splits = splits_of(tmp_path, params)
    assert [len(own) for own in splits.values()] == [21, 21, 18]
    first = splits["train"][0]
    assert (first.input, first.answers, first.answer) == (f"000 text\n of 0{PAIR}yes 0 ", ("law", "it", "hr"), 1)


def test_a_text_in_two_splits_is_named(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """A test text that was trained on would make every accuracy too high, and nothing would say so."""
    rows = [row | {"part": SPLITS[n % 9 // 3]} for n, row in enumerate(ROWS)]
    leaked = [row | {"body": rows[0]["body"].replace("\n", " ")} if n == 3 else row for n, row in enumerate(rows)]
    for given, twice in ((rows, False), (leaked, True)):
        catalogue("text").check(params_of(tmp_path, given, split="part"))
        assert any("1 text in more than one split" in str(one.message) for one in recwarn) == twice


def test_quotation_marks_in_tsv_files_of_others(tmp_path: Path) -> None:
    """GLUE's files do not quote: everything between two marks would become one text, and its rows be lost."""
    starts = {5: '"', 40: '"', 10: "a\u2028b "}
    lines = [f"{n}\t{starts.get(n, 'a ')}text {n}\t{'it' if n % 2 else 'hr'}" for n in range(60)]
    (tmp_path / "tickets.tsv").write_text("\n".join(["id\tbody\tqueue", *lines]) + "\n")
    params = {"data": {"support": {"files": str(tmp_path / "tickets.tsv"), **ENTRY}}}
    texts = {text.input for own in splits_of(tmp_path, params).values() for text in own}
    assert texts == {line.split("\t")[1] for line in lines}
    (tmp_path / "tickets.tsv").write_text("\n".join(["id\tbody\tqueue", *lines, '1\t"quoted ""text"""\tit']) + "\n")
    with pytest.raises(TallmasksError, match=r"save it as \.csv"):
        catalogue("text").check(params)


def row_with(**values: Any) -> list[dict[str, Any]]:
    return [*ROWS, ROWS[0] | values]


REFUSED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[str, ...]]] = {
    "wrong column": (ROWS, {"label": "quue"}, ("quue", "queue", "id, body")),
    "a class with one text": (row_with(queue="rare"), {}, ("'rare'", "1 text,", "train")),
    "an empty text": (row_with(body=" "), {}, ("row 61", "text is empty")),
    "another list of classes": (ROWS, {"classes": ["it", "hr", "lw"]}, ("classes", "'lw'", "'law'")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_a_task_is_refused_before_anything_starts(what: str, tmp_path: Path) -> None:
    """A training would start on wrong labels, or end in a traceback after an hour."""
    rows, entry, words = REFUSED[what]
    with pytest.raises(TallmasksError) as refused:
        catalogue("text").check(params_of(tmp_path, rows, **entry))
    said = str(refused.value)
    assert "\n" not in said and all(word in said for word in words), said
