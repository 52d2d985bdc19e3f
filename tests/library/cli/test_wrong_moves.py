"""Wrong command lines and wrong models: one line that says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from models_made import refusal, run
from tallmasks.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["compres"], ["'compres'", "'compress'"]),
        (["merge", "--metod", "ties"], ["--metod", "'--method'"]),
        (["merge", "--scaling-coefficient", "abc"], ["--scaling-coefficient", "'abc'", "number"]),
        (["merge", "--task", "dogs"], ["--task", "'dogs'", "NAME=CHECKPOINT"]),
        (["merge", "--base", "x", "--task", "a=b", "--task", "a=c"], ["--task a=...: found two values, b and c"]),
        (["storage", "--parameters", "7Q"], ["--parameters", "'7Q'", "7B"]),
        (["merge", "s.yaml", "--base", "x"], ["s.yaml", "'wieght'", "'weight'"]),
        (["merge", "--base", "x", "--task", "a=b", "-o", "o", "--method", "tie"], ["method: ", "'tie'", "'ties'"]),
    ],
)
def test_a_wrong_command_line_is_one_line(
    small: Path, capsys: pytest.CaptureFixture[str], words: list[str], facts: list[str]
) -> None:
    """The mistake would be lost below a page of usage; or a script take it for a damaged model."""
    Path("s.yaml").write_text("wieght: 1\n")
    assert run(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and all(fact in line for fact in facts), line


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
    assert f"    tallmasks {command}" in text.partition("\nexamples:\n")[2].partition("\noptions:\n")[0]
