"""`tallmasks merge` on checkpoints that transformers saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import reference
import tallmasks
from models_made import NAMED, of_base_and_tasks, refusal, run, weights


def expected(folder: Path, method: str, alpha: float) -> dict[str, np.ndarray]:
    """The plain statement of a method over all weights of the model, in bfloat16 at the end."""
    base, *tuned = of_base_and_tasks(folder).values()
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
    found = weights(out)
    for name, values in expected(here, method, alpha).items():
        np.testing.assert_array_equal(found[name].float(), values, err_msg=name)
    written = {path.name for path in out.iterdir()} - {"README.md", "merge.yaml"}
    assert written == {path.name for path in (here / "base").iterdir()}
    assert method == "weight_averaging" or f"{alpha:g}" in (out / "README.md").read_text()


CALL = ["merge", "--base", "base", "--task", "cars=cars", "--task", "dtd=dtd"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def moved(folder: str | Path) -> np.ndarray:
    """By how much a merged model differs from the base, in every weight."""
    found = load_file(Path(folder, "model.safetensors"))["w.weight"] - load_file("base/model.safetensors")["w.weight"]
    return found.numpy()


def test_zero_is_a_value(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for alpha = 0, or for no agreement, would get 0.3 and two tasks in silence; or less than any model."""
    assert run(*CALL, "--method", "task_arithmetic", "--scaling-coefficient", 0, "-o", "zero") == 0
    assert (moved("zero") == 0).all()
    one = ["merge", "--base", "base", "--task", "cars=cars", "--method", "consensus_task_arithmetic"]
    assert run(*one, "--k", 0, "--scaling-coefficient", 1, "-o", "k0") == 0 and (moved("k0") == 1).all()
    assert "k = 2: expected 0 to 1" in refusal(capsys, *one, "-o", "k2")


def test_the_card_has_names_as_text_and_the_licence_of_all(small: Path) -> None:
    """A page of the hub would show a broken table, or run what a task's or a folder's name says; or another licence."""
    for name, license in (("base", "apache-2.0"), ("cars", "apache-2.0"), ("dtd", "mit")):
        Path(name, "README.md").write_text(f"---\ntags: [x]\nlicense: {license}\n---\n# License: gpl\n")
    assert run(*CALL, "--method", "ties", "-o", "two") == 0
    assert "license" not in Path("two/README.md").read_text().partition("# Merged")[0]
    Path("cars").rename("a`|b")
    strange = "<script>\n```\n# x|"
    assert run("merge", "--base", "base", "--task", f"{strange}=a`|b", "--method", "ties", "-o", "merged") == 0
    card = Path("merged/README.md").read_text()
    assert "| \\<script\\> \\`\\`\\` \\# x\\| | ./a\\`\\|b |\n" in card and "license: apache-2.0\n" in card
    assert card.endswith(f"````yaml\n{Path('merged/merge.yaml').read_text()}````\n")


