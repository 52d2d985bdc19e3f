"""`tallmasks compress`, `export`, `info` and `verify` on checkpoints that transformers saved, and switching a model."""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import reference
import tallmasks
from models_made import NAMED, TASKS, of_base_and_tasks, refusal, run, weights
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import few_bits
from tallmasks.vectors.task_vectors import TaskVector


def flat(parameters: dict[str, torch.Tensor]) -> np.ndarray:
    """All weights as one float32 vector."""
    return np.concatenate([tensor.detach().float().numpy().ravel() for _, tensor in sorted(parameters.items())])


def loaded(folder: Path) -> np.ndarray:
    return flat(weights(folder))


def said_errors(bundle: Path, task: str) -> list[float]:
    """The relative error of a task in the bundle's card."""
    return list(map(float, re.findall(rf"^\| {task} .* (\S+) \|$", (bundle / "README.md").read_text(), re.M)))


def expected(folder: Path, merge: str, task: str, mask_lambda: float) -> np.ndarray:
    """theta_0 + m_t * tau_MTL by the plain statement, in bfloat16."""
    models = [[values.ravel() for _, values in sorted(one.items())] for one in of_base_and_tasks(folder).values()]
    base, *tuned = map(np.concatenate, models)
    vectors = [one - base for one in tuned]
    limits = [reference.trim_threshold(vector, 0.2) for vector in vectors]
    merged = reference.ties(vectors, limits, mean=False) if merge == "ties" else reference.sum_vectors(vectors)
    whole = base + merged * reference.mask(vectors[TASKS.index(task)], merged, mask_lambda)
    return torch.from_numpy(whole).to(torch.bfloat16).float().numpy()


@pytest.mark.parametrize("method", ["task_arithmetic", "ties"])
def test_every_task_comes_back(here: Path, tmp_path: Path, method: str) -> None:
    """A bundle would give back another model than theta_0 + m_t * tau_MTL, as a file or in a live module."""
    out = tmp_path / "bundle"
    words = ["--mask-lambda", "0.5", "--mask-lambda", "dtd=0.3", "--dtype", "float32"]
    assert run("compress", "--base", "base", *NAMED, "--method", method, *words, "-o", out) == 0
    tensors = json.loads((out / "bundle.json").read_text())["tensors"]
    assert [name for name, said in tensors.items() if not said["stored"]] == ["model.embed_tokens.weight"]
    lambdas = dict.fromkeys(TASKS, 0.5) | {"dtd": 0.3}
    bundle = tallmasks.load_bundle(out)
    model = LlamaForCausalLM.from_pretrained(here / "base")
    parameters = dict(model.named_parameters())
    before = flat(parameters)
    for task in TASKS:
        right = expected(here, method, task, lambdas[task])
        assert run("export", out, "--task", task, "-o", tmp_path / task) == 0
        np.testing.assert_array_equal(loaded(tmp_path / task), right)
        gap, own = right - loaded(here / task), loaded(here / task) - before
        assert said_errors(out, task) == pytest.approx([np.linalg.norm(gap) / np.linalg.norm(own)], 0.01)
        bundle.apply_(model, task)
        np.testing.assert_array_equal(flat(parameters), right)
    bundle.restore_(model)
    np.testing.assert_array_equal(flat(parameters), before)


def test_few_bits_and_lambdas_without_data_are_those_of_the_table(here: Path, tmp_path: Path) -> None:
    """A bundle would give back another model than the one whose accuracy is in the table, or one on a GPU."""
    out = tmp_path / "bundle"
    words = ["--method", "ties", "--bits", "3", "--dtype", "float32"]
    assert run("compress", "--base", "base", *NAMED, *words, "-o", out) == 0
    base, *tuned = of_base_and_tasks(here).values()
    layout = Layout.of({name: values for name, values in base.items() if "embed" not in name})
    theta = layout.join(base)
    vectors = [TaskVector(layout.join(one) - theta, layout, {}) for one in tuned]
    method = methods.get("tall_mask_ties_equal_length:bits=3")
    frozen = sum(values.size for values in base.values()) - layout.size
    merged = reference.ties(
        [vector.flat for vector in vectors],
        [reference.trim_threshold(np.append(vector.flat, np.zeros(frozen, np.float32)), 0.2) for vector in vectors],
        mean=False,
    )
    bundle, on_device = tallmasks.load_bundle(out), tallmasks.load_bundle(out, device="cpu")
    model, other = (LlamaForCausalLM.from_pretrained("base") for _ in range(2))
    for task, vector in zip(TASKS, vectors, strict=True):
        stored = few_bits.rounded(merged, layout, 3)
        given = {"task_vector": vector.flat, "multi_task_vector": merged, "stored_vector": stored, "layout": layout}
        update = method(**given)
        kept, own = np.abs(merged[update != 0]).sum(), min(np.abs(vector.flat).sum(), np.abs(merged).sum() / 2)
        assert kept == pytest.approx(own, rel=0.02)
        np.testing.assert_array_equal(np.concatenate([bundle.update(task, name) for name in layout.names]), update)
        bundle.apply_(model, task)
        on_device.apply_(other, task)
        assert all(torch.equal(*pair) for pair in zip(model.parameters(), other.parameters(), strict=True))
    files = {path.name: path.stat().st_size for path in out.rglob("*.safetensors")}
    assert files["merged.safetensors"] < layout.size  # a byte per value


