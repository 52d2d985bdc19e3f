"""Wrong command lines and wrong models: one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import tallmasks
from models_made import refusal, run
from tallmasks.cli.main import COMMANDS, main
from tallmasks.errors import OptionError

MODELS = ["--base", "base", "--task", "cars=cars", "--task", "dtd=dtd", "-o", "out", "--method"]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["compres"], "'compress'"),
        (["merge", "--metod", "ties"], "'--method'"),
        (["merge", "--base", "x", "--task", "a=b", "--task", "a=c"], "--task a=...: found two values, b and c"),
        (["merge", "s.yaml", *MODELS, "ties"], "s.yaml: there is no key 'wieght'"),
        (["merge", "c.yaml", *MODELS, "ties"], "c.yaml: choose is no setting of a file; give it as --choose"),
        (["merge", "r.yaml", *MODELS, "ties"], "r.yaml: choice: there is no key 'keep'; expected command, tried"),
        (["export", "out", "--task", "a", "--task", "b", "-o", "x"], "--task: found a and b; expected one, or --all"),
        (["merge", *MODELS, "ties", "--density", "1e-30"], "density: found 1e-30"),
        (["merge", *MODELS, "iso_c", "--weight", "cars=1"], "iso_c does not support task weights"),
        (["merge", *MODELS, "weight_averaging", "--weight", "cars=1", "--weight", "dtd=-1"], "the weights sum to 0"),
        (["compress", *MODELS, "t_switch"], "t_switch cannot be stored in a bundle"),
        (["compress", *MODELS, "lossless", "--mask-lambda", "0.3"], "lossless has no mask lambdas"),
        (["compress", *MODELS, "ties", "--step", "0.2"], "there is no option 'step'; its options: bits, keep"),
        (["compress", *MODELS, "ties", "--bits", "3", "--option", "bits=4"], "found two values, 3 and 4"),
    ],
)
def test_a_wrong_command_is_one_line(
    small: Path, capsys: pytest.CaptureFixture[str], words: list[str], fact: str
) -> None:
    """The mistake would be lost below a page of usage, or a setting be taken and not be followed."""
    for name, text in (("s", "wieght: 1"), ("c", "choose: {keep: [0.1, 0.2]}"), ("r", "choice: {keep: [0.1, 0.2]}")):
        Path(f"{name}.yaml").write_text(f"{text}\n")
    assert fact in refusal(capsys, *words) and not Path("out").exists()


def test_wrong_arguments_of_functions_are_refused(small: Path) -> None:
    """One of two values would be dropped in silence, or a task have no name."""
    for tasks, more, problem in (
        ({"cars": "cars"}, {"bits": 3, "options": {"bits": 4}}, "bits is also given"),
        ({"": "cars"}, {}, "tasks"),
    ):
        with pytest.raises(OptionError, match=problem):
            tallmasks.compress("base", tasks, "out", method="ties", **more)


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
