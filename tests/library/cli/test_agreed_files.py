"""Small files that say how a model is used, in a merged folder."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tallmasks
from models_made import run

BASE: dict[str, Any] = {
    "generation_config.json": {"eos_token_id": 2, "top_k": 5, "transformers_version": "4"},
    "preprocessor_config.json": {"image_mean": [0.5], "size": {"height": 8}},
    "config_sentence_transformers.json": {"prompts": {"query": ""}, "__version__": {"pytorch": "1"}},
    "tokenizer_config.json": {"eos_token": "</s>", "model_max_length": 8},
    "tokenizer.json": {"model": {"vocab": {"</s>": 0, "<end>": 1}}},
    "chat_template.jinja": "old",
}
"""Files of the base. The three tasks have the same, but for what a case says of all, or of the second."""
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    # of all tasks, of the second, the merged files that are not the base's, and a warning
    "nothing": ({}, {}, {}, ""),
    "versions": (
        {
            "generation_config.json": {**BASE["generation_config.json"], "transformers_version": "5"},
            "config_sentence_transformers.json": {"prompts": {"query": ""}, "__version__": {"pytorch": "2"}},
        },
        {},
        {},
        "",
    ),
    "end token": (
        {"generation_config.json": {"eos_token_id": [2, 3], "top_k": 5}},
        {},
        {"generation_config.json": {**BASE["generation_config.json"], "eos_token_id": [2, 3]}},
        "",
    ),
    "a field that the base lacks": (
        {"generation_config.json": {"eos_token_id": 2, "top_k": 5, "min_p": 0.1}},
        {},
        {"generation_config.json": {**BASE["generation_config.json"], "min_p": 0.1}},
        "",
    ),
    "tasks differ": (
        {"preprocessor_config.json": {"image_mean": [0.4], "size": {"height": 9}}},
        {"preprocessor_config.json": {"image_mean": [0.3], "size": {"height": 9}}},
        {"preprocessor_config.json": {"image_mean": [0.5], "size": {"height": 9}}},
        "preprocessor_config.json differs from that of other models in image_mean",
    ),
    "one differs": (
        {},
        {"config_sentence_transformers.json": {"prompts": {"query": "search: "}}},
        {},
        "config_sentence_transformers.json differs from that of other models in prompts",
    ),
    "one lacks the file": (
        {"generation_config.json": {"eos_token_id": 3, "top_k": 5}},
        {"generation_config.json": None},
        {},
        "generation_config.json differs from that of other models in eos_token_id",
    ),
    "tokenizer": (
        {"tokenizer_config.json": {"eos_token": "<end>", "chat_template": "{{ x }}", "model_max_length": 9}},
        {},
        {"tokenizer_config.json": {"eos_token": "<end>", "model_max_length": 8, "chat_template": "{{ x }}"}},
        "",
    ),
    "a file that the base lacks": (
        {"sentence_bert_config.json": {"max_seq_length": 8, "__version__": {"pytorch": "1"}}},
        {},
        {"sentence_bert_config.json": {"max_seq_length": 8, "__version__": {"pytorch": "1"}}},
        "",
    ),
    "tasks differ in a file that the base lacks": (
        {"sentence_bert_config.json": {"max_seq_length": 8, "do_lower_case": True}},
        {"sentence_bert_config.json": {"max_seq_length": 8, "do_lower_case": False}},
        {},
        "sentence_bert_config.json differs from that of other models in do_lower_case",
    ),
    "template in a file": ({"chat_template.jinja": "{{ x }}"}, {}, {"chat_template.jinja": "{{ x }}"}, ""),
    "end token of another vocabulary": (
        {"tokenizer_config.json": {"eos_token": "<n>"}, "tokenizer.json": {"model": {"vocab": {"</s>": 0, "<n>": 2}}}},
        {},
        {},
        "tokenizer_config.json differs from that of other models in eos_token",
    ),
    "template in another file": (
        {"chat_template.jinja": None, "tokenizer_config.json": {"eos_token": "</s>", "chat_template": "new"}},
        {},
        {
            "chat_template.jinja": "new",
            "tokenizer_config.json": {**BASE["tokenizer_config.json"], "chat_template": "new"},
        },
        "",
    ),
    "tokenizer of a part, with another vocabulary": (
        {"text/tokenizer_config.json": {"eos_token": "<n>"}, "text/tokenizer.json": {"model": {"vocab": {"<n>": 0}}}},
        {},
        {},
        "",
    ),
    "a field that the tasks lack": (
        {"generation_config.json": {"eos_token_id": 2}},
        {},
        {"generation_config.json": {"eos_token_id": 2, "transformers_version": "4"}},
        "",
    ),
    "a field of one task": (
        {},
        {"generation_config.json": {**BASE["generation_config.json"], "min_p": 0.1}},
        {},
        "generation_config.json differs from that of other models in min_p",
    ),
    "a processor that the base lacks": (
        {"video_processor_config.json": {"fps": 2, "transformers_version": "5"}},
        {},
        {"video_processor_config.json": {"fps": 2, "transformers_version": "5"}},
        "",
    ),
    "a file that the base lacks, tasks differ": (
        {"video_processor_config.json": {"fps": 2, "size": 1}},
        {"video_processor_config.json": {"fps": 2, "size": 3}},
        {},
        "video_processor_config.json differs from that of other models in size",
    ),
    "no object": ({"preprocessor_config.json": [1]}, {}, {"preprocessor_config.json": [1]}, ""),
    "not JSON": ({"generation_config.json": "{"}, {}, {}, ""),
}  # fmt: skip


def write(folder: Path, files: dict[str, Any], seed: int) -> None:
    folder.mkdir()
    weights = np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)
    save_file({"w": weights}, folder / "model.safetensors")
    for name, content in files.items():
        if content is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def content(path: Path) -> Any:
    return json.loads(path.read_text()) if path.suffix == ".json" else path.read_text()


@pytest.mark.parametrize("case", CASES)
def test_files_of_a_merged_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """A merged model would not stop at the end token, or see images in other colours, than all of its tasks."""
    every, second, wanted, warning = CASES[case]
    monkeypatch.chdir(tmp_path)
    for seed, (name, files) in enumerate({"base": {}, "a": every, "b": {**every, **second}, "c": every}.items()):
        write(Path(name), {**BASE, **files}, seed)
    call = ["merge", "--base", "base", *(word for task in "abc" for word in ("--task", f"{task}={task}"))]
    call += ["--method", "ties", "-o", "merged"]
    assert run(*call, "--dry-run") == 0
    planned = capsys.readouterr().err
    assert warning in planned if warning else "differs" not in planned
    assert run(*call) == 0
    said = capsys.readouterr()
    paths = [path for path in Path("merged").rglob("*") if path.suffix in (".json", ".jinja")]
    found = {path.relative_to("merged").as_posix(): content(path) for path in paths}
    assert found == {**BASE, **wanted}
    assert ("all tasks agree, so theirs: " in said.out) == bool(wanted)
    assert warning in said.err if warning else "differs" not in said.err
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tallmasks.merge_checkpoints("base", {"a": "a", "b": "b", "c": "c"}, "again", method="ties")
    assert all((Path("again") / name).read_bytes() == (Path("merged") / name).read_bytes() for name in found)


def test_a_single_file_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning named a file that the result does not have."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("base", "a", "b")):
        write(Path(name), {"generation_config.json": {"eos_token_id": seed}}, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tallmasks.merge_checkpoints("base/model.safetensors", {"a": "a", "b": "b"}, "m.safetensors", method="ties")
    assert "generation_config" not in "".join(str(one.message) for one in caught)
