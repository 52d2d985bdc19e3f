"""params.yaml: what cannot be meant is refused in one line before anything is planned; nothing in it is evaluated."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from conftest import PARAMS, ROOT
from reproduction.plan.params import check_params, read_params
from reproduction.plan.params_model import OwnTexts
from reproduction.plan.project import closure, open_plan
from reproduction.plan.settings import Plan
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


def test_more_than_half_can_be_test_data() -> None:
    """`--fractions 0.2 0.5`, of the guide, would be refused."""
    OwnTexts(files="a.csv", text="a", label="b", fractions={"validation": 0.2, "test": 0.5})


def test_numbers_are_those_that_dvc_reads(project: Path) -> None:
    """`dvc exp run -S ...learning_rate=1e-5` writes 1e-05, which would be refused, or mean something else."""
    for number in ("1e-05", "1e-5", "1.0e-5"):
        (project / "params.yaml").write_text(TEXT.replace("4.0e-4", number).replace("seeds: [0,", "seeds: [010,"))
        plan = open_plan(project)
        assert plan.model("tiny")["finetuning"]["learning_rate"] == 1e-5
        assert plan.params == YAML(typ="safe", pure=True).load(project / "params.yaml")


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [  # a + after a key: one more value in its list
        ("benchmarks 8tasks+", "carz", "benchmarks.8tasks: .*'carz' .did you mean 'cars'"),
        ("benchmarks 8tasks+", "cars", "benchmarks.8tasks: 'cars' listed twice"),
        ("methods", ["tiess"], "'tiess' .did you mean 'ties'"),
        ("benchmarks report", ["mnist"], "benchmarks: report: results/<model>/ has a folder of this name"),
        ("seeds", [1, 1], "seeds: 1 listed twice"),
        ("seed", [1], "there is no key 'seed' .did you mean 'seeds'"),
        ("grids mask_lambda", [0, 2, 0, 3], r"grids.mask_lambda: found \[0.0, 2.0, 0.0, 3.0\], .*ascending"),
        ("data", {"minst": {"path": "x"}}, "data: no 'minst' .did you mean 'mnist'"),
        ("data", {"mnist": {"path": "/nowhere/m"}}, "/nowhere/m: no such file"),
        ("data", {"own": {"images": "/nowhere/m"}}, "/nowhere/m: no such file or folder"),
        ("data", {"own": {"images": ".", "fractions": {"test": 0.9}}}, "fractions: found .*expected a sum below 1"),
        ("models tiny tasks", "drawn", "'drawn'.*vision, text"),
        ("models tiny finetuning iterations", 150.0, "iterations: found 150.0, expected a whole number"),
        ("models tiny finetuning learning_rate", 0, "learning_rate: found 0, expected more than 0"),
        ("models vit_b32 preprocess size", 336, "models.vit_b32.preprocess.size: found 336, expected 224"),
        ("models tiny finetuning patience", 3, "models.tiny.finetuning: patience: .* validate_every"),
        ("models vit_b32 finetuning augmentation", {"rotation": 7}, "models.vit_b32.finetuning.augmentation"),
        ("models minilm architecture", {"model_type": "bert", "num_labels": 1}, "minilm.architecture.num_labels"),
        ("models tiny architecture", "ViT-B-33", "open_clip has no model 'ViT-B-33'"),
        ("models tiny architecture vision_cfg", 3, "architecture.vision_cfg: found 3, expected keys with values"),
        ("models tiny architecture embed_dim", 96.5, "architecture.embed_dim: found 96.5, expected a whole number"),
        ("models tiny architecture text_cfg", None, "architecture.text_cfg: found None, expected keys with values"),
        (
            "models tiny architecture vision_cfg width",
            "1e2",
            "tiny.architecture.vision_cfg.width: found the text '1e2'",
        ),
        (
            "models minilm architecture",
            {"model_type": "bert", "tie": "true"},
            "minilm.architecture.tie: found the text",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(params: dict[str, Any], keys: str, value: Any, said: str) -> None:
    """A mistake would end in a traceback after the downloads, or in a table of something else."""
    place: Any = params
    *outer, last = keys.split()
    for key in outer:
        place = place[key]
    name = last.removesuffix("+")
    place[name] = [*place[name], value] if name != last else value
    with pytest.raises(TallmasksError, match=said) as refused:
        plan = Plan(params, ROOT)
        for model in ("tiny", "vit_b32"):
            closure(plan, model)
    assert "\n" not in str(refused.value)
