"""Image processors of other kinds than `models/test_image_classifier.py` has, on images of every size."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from reproduction.tasks.vision.image_processing import ImageProcessor, settings_of, write_processed
from tallmasks.io.tensor_files import load_state

SQUARE = {"height": 32, "width": 32}
PROCESSORS: dict[str, dict[str, Any]] = {
    "DINOv3ViTImageProcessor": {"size": SQUARE},  # rescales before it resizes
    "EfficientNetImageProcessor": {"size": SQUARE, "rescale_offset": True, "rescale_factor": 1 / 127.5},
    "LevitImageProcessor": {"size": {"shortest_edge": 36}, "crop_size": SQUARE},
}
TIMM = {"input_size": [3, 32, 32], "crop_pct": 0.9, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}


@pytest.mark.parametrize("kind", [*PROCESSORS, "timm"])
def test_stored_pixels_give_the_folders_own_input(kind: str, tmp_path: Path) -> None:
    """Tables of DINOv3 with one plain picture among photographs were refused, as of images of several sizes."""
    if kind == "timm":
        config = {"model_type": "timm_wrapper", "architecture": "resnet18", "num_classes": 3, "pretrained_cfg": TIMM}
        (tmp_path / "config.json").write_text(json.dumps(config))  # as timm saves it
    else:
        getattr(transformers, kind)(**PROCESSORS[kind]).save_pretrained(tmp_path)
    draw = np.random.default_rng(1)
    noise = [draw.integers(0, 256, shape, np.uint8) for shape in ((90, 60, 3), (32, 32, 3), (1, 1, 3), (3, 200, 3))]
    images = [Image.fromarray(array) for array in (*noise, np.full((40, 50, 3), 255, np.uint8))]
    own = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="torchvision")
    expected = torch.cat([own([image], return_tensors="pt")["pixel_values"] for image in images])

    settings, output = settings_of(tmp_path), tmp_path / "examples.safetensors"
    write_processed(iter(images), np.arange(len(images)), settings, output, {}, threads=2)

    stored = load_state(output)["images"]
    assert torch.equal(ImageProcessor(settings).finished(torch.from_numpy(stored)), expected)
    assert (stored.dtype == np.uint8) == (kind not in ("timm", "DINOv3ViTImageProcessor"))
