"""Image classifiers: from pixels to classes as transformers computes them, frozen heads, and running statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn import functional

from reproduction.models.classifiers.heads import HEAD
from reproduction.models.classifiers.networks import network_class
from reproduction.models.classifiers.settings import BOOKKEEPING
from reproduction.models.families import family
from reproduction.models.image_classifier import image_network
from reproduction.models.vision.image_examples import ImageExamples
from reproduction.tasks.task import Task
from reproduction.tasks.vision.image_processing import processor_of, settings_of, write_processed
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tallmasks.methods.merges import GRAMS

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
PATCHES = {**SMALL, "image_size": 16, "patch_size": 8}
SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
PVT: dict[str, Any] = {
    "image_size": 16, "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [8, 16], "num_attention_heads": [1, 2],
    "patch_sizes": [4, 2], "strides": [4, 2], "mlp_ratios": [2, 2], "sequence_reduction_ratios": [2, 1],
}  # fmt: skip
EFFICIENT: dict[str, Any] = {
    "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320, "kernel_sizes": [3, 3],
    "in_channels": [8, 8], "out_channels": [8, 16], "depthwise_padding": [], "strides": [1, 2],
    "num_block_repeats": [1, 1], "expand_ratios": [1, 2],
}  # fmt: skip
SQUARE = {"size": {"height": 16, "width": 16}}
CROPPED = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}
KINDS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "vit": (PATCHES, "ViTImageProcessor", SQUARE),
    "deit": (PATCHES, "DeiTImageProcessor", {**CROPPED, "size": {"height": 20, "width": 20}}),
    "beit": (PATCHES, "BeitImageProcessor", {**SQUARE, "do_center_crop": False}),
    "dinov2": ({**PATCHES, "mlp_ratio": 2}, "BitImageProcessor", CROPPED),
    "dinov2_with_registers": ({**PATCHES, "mlp_ratio": 2, "num_register_tokens": 2}, "BitImageProcessor", CROPPED),
    "swin": (SWIN, "ViTImageProcessor", SQUARE),
    "swinv2": (SWIN, "ViTImageProcessor", SQUARE),
    "convnext": (STAGES, "ConvNextImageProcessor", {"size": {"shortest_edge": 16}, "crop_pct": 0.8}),
    "convnextv2": (STAGES, "ConvNextImageProcessor", {"size": {"shortest_edge": 16}, "crop_pct": 0.8}),
    "resnet": ({"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}, "ViTImageProcessor", SQUARE),
    "mobilenet_v2": ({"depth_multiplier": 0.35, "image_size": 16}, "MobileNetV2ImageProcessor", CROPPED),
    "efficientnet": (EFFICIENT, "EfficientNetImageProcessor", {"size": {"height": 32, "width": 32}}),
    "pvt": (PVT, "PvtImageProcessor", SQUARE),
}  # fmt: skip
CLASSES = ("cat", "dog", "owl")


def images(count: int) -> list[Image.Image]:
    """Of several sizes."""
    draw = np.random.default_rng(0)
    sizes = [(40 + 7 * (number % 3), 50 - 6 * (number % 4), 3) for number in range(count)]
    return [Image.fromarray(draw.integers(0, 256, size, np.uint8)) for size in sizes]


def save(folder: Path, kind: str, seed: int, classes: int = 3) -> Any:
    """A small random classifier in transformers' layout, with its image processor."""
    settings, processor, options = KINDS[kind]
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, num_labels=classes, **settings)
    network = network_class(config, transformers.AutoModelForImageClassification)._from_config(config).eval()
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():  # some layers start as zero, statistics as 0 and 1
            tensor.add_(0.1 * torch.rand_like(tensor) if "var" in name else 0.1 * torch.randn_like(tensor))
    network.save_pretrained(folder)
    getattr(transformers, processor)(**options).save_pretrained(folder)
    return network


def spec_of(folder: Path, heads: str = "trained") -> dict[str, Any]:
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    architecture = {key: value for key, value in config.items() if key not in BOOKKEEPING}
    return {
        "family": "image_classifier", "architecture": architecture, "heads": heads, "preprocess": settings_of(folder),
    }  # fmt: skip