def test_a_file_may_say_all_that_options_do(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command of twenty tasks would have to be kept in a shell script, in part."""
    said = {"base": "base", "tasks": {task: task for task in TASKS}, "output": str(tmp_path / "bundle")}
    file = tmp_path / "bundle.yaml"
    file.write_text(json.dumps(said | {"method": "ties", "include_base": True}))
    assert run("compress", file) == 0
    words = [*NAMED, "--method", "ties", "--include-base"]
    assert run("compress", "--base", "base", *words, "-o", tmp_path / "other") == 0
    assert (tmp_path / "bundle/bundle.json").read_bytes() == (tmp_path / "other/bundle.json").read_bytes()
    for command, slip, words in (
        ("compress", {"include_base": "yes"}, "include_base: found 'yes', expected true or false"),
        ("compress", {"tasks": {"one": {"checkpoint": "cars", "weight": 0.5}}}, "`tallmasks merge`"),
        ("merge", {"method": "ties", "include_base": True}, "`tallmasks compress`"),
    ):
        file.write_text(json.dumps(said | slip))
        assert words in refusal(capsys, command, file)


def test_a_bundle_with_its_base_needs_nothing_else(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bundle could not be used where the base is not to be had; or would publish what a link of the base leads to."""
    out, base = tmp_path / "bundle", tmp_path / "base"
    shutil.copytree("base", base)
    (tmp_path / "id_rsa").write_text("secret")
    (base / "tokenizer.json").symlink_to("../id_rsa")
    (base / "modeling_own.py").touch()
    words = ["--method", "task_arithmetic", "--mask-lambda", "0.4", "--dtype", "float32", "--include-base"]
    assert run("compress", "--base", base, *NAMED, *words, "-o", out) == 0
    assert run("merge", "--base", base, *NAMED, "--method", "task_arithmetic", "-o", tmp_path / "merged") == 0
    assert capsys.readouterr().out.count("left out: modeling_own.py, tokenizer.json (a link") == 2
    assert run("export", out, "--task", "cars", "-o", tmp_path / "cars") == 0
    for folder in (out / "base", tmp_path / "merged", tmp_path / "cars"):
        names = {path.name for path in folder.iterdir()}
        assert "config.json" in names and not {"tokenizer.json", "modeling_own.py"} & names
    np.testing.assert_array_equal(loaded(tmp_path / "cars"), expected(here, "sum", "cars", 0.4))


def test_emr_has_a_scale_for_every_task(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task's model would come back at the magnitude of the unified vector, or the bundle differ from call to call."""
    for out in ("one", "two"):
        assert (
            run("compress", "--base", "base", *NAMED, "--method", "emr", "--dtype", "float32", "-o", tmp_path / out)
            == 0
        )
    assert (tmp_path / "one/bundle.json").read_bytes() == (tmp_path / "two/bundle.json").read_bytes()
    bundle = tallmasks.load_bundle(tmp_path / "one")
    base, *tuned = of_base_and_tasks(here).values()
    flats = np.stack([np.concatenate([(one[name] - base[name]).ravel() for name in base]) for one in tuned])
    ends = np.cumsum([0, *(values.size for values in base.values())])
    for task, own, update in zip(TASKS, flats, reference.emr(flats, list(pairwise(ends))), strict=True):
        assert bundle.manifest.scale[task] != 1
        found = np.concatenate([bundle.update(task, name) for name in base])
        np.testing.assert_allclose(found, update, rtol=1e-5, atol=1e-9)
        error = np.linalg.norm(own - found) / np.linalg.norm(own)
        assert said_errors(tmp_path / "one", task) == pytest.approx([error], 0.01)


BASE = ["--base", "base", "--task", "cars=cars"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["magnitude_masking"], "magnitude_masking"),
        (["weight_averaging"], "weight_averaging"),
        (["bitdelta", "--mask-lambda", "0.3"], "bitdelta has no mask lambdas"),
        (["bitdelta", "--dtype", "bfloat16"], "--dtype: found bfloat16, but bitdelta"),
        (["bitdelta", "--bits", "3"], "there is no option 'bits'"),
        (["ties", "--bits", "32"], "expected one of 2, 3, 4, 8"),
        (["tvq", "--option", "bits=3", "--bits", "4"], "leave one of them out"),
        (["emr:bits=2", "--bits", "4"], "leave one of them out"),
    ],
)
def test_what_means_nothing_to_a_method_is_refused(
    small: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """A setting would be taken and not be followed, or TALL-masks over the sum bear another method's name."""
    assert said in refusal(capsys, "compress", *BASE, "--method", *words, "-o", "bundle")
    assert not Path("bundle").exists()


def test_a_bundle_is_no_model(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its merged vector would be merged as if it were weights, or measured from."""
    assert run("compress", *BASE, "--method", "ties", "-o", "bundle") == 0
    assert run("compress", *BASE, "-o", "switch") == 0
    for place in ("bundle", "bundle/merged.safetensors", "bundle/masks/cars.safetensors", "switch"):
        for words in (["--base", "base", "--task", f"x={place}"], ["--base", place, "--task", "x=cars"]):
            assert "tallmasks export" in refusal(capsys, "merge", *words, "--method", "ties", "-o", "out")


def test_a_task_of_a_bundle_is_a_checkpoint(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle's model would have to be exported before it could be merged."""
    assert run("compress", "--base", "base", "--task", "a=cars", "--task", "b=dtd", "-o", "bundle") == 0
    assert run("export", "bundle", "--task", "b", "-o", "exported") == 0
    for name, model in (("from-bundle", "bundle#b"), ("from-folder", "exported")):
        words = ["--base", "base", "--task", f"b={model}", "--task", "x=x-v0.1", "--method", "ties", "-o", name]
        assert run("merge", *words) == 0
    written = [Path(name, "model.safetensors").read_bytes() for name in ("from-bundle", "from-folder")]
    assert written[0] == written[1]
    assert run("merge", "from-bundle/merge.yaml", "-o", "again") == 0
    assert run("merge", "--base", "bundle#a", "--task", "x=x-v0.2", "--method", "ties", "-o", "on-another") == 0
    assert run("info", "bundle#b") == 0 and "bundle#b: 2 tensors" in capsys.readouterr().out
    for words in (["--base", "base", "--task", "b=bundle#b"], ["--base", "bundle#b", "--task", "x=x-v0.1"]):
        assert "bundle#b: found a task of a bundle" in refusal(capsys, "compress", *words, "-o", "twice")
    vector = tallmasks.task_vector("base", "bundle#b")["w.weight"]
    assert np.array_equal(vector, tallmasks.task_vector("base", "exported")["w.weight"])
    Path("base").rename("moved")
    assert run("verify", "bundle") == 1 and "base" in capsys.readouterr().out
    assert run("merge", "--base", "moved", "--task", "b=bundle#b", "--method", "ties", "-o", "with-base") == 0
    assert "no task 'z'" in refusal(capsys, "export", "bundle", "--task", "z", "-o", "out"), "before a base is needed"


@pytest.mark.parametrize("base", ["models/base", "../elsewhere/deep/base"])
def test_the_base_that_was_compressed_is_found(
    base: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users would have to name the base again a minute later; or a published bundle would name their home folder."""
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    place = work / base
    place.parent.mkdir(parents=True, exist_ok=True)
    Path("base").rename(place)
    monkeypatch.chdir(work)
    for name, home in (("bundle", "/nowhere"), ("private", place.parent)):
        monkeypatch.setenv("HOME", str(home))
        tallmasks.compress(base, {"cars": "../cars"}, f"out/{name}")
    monkeypatch.chdir("/")
    paths = [tallmasks.load_bundle(work / "out" / name).manifest.base.path for name in ("bundle", "private")]
    assert paths == [os.path.relpath(place, work / "out"), "base"]
    assert run("export", work / "out/bundle", "--task", "cars", "-o", tmp_path / "again") == 0
    monkeypatch.chdir(place.parent)
    assert run("export", work / "out/private", "--task", "cars", "-o", tmp_path / "more") == 0
    again, more = (tmp_path / name / "model.safetensors" for name in ("again", "more"))
    assert again.read_bytes() == more.read_bytes()
