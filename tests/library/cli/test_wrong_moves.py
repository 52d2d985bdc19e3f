"""Wrong command lines and wrong models: one line that says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tallmasks
from models_made import refusal, run
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
        (["merge"], ["missing: base, tasks, method, output"]),
        (["merge", "--metod", "ties"], ["--metod", "'--method'"]),
        (["merge", "--scaling-coefficient", "abc"], ["--scaling-coefficient", "'abc'", "number"]),
        (["merge", "--task", "dogs"], ["--task", "'dogs'", "NAME=CHECKPOINT"]),
        (["merge", "--base", "x", "--task", "a=b", "--task", "a=c"], ["--task a=...: found two values, b and c"]),
        (["storage", "--parameters", "7Q"], ["--parameters", "'7Q'", "7B"]),
        (["merge", "--base", "x", "--task", "a=b", "-o", "o", "--method", "tie"], ["method: ", "'tie'", "'ties'"]),
    ],
)
def test_a_wrong_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], facts: list[str]
) -> None:
    """The mistake would be lost below a page of usage."""
    line = misuse(capsys, *words)
    assert all(fact in line for fact in facts), line


def test_a_wrong_value_of_an_option_is_two(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script could not tell its own mistake from a damaged model, or would read of a key that nobody typed."""
    models = ["--base", "base", "--task", "cars=cars", "--task", "dtd=dtd"]
    for option, value in {"--density": "1e-30", "--weight": "cars=inf", "--keep-base": "nothing"}.items():
        line = misuse(capsys, "merge", *models, "--method", "ties", "-o", "out", option, value)
        assert option[2:].replace("-", "_") in line, line


def test_a_dry_run_needs_no_output(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who only asks for a size would have to invent a name."""
    before = sorted(Path().rglob("*"))
    for command in (["merge", "--method", "ties"], ["compress"]):
        assert run(*command, "--base", "base", "--task", "cars=cars", "--task", "dtd=dtd", "--dry-run") == 0
        assert re.search("^write .*about ", capsys.readouterr().out, re.M)
    assert sorted(Path().rglob("*")) == before


def test_outputs_stay_out_of_inputs(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command would read the result as a part of the model, or as a damaged bundle."""
    models = ["--base", "base", "--task", "cars=cars", "--task", "dtd=dtd"]
    assert run("compress", *models, "-o", "bundle") == 0
    Path("link").symlink_to("cars")
    for words in (
        ["merge", *models, "--method", "ties", "-o", "link/merged"],
        ["merge", "--base", "base", "--task", "cars=bundle#cars", "--method", "ties", "-o", "bundle/merged"],
        ["compress", *models, "-o", "base/bundle"],
        ["export", "bundle", "--task", "cars", "-o", "base/cars"],
    ):
        assert "is an input" in refusal(capsys, *words)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_usage_examples_and_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader would have to find out what a command is called with."""
    with pytest.raises(SystemExit) as ended:
        main([*filter(None, [command]), "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(f"usage: tallmasks {command}")
    parts = [text.index(f"\n{part}") for part in ("examples:\n", "options:\n")]
    assert parts == sorted(parts)
    assert not command or f"    tallmasks {command}" in text
    assert all(f"  {name} " in text for name in COMMANDS) or command


@pytest.mark.parametrize(("said", "dtype"), [("fp16", "F16"), ("bf16", "BF16"), ("fp32", "F32")])
def test_short_names_of_dtypes(small: Path, said: str, dtype: str) -> None:
    words = ["merge", "--base", "base", "--task", "cars=cars", "--method", "ties", "--dtype"]
    assert run(*words, said, "-o", "merged") == 0
    out = tallmasks.merge_checkpoints("base", {"cars": "cars"}, "python", method="ties", dtype=said)
    for folder in (Path("merged"), out):
        assert open_checkpoint(folder).info("w.weight").dtype == dtype


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("density: 0", ["density: found 0", "1e-06"]),
        ("wieght: 1", ["'wieght'", "'weight'"]),
        ("tasks: {cars: 3}", ["tasks.cars: found 3", "a path"]),
        ("- ties", ["found ['ties']"]),
    ],
)
def test_a_wrong_value_in_a_settings_file_is_a_wrong_option(
    small: Path, capsys: pytest.CaptureFixture[str], line: str, facts: list[str]
) -> None:
    """A script would take the mistake for a model that does not fit; pydantic's words name no key of the file."""
    Path("s.yaml").write_text(f"{line}\n")
    said = misuse(capsys, "merge", "s.yaml", "--base", "base", "--task", "cars=cars", "--method", "ties", "-o", "out")
    assert all(fact in said for fact in ["s.yaml", *facts]) and "should be" not in said, said