def test_the_recipe_makes_the_same_model_again(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody could say what a merged model was made of, or make it again."""
    words = ["--method", "consensus_ties", "--k", 1, "--trim", "tensor"]
    words += ["--weight", "cars=0.7", "--mask-lambda", "dtd=0.3"]
    assert run(*CALL, *words, "--dtype", "bfloat16", "-o", "first") == 0
    assert run("merge", "first/merge.yaml", "-o", "second") == 0
    files = contents(Path("first"))
    assert files == contents(Path("second"))
    assert files["merge.yaml"] in files["README.md"]
    Path("dtd/model.safetensors").write_bytes(Path("cars/model.safetensors").read_bytes())
    error = refusal(capsys, "merge", "first/merge.yaml", "-o", "x")
    assert error.startswith("dtd: ") and "sha256" in error


def test_shards_of_a_size(small: Path) -> None:
    """A model too large for one file of the hub could not be published."""
    assert run(*CALL, "--method", "ties", "-o", "whole") == 0
    assert run(*CALL, "--method", "ties", "--out-shard-size", "0.256kB", "-o", "shards") == 0
    index = json.loads(Path("shards/model.safetensors.index.json").read_text())
    parts = {name: load_file(Path("shards", file))[name] for name, file in index["weight_map"].items()}
    whole = load_file("whole/model.safetensors")
    assert len(set(index["weight_map"].values())) == 2 and index["metadata"]["total_size"] == 8 * 8 * 4 + 3 * 8
    assert whole.keys() == parts.keys() and all(torch.equal(parts[name], whole[name]) for name in whole)


def test_every_task_keeps_a_head_of_its_own(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Classifiers with different labels, which most fine-tuned models are, could not be merged."""
    for name, labels in (("base", 1), ("cars", 3), ("dtd", 2)):
        tensors = load_file(f"{name}/model.safetensors") | {"head.weight": torch.full((labels, 8), 0.5).bfloat16()}
        save_file(tensors | {"head.bias": torch.arange(labels) / 2}, f"{name}/model.safetensors")
    assert run(*CALL, "--method", "ties", "-o", "x") == 1 and "`heads: true`" in capsys.readouterr().err
    assert run(*CALL, "--method", "iso_c", "--heads", "-o", "by-default") == 0
    assert "choose scaling_coefficient" in capsys.readouterr().err
    assert run(*CALL, "--method", "ties", "--heads", "-o", "merged") == 0
    heads = "each task's own, in heads/: 2 tensors, 20 bytes (of different shapes): head.bias, head.weight"
    assert heads in capsys.readouterr().out
    merged, own = load_file("merged/model.safetensors"), load_file("merged/heads/cars.safetensors")
    assert merged["head.weight"].shape == (1, 8) and set(own) == {"head.weight", "head.bias"}
    assert torch.equal(own["head.weight"], torch.full((3, 8), 0.5).bfloat16()) and (moved("merged") == 1.5).all()
    assert run("merge", "merged/merge.yaml", "-o", "again") == 0
    assert Path("again/heads/dtd.safetensors").read_bytes() == Path("merged/heads/dtd.safetensors").read_bytes()
    assert "most of base" in refusal(capsys, *CALL, "--method", "ties", "--heads", "w*", "-o", "y")


def test_what_patterns_leave_out_stays_the_bases(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An embedding would be merged that should not be, or would count among the weights of which TIES keeps a share."""
    for number, name in enumerate(("base", "cars", "dtd")):
        extra = {f"embed.{part}": number * torch.arange(40.0) for part in "ab"}
        save_file(load_file(f"{name}/model.safetensors") | extra, f"{name}/model.safetensors")
    for words in (["--keep-base", "embed*"], ["--only", "w.*"]):
        assert run(*CALL, "--method", "ties", *words, "-o", words[0][2:]) == 0
        merged = load_file(Path(words[0][2:], "model.safetensors"))
        assert not merged["embed.a"].any() and (moved(words[0][2:]) == 1.5).all()
    assert "only: x*" in refusal(capsys, *CALL, "--method", "ties", "--only", "x*", "-o", "y")


def test_in_python_as_in_the_shell(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook would need a shell, or give another model under the same words; a dry run print another size."""
    models = {"cars": Path("cars"), "dtd": "dtd"}
    out = tallmasks.merge_checkpoints("base", models, "python", method="ties", weight={"cars": 0.7},
                                      options={"keep": 0.5}, dtype=torch.bfloat16)  # fmt: skip
    words = ["--method", "ties", "--weight", "cars=0.7", "--option", "keep=0.5", "--dtype", "bfloat16"]
    assert run(*CALL, *words, "--dry-run", "-o", "shell") == 0 and not Path("shell").exists()
    assert f"about {(out / 'model.safetensors').stat().st_size} bytes" in capsys.readouterr().out
    assert run(*CALL, *words, "-o", "shell") == 0
    assert contents(out) == contents(Path("shell"))
    tallmasks.compress("base", models, "bundle", method="ties", mask_lambda={"dtd": 0.3})
    assert run("compress", *CALL[1:], "--method", "ties", "--mask-lambda", "dtd=0.3", "-o", "bundle2") == 0
    first, second = (Path(name, "merged.safetensors").read_bytes() for name in ("bundle", "bundle2"))
    assert first == second and tallmasks.load_bundle("bundle").manifest.mask_lambda["dtd"] == 0.3
    assert "lossless" not in tallmasks.method_names() and "lossless" in tallmasks.method_names("compress")


@pytest.mark.parametrize("setting", ["weight", "density", "mask_lambda"])
def test_a_list_for_tasks_is_shown_the_mapping(small: Path, setting: str) -> None:
    """The order of tasks does not tell which value is whose, and a message about one number would hide the way."""
    tasks = {name: small / name for name in ("cars", "dtd")}
    with pytest.raises(tallmasks.TallmasksError, match="expected one number, or a mapping by task"):
        tallmasks.merge_checkpoints(small / "base", tasks, small / "m", method="ties", **{setting: [0.5, 0.5]})


def test_method_names_refuses_another_command() -> None:
    """The methods of merge would be taken for those of the other command."""
    with pytest.raises(tallmasks.TallmasksError, match="command: found 'export', expected 'merge' or 'compress'"):
        tallmasks.method_names("export")  # type: ignore[arg-type]


def test_names_do_nothing_to_a_terminal(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name in a file from the net would clear the screen, or write another error over this one."""
    escape = "\x1b[31m\x9b1A\u202e"
    Path(f"base/a{escape}\nerror: b.txt").touch()
    assert run(*CALL, "--task", f"{escape}\nerror: x=cars", "--method", "ties", "-o", "x") == 0
    printed = "".join(capsys.readouterr())
    assert "\\x1b[31m\\x9b1A\\u202e" in printed and not set("\x1b\x9b\u202e") & set(printed)
    assert "\nerror" not in printed
