"""`tallmasks merge` on checkpoints that transformers saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import reference
from commands.models_made import NAMED, TASKS, refusal, run
from tallmasks import methods
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector


def state(folder: Path) -> dict[str, np.ndarray]:
    """All weights as float32, as transformers loads them."""
    model = LlamaForCausalLM.from_pretrained(folder)
    return {name: parameter.detach().float().numpy() for name, parameter in model.named_parameters()}


def expected(folder: Path, method: str, alpha: float) -> dict[str, np.ndarray]:
    """The plain statement of a method over all weights of the model, in bfloat16 at the end."""
    base, tuned = state(folder / "base"), [state(folder / task) for task in TASKS]
    names = sorted(base)
    vectors = [np.concatenate([(one[name] - base[name]).ravel() for name in names]) for one in tuned]
    limits = [reference.trim_threshold(vector, 0.2) for vector in vectors]
    update = reference.ties(vectors, limits, mean=True) if method == "ties" else reference.sum_vectors(vectors)
    if method == "consensus_task_arithmetic":
        masks = [reference.mask(vector, update, 0.4) for vector in vectors]
        update = update * (sum(masks) >= 2)
    whole = np.concatenate([base[name].ravel() for name in names]) + np.float32(alpha) * update
    rounded = torch.from_numpy(whole).to(torch.bfloat16).float().numpy()
    ends = np.cumsum([base[name].size for name in names])[:-1]
    return {name: part.reshape(base[name].shape) for name, part in zip(names, np.split(rounded, ends), strict=True)}


@pytest.mark.parametrize(
    ("method", "words", "alpha"),
    [
        ("task_arithmetic", [], 0.3),
        ("ties", [], 1.0),
        ("consensus_task_arithmetic", ["--scaling-coefficient", "0.5", "--mask-lambda", "0.4"], 0.5),
        ("weight_averaging", [], 1 / 3),
    ],
)
def test_merged_folders_are_the_plain_statement(
    here: Path, tmp_path: Path, method: str, words: list[str], alpha: float
) -> None:
    """The merged model would be another method's, or not load where the base does."""
    out = tmp_path / "merged"
    assert run("merge", "--base", "base", *NAMED, "--method", method, *words, "-o", out) == 0
    found = state(out)
    for name, values in expected(here, method, alpha).items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert {path.name for path in out.iterdir()} == {path.name for path in (here / "base").iterdir()} | {"README.md"}
    assert method == "weight_averaging" or f"{alpha:g}" in (out / "README.md").read_text()


LATER = [
    name
    for name in methods.names("later")
    if (one := methods.get(name)).section == "merging"
    and one.k is None
    and not methods.get_merge(str(one.merge)).statistics
]


@pytest.mark.parametrize("method", [*LATER, "lines_iso_c", "lines_pcb"])
def test_later_methods_on_folders_are_the_merge_in_memory(here: Path, tmp_path: Path, method: str) -> None:
    """A method of the tables could not be had for one's own checkpoints, or would be another one there."""
    options = ["--option", "steps=20"] if method == "wudi" else []
    out = tmp_path / "merged"
    assert run("merge", "--base", "base", *NAMED, "--method", method, *options, "--dtype", "float32", "-o", out) == 0
    base, tuned = state(here / "base"), [state(here / task) for task in TASKS]
    changed = sorted(name for name in base if any((one[name] != base[name]).any() for one in tuned))
    layout = Layout(tuple(changed), tuple(base[name].shape for name in changed))
    frozen = sum(values.size for name, values in base.items() if name not in changed)
    flats = [layout.join({name: one[name] - base[name] for name in changed}) for one in tuned]
    update = np.empty(layout.size, np.float32)
    merge = methods.get(f"{method}:steps=20" if options else method).merge
    methods.get_merge(merge)([TaskVector(flat, layout, {}, frozen) for flat in flats], update)
    found, alpha = state(out), methods.get(method).coefficient
    scale = np.float32(alpha(len(TASKS)) if alpha else methods.get(method).unvalidated)
    for name, values in layout.split(update).items():
        np.testing.assert_allclose(found[name], base[name] + scale * values, rtol=1e-6, atol=1e-7, err_msg=name)
    assert (update != 0).mean() > 0.01