def loaded(spec: dict[str, Any], folder: Path, file: Path) -> image_network.ImageClassifierModel:
    write_tensors(file, family(spec).convert_pretrained(spec, folder), {})
    return image_network.load(spec, file, device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """A table would have other accuracies than the models have, because of other pixels, weights or statistics."""
    save(tmp_path / "base", kind, 0, classes=2)
    network = save(tmp_path / "task", kind, 1)
    spec, pictures = spec_of(tmp_path / "base"), images(5)
    own = transformers.AutoImageProcessor.from_pretrained(tmp_path / "task")
    inputs = own(pictures, return_tensors="pt")["pixel_values"]
    write_processed(pictures, np.arange(5) % 3, spec["preprocess"], tmp_path / "examples", {}, say=print)
    state = family(spec).convert_checkpoint({**spec, "classes": CLASSES}, tmp_path / "task", tmp_path / "w")
    write_tensors(tmp_path / "checkpoint", state, {})
    write_tensors(tmp_path / "head", family(spec).trained_head(tmp_path / "checkpoint"), {})  # type: ignore[attr-defined]
    examples = family(spec).examples(tmp_path / "examples", {"head": tmp_path / "head"})
    model = loaded(spec, tmp_path / "base", tmp_path / "w.safetensors")
    model.use(torch.cat([torch.from_numpy(np.array(state[name])).reshape(-1) for name in model.trainable]))
    batch = model.prepare(examples)
    assert torch.equal(batch.pixels, inputs)
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(batch), network(inputs).logits, rtol=1e-5, atol=1e-5)
    assert int(model.count_right(batch)) == int((network(inputs).logits.argmax(1) == batch.right).sum())


def test_a_head_of_class_means_is_the_plain_statement(tmp_path: Path) -> None:
    """Another centre or scale would be a worse head, in every row."""
    save(tmp_path / "base", "dinov2", 0)
    spec = {**spec_of(tmp_path / "base", "class_means"), "scoring": {"cosine_scale": 7.0}}
    body = transformers.AutoModel.from_pretrained(tmp_path / "base").eval()
    pictures, labels = images(7), np.array([0, 1, 2, 0, 1, 2, 2])
    inputs = processor_of(spec["preprocess"]).inputs(pictures)
    with torch.no_grad():
        features = body(inputs).pooler_output
    centre = features.mean(0)
    unit = functional.normalize(features - centre)
    means = torch.stack([functional.normalize(unit[labels == label].mean(0), dim=0) for label in range(3)])
    write_processed(pictures, labels, spec["preprocess"], tmp_path / "examples", {})
    model = loaded(spec, tmp_path / "base", tmp_path / "w.safetensors")
    examples = family(spec).examples(tmp_path / "examples", {})
    head = model.head(Task("pets", CLASSES, (), ""), examples)
    assert set(head) == {"head", "centre"}
    batch = model.prepare(ImageExamples(examples.images, examples.labels, head))
    torch.testing.assert_close(model.logits(batch), 7 * unit @ means.T, rtol=1e-4, atol=1e-4)
    with pytest.raises(TallmasksError, match="no training images of the class bat"):
        model.head(Task("pets", (*CLASSES, "bat"), (), ""), examples)


def test_training_leaves_running_statistics_and_trains_the_head(tmp_path: Path) -> None:
    """The body would be merged with statistics that no checkpoint has."""
    save(tmp_path / "base", "resnet", 0)
    spec = {**spec_of(tmp_path / "base"), "classes": CLASSES, "seed": 0, "task": "pets"}
    model = loaded(spec, tmp_path / "base", tmp_path / "w.safetensors")
    examples = ImageExamples(np.zeros((4, 16, 16, 3), np.uint8), np.array([0, 1, 2, 0]), {})
    before = {name: tensor.clone() for name, tensor in model._network.named_buffers()}
    model.train(True)
    model.loss(model.prepare(examples)).backward()  # type: ignore[no-untyped-call]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model._network.named_buffers())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert HEAD in model.named_arrays()


def test_a_processor_without_a_fixed_size_is_refused(tmp_path: Path) -> None:
    """The table would end with a traceback of NumPy, after hours."""
    transformers.BitImageProcessor(size={"shortest_edge": 20}, do_center_crop=False).save_pretrained(tmp_path)
    with pytest.raises(TallmasksError, match="images of several sizes"):
        write_processed(images(5), np.arange(5), settings_of(tmp_path), tmp_path / "examples", {})


@pytest.mark.parametrize("kind", KINDS)
def test_regmean_is_refused_where_no_layer_is_linear(kind: str, tmp_path: Path) -> None:
    """Its statistics would fail after all fine-tunings."""
    network = save(tmp_path, kind, 0)
    has_linear = any(isinstance(module, torch.nn.Linear) for module in network.base_model.modules())
    supported = family(spec_of(tmp_path)).statistics(spec_of(tmp_path))  # type: ignore[attr-defined]
    assert (GRAMS in supported) == has_linear


def test_wrapped_timm_models_are_refused() -> None:
    """Their heads would be merged with the bodies."""
    spec = {"architecture": {"model_type": "timm_wrapper"}, "heads": "trained", "preprocess": {}}
    spec["preprocess"] = {"image_processor_type": "TimmWrapperImageProcessor"}
    with pytest.raises(TallmasksError, match="found timm_wrapper, in which the head is a part of the body"):
        family({"family": "image_classifier"}).check("mine", spec)
