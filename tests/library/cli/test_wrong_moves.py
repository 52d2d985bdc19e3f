"""Wrong command lines and wrong models: one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tallmasks
from models_made import refusal, run
from small_checkpoints import file_of
from tallmasks.cli.main import COMMANDS, main
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def misuse(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The error of a wrong command line: one line, and exit status 2."""
    capsys.readouterr()
    assert run(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["compres"], ["'compres'", "'compress'"]),
        (["--verson"], ["--verson", "'--version'"]),
        (["merge", "--metod", "ties"], ["--metod", "'--method'"]),
        (["export", "bundle", "--taks", "cars"], ["--taks", "'--task'"]),
        (["export", "bundle"], ["--task", "--output"]),
        (["merge", "--dtype", "fp17"], ["--dtype", "'fp17'", "bfloat16"]),
        (["merge", "--scaling-coefficient", "abc"], ["--scaling-coefficient", "'abc'", "number"]),
        (["merge", "--k", "1.5"], ["--k", "'1.5'", "whole number"]),
        (["merge", "--mask-lambda", "cars=x"], ["--mask-lambda", "'cars=x'", "number"]),
        (["merge", "--task", "dogs"], ["--task", "'dogs'", "NAME=CHECKPOINT"]),
        (["merge", "--option", "=0.1"], ["--option", "'=0.1'", "KEY=VALUE"]),
        (["merge", "--base", "x", "--task", "a=b", "--task", "a=c"], ["--task a=", "twice"]),
        (["merge", "--base", "x", "--task", "a=b", "-o", "out"], ["--method", "missing"]),
        (["storage", "--parameters", "7Q"], ["--parameters", "'7Q'", "7B"]),
        (["storage", "--parameters", "0"], ["--parameters", "1 to 1e15"]),
    ],
)
def test_a_wrong_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], facts: list[str]
) -> None:
    """The mistake would be lost below a page of usage."""
    line = misuse(capsys, *words)
    assert all(fact in line for fact in facts), line


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_usage_examples_and_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader would have to find out what a command is called with."""
    with pytest.raises(SystemExit) as ended:
        main([*filter(None, [command]), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(f"usage: tallmasks {command or 'COMMAND'}")
    parts = [text.index(f"\n{part}") for part in ("examples:\n", "options:\n")]
    assert parts == sorted(parts)
    assert not command or f"    tallmasks {command}" in text
    assert all(f"  {name} " in text for name in COMMANDS) or command


@pytest.mark.parametrize(("said", "dtype"), [("fp16", "F16"), ("bf16", "BF16"), ("fp32", "F32")])
def test_short_names_of_dtypes(small: Path, said: str, dtype: str) -> None:
    words = ["merge", "--base", "base", "--task", "cars=cars", "--method", "ties", "--dtype"]
    assert run(*words, said, "-o", "merged") == 0
    out = tallmasks.merge_checkpoints("base", {"cars": "cars"}, "ties", "python", dtype=said)
    for folder in (Path("merged"), out):
        assert open_checkpoint(folder).info("w.weight").dtype == dtype


def test_short_numbers_of_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for words in (["7e9"], ["7B"], ["7000M"], ["7b"]):
        assert run("storage", "--parameters", *words, "--dtype", "bf16") == 0
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1 and "14.0 GB" in printed[0]


def layers(count: int, width: int = 4, offset: float = 0) -> dict[str, torch.Tensor]:
    names = ("attention.weight", "norm.weight")
    shapes = ((width, width), (width,))
    body = {
        f"h.{n}.{name}": torch.ones(*shape) + offset
        for n in range(count)
        for name, shape in zip(names, shapes, strict=True)
    }
    return {"embed.weight": torch.ones(6, width) + offset, **body}


def test_models_of_another_depth_or_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user would leave out layers by --keep-base, or read twice that the model has another width."""
    monkeypatch.chdir(tmp_path)
    for name, tensors in {
        "base": layers(3),
        "cars": layers(3, offset=1),
        "deep": layers(5, offset=1),
        "shallow": layers(2, offset=1),
        "wide": layers(3, width=8, offset=1),
    }.items():
        file_of(Path(name), tensors)
    for name, facts in {
        "deep": ["h.3, h.4", "4 tensors"],
        "shallow": ["h.2", "2 tensors"],
        "wide": ["h.0.norm.weight (found [8], expected [4])"],
    }.items():
        words = ["--base", "base", "--task", "cars=cars", "--task", f"x={name}", "--method", "ties", "-o", "out"]
        line = refusal(capsys, "merge", *words)
        assert line.startswith("x: ") and all(fact in line for fact in facts), line
        assert "--keep-base" not in line and "--heads" not in line
        assert line.count("h.0.norm.weight") == (name == "wide")


def test_swapped_arguments_of_apply(small: Path) -> None:
    """The error would be the whole module, over a hundred lines."""
    tallmasks.compress("base", {"cars": "cars"}, "bundle")
    with pytest.raises(tallmasks.TallmasksError) as error:
        tallmasks.load_bundle("bundle").apply_("cars", torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    text = str(error.value)
    assert "Linear" in text and "apply_(module, task)" in text and "\n" not in text
