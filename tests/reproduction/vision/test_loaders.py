"""The 20 dataset loaders on files in the layout of the hub, and what is stored of their images."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from open_clip.transform import image_transform
from PIL import Image
from torchvision.transforms import InterpolationMode, RandomResizedCrop, functional

from image_files import RNG, SCHEMAS, encoded, picture, write_idx, write_parquet, write_repository
from reproduction.models.vision.augmentation import crop_and_resize
from reproduction.tasks.catalogues import catalogue
from reproduction.tasks.task import SPLITS
from reproduction.tasks.vision import TASKS
from reproduction.tasks.vision import decoding as module
from reproduction.tasks.vision.decoding import split_indices, squashed, write_examples
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import open_tensors

SIDE = 224
COUNTS = {"train": 12, "test": 5}  # more than ten, as "10" sorts before "2"
REFERENCE = image_transform(SIDE, is_train=False, mean=(0, 0, 0), std=(1, 1, 1))


def reference(image: Image.Image) -> np.ndarray:
    """The output of open_clip's own evaluation transform, uint8 [224, 224, 3]."""
    return (REFERENCE(image.convert("RGB")).permute(1, 2, 0) * 255).round().byte().numpy()


@pytest.mark.parametrize("name", TASKS)
def test_every_dataset_is_read_as_it_is_on_the_hub(name: str, tmp_path: Path) -> None:
    """A task would get wrong images or labels, or a run would fail after hours on an unexpected file layout."""
    content = write_repository(tmp_path / "hub", name, COUNTS)
    kept = SCHEMAS[name].side if (SCHEMAS[name].side or SIDE) <= 96 else None
    for split in SPLITS:
        part = "test" if split == "test" else "train"
        write_examples(TASKS[name], split, SIDE, tmp_path / split, {"recipe": "r"}, tmp_path / "hub", threads=2)
        stored = open_tensors(tmp_path / split)
        images, labels = content[part]
        chosen = sorted(range(COUNTS["test"]) if split == "test" else split_indices(COUNTS["train"], split))
        np.testing.assert_array_equal(stored.view("labels"), [labels[index] for index in chosen])
        for row, index in enumerate(chosen):
            rgb = images[index].convert("RGB")
            if kept:
                expected, size = np.asarray(rgb), None
            elif split == "train":
                expected, size = squashed(rgb, 256)
            else:
                expected, size = reference(images[index]), None
            np.testing.assert_array_equal(stored.view("images")[row], expected)
            if size:
                np.testing.assert_array_equal(stored.view("sizes")[row], size)
        facts = json.loads(stored.metadata["origin"])
        assert stored.metadata["recipe"] == "r" and facts["images"] == len(chosen) and not facts["undecodable"]
        assert any(f"{COUNTS[part]} " in line and str(TASKS[name].counts[part]) in line for line in facts["warnings"])


def test_the_catalogue_is_the_papers() -> None:
    """A benchmark would lack a task, or a head would be built for the wrong classes."""
    assert list(catalogue("vision").tasks({})) == list(catalogue("tiny_worlds.drawn").tasks({}))
    classes = [len(task.classes) for task in TASKS.values()]
    assert classes == [196, 47, 10, 43, 10, 45, 397, 10, 100, 10, 102, 37, 2, 7, 10, 10, 101, 10, 2, 10]
    assert all(len(set(task.classes)) == len(task.classes) for task in TASKS.values())
    assert all("{}" in template for task in TASKS.values() for template in task.templates)
    assert TASKS["fer2013"].prompts(3)[4] == "they look ['happy', 'smiling']."


def test_a_published_head_pairs_classes_and_prompts_as_the_authors_did() -> None:
    """The authors' FER2013 checkpoint would seem to be wrong on three of its seven classes."""
    task = TASKS["fer2013"]
    assert [name.split("'")[1] for name in task.classes][4:] == ["neutral", "sad", "surprised"]
    assert [name.split("'")[1] for name in task.worded_for("published").classes][4:] == ["sad", "surprised", "neutral"]
    assert TASKS["kmnist"].worded_for("fusionbench").classes[0] == "お"
    assert TASKS["cars"].worded_for("published") == TASKS["cars"]


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


def test_data_without_a_pinned_commit_are_held_to_their_counts(tmp_path: Path, offline: Path) -> None:
    """Whatever is next uploaded to EMNIST's repository would be decoded as EMNIST's digits."""
    task = replace(TASKS["emnist"], counts={"train": 20, "test": 10})
    cache = offline / f"datasets--{task.source.hub.replace('/', '--')}"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("a" * 40)
    for labels, said in (([*range(10)] * 2, None), ([*range(10)] * 3, "30 .* 20"), ([*range(10), *range(9), 0], "'9'")):
        images = np.zeros((len(labels), 28, 28), np.uint8)
        for folder in (cache / "snapshots" / ("a" * 40), tmp_path / "local"):
            write_idx(folder, task.source.files["train"], images, labels)
        if said is None:
            write_examples(task, "train", 224, tmp_path / "out", {})
            continue
        with pytest.raises(TallmasksError, match=rf"{'a' * 40}: emnist: .*{said}.*data\.emnist\.revision"):
            write_examples(task, "train", 224, tmp_path / "out", {})
        noted: list[str] = []  # only a warning for data the user chose
        write_examples(task, "train", 224, tmp_path / "out", {}, tmp_path / "local", say=noted.append)
        assert len([line for line in noted if line.startswith("warning: emnist")]) == 1
