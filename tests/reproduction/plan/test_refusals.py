"""params.yaml: what no stage could do is refused in one line, with its key and the nearest name, before any job."""

from typing import Any

import pytest

from conftest import ROOT
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan
from tallmasks.errors import TallmasksError

OAK = {"path": "x", "classes": ["oak", "elm"], "templates": ["a {}"]}


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [  # a + after a key: one more value in its list
        ("benchmarks 8tasks+", "carz", "benchmarks.8tasks: .*'carz' .did you mean 'cars'"),
        ("benchmarks 8tasks+", "cars", "benchmarks.8tasks: 'cars' listed twice"),
        ("methods", ["tiess"], "'tiess' .did you mean 'ties'"),
        ("seeds", [1, 1], "seeds: 1 listed twice"),
        ("seed", [1], "there is no key 'seed' .did you mean 'seeds'"),
        ("grids mask_lambda", [0, 2, 0, 3], r"grids.mask_lambda: found \[0.0, 2.0, 0.0, 3.0\], .*ascending"),
        ("data", {"minst": {"path": "x"}}, "data: no 'minst' .did you mean 'mnist'"),
        ("data", {"mnist": {"path": "/nowhere/m"}}, "/nowhere/m: no such file"),
        ("vision_tasks", {"leaves": {**OAK, "classes": ["oak", "oak"]}}, "vision_tasks"),
        ("models tiny tasks", "drawn", "'drawn'.*vision, text"),
        ("models tiny finetuning iterations", 150.0, "iterations: found 150.0, expected a whole number"),
        ("models tiny finetuning learning_rate", 0, "learning_rate: found 0, expected more than 0"),
        ("models vit_b32 preprocess size", 336, "models.vit_b32.preprocess.size: found 336, expected 224"),
        ("models tiny finetuning patience", 3, "models.tiny.finetuning: patience: .* validate_every"),
        ("models vit_b32 finetuning augmentation", {"rotation": 7}, "models.vit_b32.finetuning.augmentation"),
        ("models minilm architecture", {"model_type": "bert", "num_labels": 1}, "minilm.architecture.num_labels"),
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
