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
        ("benchmarks ../../x", ["mnist"], "benchmarks.../../x: found '../../x'; .*pattern"),
        ("benchmarks figures", ["cars"], "benchmarks: figures: .*another"),
        ("methods", ["tiess"], "'tiess' .did you mean 'ties'"),
        ("seeds", [1, 1], "seeds: 1 listed twice"),
        ("bundle", "ties", "bundle: .*'ties'.*tall_mask_"),
        ("seed", [1], "there is no key 'seed' .did you mean 'seeds'"),
        ("grids mask_lambda", [0, 2, 0, 3], r"grids.mask_lambda: found \[0.0, 2.0, 0.0, 3.0\], .*ascending"),
        ("paper benchmarks", ["8task"], "paper.benchmarks: no '8task' .did you mean '8tasks'"),
        ("paper subsets methods", ["ties", "fisher"], "paper.subsets.methods: fisher"),
        ("data", {"minst": {"path": "x"}}, "data: no 'minst' .did you mean 'mnist'"),
        ("data", {"mnist": {"path": "/nowhere/m"}}, "/nowhere/m: no such file"),
        ("vision_tasks", {"leaves": {**OAK, "classes": ["oak", "oak"]}}, "vision_tasks"),
        ("models tiny examples", {"seed": 0, "train": 9}, "models.tiny .*`examples`.* validation, test"),
        ("models tiny tasks", "drawn", "'drawn'.*vision, text"),
        ("models tiny finetuning iterations", 150.0, "iterations: found 150.0, expected a whole number"),
        ("models tiny finetuning learning_rate", 0, "learning_rate: found 0, expected more than 0"),
        ("models tiny finetuning warmup_iterations", 151, "warmup_iterations: found 151, expected at most .* 150"),
        ("models tiny architecture vision_cfg image_size", 40, "found the image size 40, expected 32"),
        ("models vit_b32 preprocess size", 336, "models.vit_b32.preprocess.size: found 336, expected 224"),
        ("models tiny finetuning patience", 3, "models.tiny.finetuning: patience: .* validate_every"),
        ("models vit_b32 finetuning augmentation", {"rotation": 7}, "models.vit_b32.finetuning.augmentation"),
        ("models vit_b32 wording", {"fer2031": "published"}, "vit_b32.wording: no 'fer2031' .did you mean 'fer2013'"),
        ("models vit_b32 architecture", "ViT-B-32-quickgellu", "architecture: .*did you mean 'ViT-B-32-quickgelu'"),
        ("models minilm architecture", {"model_type": "bert", "num_labels": 1}, "minilm.architecture.num_labels"),
        ("models tiny_t5 architecture", {"d_model": 32}, "vocab_size: "),
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
