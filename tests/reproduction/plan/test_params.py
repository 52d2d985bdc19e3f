"""params.yaml: what cannot be meant is refused in one line before anything is planned; nothing in it is evaluated."""

import re
import warnings
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from conftest import PARAMS, ROOT
from reproduction.plan.params import check_params, read_params
from reproduction.plan.project import open_plan
from tallmasks.errors import TallmasksError

TEXT = PARAMS.read_text()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the project's schema and pretrained weights, for a params.yaml of a test's own."""
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "models").symlink_to(ROOT / "models")
    return tmp_path


def refused(project: Path, content: str) -> str:
    """The one-line error for a params.yaml with that content."""
    path = project / "params.yaml"
    path.write_text(content)
    with pytest.raises(TallmasksError) as error:
        open_plan(project)
    message = str(error.value)
    assert "\n" not in message and len(message) < 500, message
    return message.removeprefix(f"{project}/")


def test_the_shipped_file_is_what_everybody_else_reads(tmp_path: Path) -> None:
    """Its anchors, references and merges would be refused, or read as something else than DVC reads."""
    assert read_params(PARAMS) == yaml.safe_load(TEXT)
    check_params(read_params(PARAMS))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("seeds: [1]\nbuild: []\nseeds: [2]\n", "line .*seeds"),
        ("a: !!python/object/apply:os.system [exit]", "line 1: .*os.system"),
        ("seeds: [2024-01-31]", "seeds.0: .*2024"),
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3: "),
    ],
    ids=lambda value: re.sub(r"\W+", "-", str(value)[:30]),
)
def test_a_file_that_cannot_be_meant_is_refused(project: Path, content: str, expected: str) -> None:
    """It would hang, end in a traceback, run code, or silently mean something else."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert re.match(f"params.yaml.*{expected}", refused(project, content))


def test_numbers_are_those_that_dvc_reads(project: Path) -> None:
    """`dvc exp run -S ...learning_rate=1e-5` writes 1e-05, which would be refused, or mean something else."""
    for number in ("1e-05", "1e-5", "1.0e-5"):
        (project / "params.yaml").write_text(TEXT.replace("4.0e-4", number).replace("seeds: [0,", "seeds: [010,"))
        plan = open_plan(project)
        assert plan.model("tiny")["finetuning"]["learning_rate"] == 1e-5
        assert plan.params == YAML(typ="safe", pure=True).load(project / "params.yaml")
