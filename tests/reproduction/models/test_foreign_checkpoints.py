"""Checkpoints that others fine-tuned: locating, checking and converting them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModel, CLIPVisionModelWithProjection

from reproduction.models.checkpoint_sources import locate
from reproduction.models.clip import network as clip
from reproduction.models.clip.foreign_checkpoints import PUBLISHERS, convert, from_transformers, joined
from small_clip import ARCHITECTURE, scramble
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint

THEIRS = CLIPVisionConfig(
    hidden_size=32,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    image_size=32,
    patch_size=8,
    projection_dim=16,
    hidden_act="quick_gelu",
)


@pytest.fixture(scope="module")
def pretrained() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    network = clip.build(ARCHITECTURE)
    scramble(network, 0)
    return network.state_dict()


@pytest.fixture
def finetuned(pretrained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The pretrained weights with a changed image encoder."""
    return {
        name: tensor + 0.01 * torch.ones_like(tensor) if name.startswith("visual.") else tensor
        for name, tensor in pretrained.items()
    }


def as_published(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The authors' layout: open_clip's CLIP without its text transformer, with "model." before each name."""
    return {f"model.{name}": tensor for name, tensor in state.items() if not name.startswith("transformer.")}


def import_file(path: Path, pretrained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Converts a checkpoint, after saving the pretrained weights next to it."""
    save_file(pretrained, path.parent / "pretrained.safetensors")
    found = convert(open_checkpoint(path), open_checkpoint(path.parent / "pretrained.safetensors"), "visual.")
    return {name: torch.from_numpy(np.array(values)) for name, values in found.items()}


def test_both_libraries_give_the_same_features(tmp_path: Path) -> None:
    """A tensor under the wrong name, or queries swapped with keys, would silently give a different model."""
    theirs = CLIPVisionModelWithProjection(THEIRS).eval()
    scramble(theirs, 1)
    ours = clip.build(ARCHITECTURE).eval()
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    checkpoint = open_checkpoint(tmp_path / "theirs.safetensors")
    sources = from_transformers({name.removeprefix("vision_model."): name for name in checkpoint.names}, "visual.")
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.state_dict().items()}
    found = {n: torch.from_numpy(np.array(joined(checkpoint, source, shapes[n]))) for n, source in sources.items()}
    missing, unexpected = ours.load_state_dict(found, strict=False)
    assert not unexpected and not [name for name in missing if name.startswith("visual.")]
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(ours.encode_image(images), theirs(images).image_embeds, atol=2e-6, rtol=1e-5)


def test_fusionbench_has_19_of_the_tasks() -> None:
    """FusionBench's EMNIST model, trained on letters, would be used for the paper's EMNIST digits."""
    where = locate("fusionbench", "ViT-B-32-quickgelu", "oxfordiiitpet", PUBLISHERS)
    assert where and where.repository == "tanganke/clip-vit-base-patch32_oxford-iiit-pet"
    with pytest.raises(TallmasksError, match=r"'emnist'.*checkpoints\.tasks"):
        locate("fusionbench", "ViT-B-32-quickgelu", "emnist", PUBLISHERS)
    mixed = {"source": "fusionbench", "tasks": {"emnist": "finetune"}}
    assert locate(mixed, "ViT-B-32-quickgelu", "emnist", PUBLISHERS) is None


def test_the_published_layout(tmp_path: Path, pretrained: Any, finetuned: Any) -> None:
    """A local copy of the paper's own checkpoints could not be used."""
    path = tmp_path / "copy" / "single_task" / "ViT-B-32" / "MNISTVal" / "nonlinear_finetuned.pt"
    path.parent.mkdir(parents=True)
    torch.save(as_published(finetuned), path)
    settings = {"source": "published", "path": "copy"}
    where = locate(settings, "ViT-B-32-quickgelu", "mnist", PUBLISHERS, tmp_path)
    assert where and where.local == path
    found = import_file(path, pretrained)
    assert found.keys() == {name for name in pretrained if name.startswith("visual.")}
    assert all(torch.equal(found[name], finetuned[name]) for name in found)


def test_the_fusionbench_layout(tmp_path: Path, pretrained: Any) -> None:
    """FusionBench's checkpoints could not be used, or would lack the projection, which their files do not contain."""
    theirs = CLIPVisionModel(THEIRS)
    scramble(theirs, 3)
    path = tmp_path / "tanganke/clip-vit-base-patch32_stanford-cars/model.safetensors"
    path.parent.mkdir(parents=True)
    state = theirs.state_dict() | {"embeddings.position_ids": torch.arange(17)[None]}  # saved by older transformers
    save_file({f"vision_model.{name}": tensor for name, tensor in state.items()}, path)
    where = locate({"source": "fusionbench", "path": str(tmp_path)}, "ViT-B-32-quickgelu", "cars", PUBLISHERS)
    assert where and where.local == path
    found = import_file(path, pretrained)
    assert torch.equal(found["visual.proj"], pretrained["visual.proj"])
    assert torch.equal(found["visual.ln_post.bias"], theirs.state_dict()["post_layernorm.bias"])


def test_a_folder_of_state_dicts(tmp_path: Path, pretrained: Any, finetuned: Any) -> None:
    """Users would have to rename every tensor of their own checkpoints."""
    prefix, path = "module.image_encoder.model.", tmp_path / "mnist.safetensors"
    save_file({f"{prefix}{name}": tensor for name, tensor in finetuned.items() if name.startswith("visual.")}, path)
    where = locate(str(tmp_path), "ViT-B-32", "mnist", PUBLISHERS)
    assert where and where.local == path and where.recipe == {"source": "folder"}
    assert torch.equal(import_file(path, pretrained)["visual.proj"], finetuned["visual.proj"])
