"""Decoding images: which ones a split has, what is stored of them, and what happens to undecodable ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, RandomResizedCrop, functional

from image_files import RNG, encoded, picture, write_idx, write_parquet
from reproduction.models.clip.augmentation import crop_and_resize
from reproduction.tasks.vision import TASKS
from reproduction.tasks.vision import decoding as module
from reproduction.tasks.vision.decoding import split_indices, squashed, write_examples
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import open_tensors


def test_the_validation_split_is_the_papers() -> None:
    """Scaling coefficients and mask lambdas would be chosen on different images from the paper's."""
    train, validation = split_indices(60_000, "train"), split_indices(60_000, "validation")
    assert train[0] == 36044  # the value in the paper's code
    assert (len(train), len(validation)) == (55_000, 5_000)
    assert sorted([*train, *validation]) == list(range(60_000))
    assert [len(split_indices(count, "validation")) for count in (1020, 50_000, 3680)] == [102, 5000, 368]


def broken(tmp_path: Path, broken_rows: tuple[int, ...], count: int = 12) -> tuple[Path, list[Image.Image]]:
    """A folder of test images; those in `broken_rows` cannot be decoded."""
    images = [picture(RNG, 28, 28) for _ in range(count)]
    stored = [encoded(image, "PNG") for image in images]
    for row, damaged in zip(broken_rows, (b"<html>", stored[0][:90], b"", None), strict=False):
        stored[row] = damaged  # type: ignore[call-overload]
    write_parquet(tmp_path / "test.parquet", stored, [row % 10 for row in range(count)], image_type=pa.binary())
    return tmp_path, images


def test_undecodable_images_are_named_and_refused(tmp_path: Path) -> None:
    """A damaged download would lower the accuracy without any explanation."""
    folder, _ = broken(tmp_path, (2, 5, 7, 9))
    said: list[str] = []
    with pytest.raises(TallmasksError, match=r"4 of 12 .*example 2"):
        write_examples(TASKS["mnist"], "test", 224, tmp_path / "out", {}, folder, say=said.append)
    assert sum(": example " in line for line in said) == 4
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_a_few_undecodable_images_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad image in 20,000 would stop the whole run, or shift all labels after it."""
    monkeypatch.setattr(module, "LARGEST_UNDECODABLE", 0.2)
    folder, images = broken(tmp_path, (2, 5))
    write_examples(TASKS["mnist"], "test", 224, tmp_path / "out", {}, folder, threads=2)
    stored = open_tensors(tmp_path / "out")
    kept = [row for row in range(12) if row not in (2, 5)]
    assert stored.view("labels").tolist() == [row % 10 for row in kept]
    np.testing.assert_array_equal(stored.view("images"), [np.asarray(images[row]) for row in kept])
    facts = json.loads(stored.metadata["origin"])
    assert facts["images"] == 10
    assert [name.split(":")[0] for name in facts["undecodable"]] == ["example 2", "example 5"]


def test_a_stored_training_image_gives_the_reference_crops(tmp_path: Path) -> None:
    """Fine-tuning would see different images from those that open_clip's training transform gives."""
    torch.manual_seed(0)
    for width, height in ((500, 375), (300, 400), (900, 300)):
        image = picture(RNG, width, height)
        stored, (stored_height, stored_width) = squashed(image, 256)
        top, left, tall, wide = RandomResizedCrop.get_params(image, (0.9, 1.0), (3 / 4, 4 / 3))
        expected = functional.resized_crop(image, top, left, tall, wide, [224, 224], InterpolationMode.BICUBIC)
        cut_top, cut_left = (height - stored_height) // 2, (width - stored_width) // 2
        box = torch.tensor([[top - cut_top, left - cut_left, tall, wide]], dtype=torch.float32)
        box /= torch.tensor([stored_height, stored_width, stored_height, stored_width])
        crop = crop_and_resize(torch.from_numpy(stored.copy())[None], box, 224)[0].numpy()
        assert np.abs(crop.astype(float) - np.asarray(expected)).mean() < 1.5  # of 255; it was resized twice


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([row % 10 for row in range(20)], None),
        ([row % 10 for row in range(30)], r"30 .* 20"),
        ([*range(10), *range(9), 0], r"1 .*'9'.* 2 "),
    ],
)
def test_data_without_a_pinned_commit_are_held_to_their_counts(
    labels: list[int], said: str | None, tmp_path: Path, offline: Path
) -> None:
    """Whatever is next uploaded to EMNIST's repository would be decoded as EMNIST's digits."""
    task = replace(TASKS["emnist"], counts={"train": 20, "test": 10})
    cache = offline / f"datasets--{task.source.hub.replace('/', '--')}"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("a" * 40)
    images = np.zeros((len(labels), 28, 28), np.uint8)
    for folder in (cache / "snapshots" / ("a" * 40), tmp_path / "local"):
        write_idx(folder, task.source.files["train"], images, labels)
    if said is None:
        write_examples(task, "train", 224, tmp_path / "out", {})
        assert json.loads(open_tensors(tmp_path / "out").metadata["origin"])["revision"] == "a" * 40
        return
    with pytest.raises(TallmasksError, match=rf"{'a' * 40}: emnist: {said}.*data\.emnist\.revision"):
        write_examples(task, "train", 224, tmp_path / "out", {})
    noted: list[str] = []  # only a warning for data the user chose
    write_examples(task, "train", 224, tmp_path / "out", {}, tmp_path / "local", say=noted.append)
    assert len([line for line in noted if line.startswith("warning: emnist")]) == 1
