"""The model-family boundary: what merging and evaluation rely on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn import functional

from tallmasks.errors import TallmasksError
from tallmasks.models import clip, load
from tallmasks.tasks.drawn import CATALOGUE, TASKS, examples

SPEC: dict[str, Any] = {
    "family": "clip",
    "architecture": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
        "text_cfg": {"context_length": 16, "width": 16, "heads": 2, "layers": 1},
    },
}


def save_random(path: Path, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """A pretrained file with random weights that knows the prompts of two tasks."""
    prompts = [p for name in ("cars", "mnist") for c in range(8) for p in TASKS[name].prompts(c)]
    vocabulary = clip.vocabulary_of(prompts, 16)
    torch.manual_seed(0)
    network = clip.build(SPEC["architecture"], len(vocabulary))
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in network.state_dict().items()}
    tensors[clip.VOCABULARY] = torch.tensor(vocabulary)
    save_file(tensors, path)
    return tensors


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    save_random(path)
    return path


def test_flat_buffer_holds_the_file_in_name_order(weights: Path) -> None:
    """Without it a task vector would be added to the wrong weights."""
    model, tensors = load(SPEC, weights), load_file(weights)
    names = sorted(name for name in tensors if name.startswith("visual."))
    assert model.trainable == tuple(names)
    expected = torch.cat([tensors[name].reshape(-1) for name in names])
    assert torch.equal(model.flat, expected) and torch.equal(model.pretrained_flat(), expected)
    assert {name: tuple(tensors[name].shape) for name in names} == dict(model.shapes)


def test_writing_the_flat_buffer_changes_the_network(weights: Path) -> None:
    """Without it every merged model would be scored as the pretrained one."""
    model = load(SPEC, weights)
    images = model.prepare(examples("cars", "test", 4, seed=0)[0])
    head = model.head(TASKS["cars"])
    with torch.no_grad():
        before = model.logits(images, head)
        model.flat.add_(0.05 * torch.randn(model.flat.shape, generator=torch.Generator().manual_seed(1)))
        changed = model.logits(images, head)
        model.flat.copy_(model.pretrained_flat())
        restored = model.logits(images, head)
    assert not torch.allclose(before, changed, atol=1e-3)
    assert torch.equal(before, restored)


def test_head_is_the_plain_statement(weights: Path) -> None:
    """Without it zero-shot accuracy, and all that is trained against the head, would be of another head."""
    model, task = load(SPEC, weights), TASKS["cars"]
    tensors = load_file(weights)
    vocabulary = tensors.pop(clip.VOCABULARY).tolist()
    network = clip.build(SPEC["architecture"], len(vocabulary)).eval()
    network.load_state_dict(tensors)
    tokenize = clip.Tokenizer(vocabulary, 16)
    rows = []
    for name in task.classes:
        embedded = network.encode_text(tokenize([template.format(name) for template in task.templates]))
        mean = functional.normalize(embedded, dim=-1).mean(0)
        rows.append(mean / mean.norm() * network.logit_scale.exp())
    torch.testing.assert_close(model.head(task), torch.stack(rows).detach())


def test_logits_are_scaled_cosines(weights: Path) -> None:
    """Without it fine-tuning trains badly: the image features must be normalised before the head."""
    model = load(SPEC, weights)
    head = model.head(TASKS["cars"])
    with torch.no_grad():
        logits = model.logits(model.prepare(examples("cars", "test", 6, seed=0)[0]), head)
    assert logits.shape == (6, 8)
    assert (logits.abs() <= head.norm(dim=1) * (1 + 1e-5)).all()


def test_only_the_visual_tower_is_trainable(weights: Path) -> None:
    """Without it the storage formula would count the wrong parameters, and heads would drift."""
    model, tensors = load(SPEC, weights), load_file(weights)
    trainable, frozen = model.parameter_counts()
    assert trainable == model.flat.numel()
    assert frozen == sum(
        tensor.numel()
        for name, tensor in tensors.items()
        if not name.startswith(("visual.", "transformer.")) and name != clip.VOCABULARY
    )
    assert model.head(TASKS["cars"]).requires_grad is False


def test_half_precision_file_loads_as_float32(tmp_path: Path) -> None:
    """Without it a model shipped in float16 would fine-tune in float16."""
    tensors = save_random(tmp_path / "half.safetensors", torch.float16)
    model = load(SPEC, tmp_path / "half.safetensors")
    assert model.flat.dtype == torch.float32
    name = model.trainable[0]
    np.testing.assert_array_equal(model.named_arrays()[name], tensors[name].float().numpy())


def test_unknown_words_are_named(weights: Path) -> None:
    """Without it a prompt with a word that pretraining never saw would get a random head."""
    with pytest.raises(TallmasksError, match="flower"):
        load(SPEC, weights).head(TASKS["flowers102"])


def test_damaged_files_are_refused(tmp_path: Path, weights: Path) -> None:
    """Without it a wrong or broken file would be found out by its results only."""
    good = load_file(weights)

    def refused(tensors: dict[str, torch.Tensor], message: str) -> None:
        path = tmp_path / "bad.safetensors"
        save_file(tensors, path)
        with pytest.raises(TallmasksError, match=message):
            load(SPEC, path)

    refused({k: v for k, v in good.items() if k != "visual.proj"}, "'visual.proj'.*missing")
    refused({**good, "extra": torch.zeros(2)}, "'extra'.*not expected")
    refused({**good, "visual.proj": torch.zeros(3, 3)}, r"'visual.proj' has shape \[3, 3\]")
    refused({**good, "visual.proj": good["visual.proj"] * float("nan")}, "'visual.proj' holds NaN")
    with pytest.raises(TallmasksError, match="no such file"):
        load(SPEC, tmp_path / "absent.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(TallmasksError, match="not a whole safetensors file"):
        load(SPEC, tmp_path / "cut.safetensors")
    with pytest.raises(TallmasksError, match="'t6'"):
        load({"family": "t6"}, weights)


def test_shipped_model_knows_every_task() -> None:
    """Without it the first command would fail on a prompt, or the file would not say how it was made."""
    path = Path(__file__).parent.parent / "models" / "tiny.safetensors"
    with safe_open(path, "pt") as file:
        recipe = json.loads(file.metadata()["recipe"])
    assert path.stat().st_size <= 25_000_000
    model = load(recipe, path)
    for name in CATALOGUE:
        head = model.head(TASKS[name])
        assert head.shape[0] == len(TASKS[name].classes) and torch.isfinite(head).all()