@pytest.mark.parametrize("method", ["regmean", "fisher"])
def test_a_method_that_looks_at_data_is_refused(
    here: Path, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mean without its weights would pass for the method."""
    assert run("merge", "--base", "base", *NAMED, "--method", method, "-o", tmp_path / "merged") == 1
    assert f"{method} needs what is known of the tasks' training data" in capsys.readouterr().err
    assert not (tmp_path / "merged").exists()


def test_a_file_says_the_same_in_its_own_words_and_in_mergekits(here: Path, tmp_path: Path) -> None:
    """Whoever comes from mergekit would have to learn everything anew."""
    ours = tmp_path / "ours.yaml"
    ours.write_text(
        f"base: base\nmethod: ties\noptions: {{keep: 0.5}}\nscaling_coefficient: 0.7\noutput: {tmp_path / 'a'}\n"
        f"tasks:\n" + "".join(f"  {task}: ./{task}\n" for task in TASKS)
    )
    theirs = tmp_path / "theirs.yaml"
    theirs.write_text(
        "models:\n"
        + "".join(f"  - model: ./{task}\n" for task in TASKS)
        + "merge_method: ties\nbase_model: base\nparameters: {keep: 0.5, scaling_coefficient: 0.7}\ndtype: bfloat16\n"
    )
    assert run("merge", ours) == 0
    assert run("merge", theirs, "-o", tmp_path / "b") == 0
    first, second = state(tmp_path / "a"), state(tmp_path / "b")
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_dry_run_writes_nothing_and_says_how_much_there_is(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only after an hour would one learn that the disk is too small."""
    out = tmp_path / "merged"
    assert run("merge", "--base", "base", *NAMED, "--method", "ties", "-o", out, "--dry-run") == 0
    said = capsys.readouterr().out
    assert not out.exists() and "write" in said and "parameters" in said and "cars" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "tise"], "did you mean 'ties'"),
        (["--method", "emr"], "keeps a model per task: `tallmasks compress`"),
        (["--method", "zeroshot"], "does not merge models into one"),
        (["--method", "ties", "--option", "kep=0.1"], "did you mean 'keep'"),
        (["--method", "ties", "--option", "keep=2"], "option keep: found 2.0, expected a number from 0 to 1"),
        (["--method", "ties", "--k", "2"], "--k is for a consensus"),
        (["--method", "consensus_ties", "--k", "9"], "expected a number of tasks, 0 to 3"),
        (["--method", "consensus_ties", "--mask-lambda", "dogs=1"], "there is no task 'dogs'"),
        (["--method", "consensus_ties", "--mask-lambda", "-1"], "expected a number from 0 up"),
        (["--method", "consensus_ties", "--mask-lambda", "x"], "found 'x', expected a number"),
        (["--method", "ties", "--task", "cars=./dtd"], "the task cars is named twice"),
        (["--method", "ties", "--task", "dogs"], "expected NAME=CHECKPOINT"),
        (["--method", "ties", "--task", "dogs=./dogs"], "./dogs: no such file or folder"),
        (["--method", "ties", "--scaling-coefficient", "nan"], "expected a finite number"),
        (["--method", "weight_averaging", "--scaling-coefficient", "1"], "has its own"),
        ([], "--method METHOD is missing"),
    ],
)
def test_wrong_words_are_one_line(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """A typing error would end in a traceback, or in another model than was meant."""
    assert said in refusal(capsys, "merge", "--base", "base", *NAMED, *words, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_does_not_fit_is_refused_before_a_byte_is_written(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours of reading would end in an error, or weights of two models would be added."""
    base = load_file(here / "base" / sorted(p.name for p in (here / "base").glob("*.safetensors"))[0])
    save_file(base, tmp_path / "base.safetensors")
    name = next(name for name, tensor in base.items() if tensor.ndim == 2)
    cases = {
        "shape": {**base, name: base[name][:-1].clone()},
        "names": {key: tensor for key, tensor in base.items() if key != name},
        "nan": {**base, name: torch.full_like(base[name], float("nan"))},
        "same": base,
    }
    said = {
        "shape": name,
        "names": f"lacks {name}",
        "nan": f"{name} holds NaN or infinity",
        "same": "every task's checkpoint is the base itself",
    }
    for case, tensors in cases.items():
        save_file(tensors, tmp_path / f"{case}.safetensors")
        words = ["--base", tmp_path / "base.safetensors", "--task", f"one={tmp_path / case}.safetensors"]
        out = tmp_path / f"{case}-out.safetensors"
        assert said[case] in refusal(capsys, "merge", *words, "--method", "task_arithmetic", "-o", out)
        assert not [path for path in tmp_path.iterdir() if f"{case}-out" in path.name]


def test_a_missing_shard_is_named(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model would be merged without a part of it."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (here / "dtd").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    shard = sorted(set(index["weight_map"].values()))[-1]
    (copy / shard).unlink()
    words = ["--base", "base", "--task", f"dtd={copy}", "--method", "ties"]
    assert shard in refusal(capsys, "merge", *words, "-o", tmp_path / "out")
