"""Where the data come from, and the errors if they are missing or not the expected data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

from image_files import RNG, cached_repository, encoded, picture, write_parquet, write_repository
from loopback_hub import REPOSITORY, loopback_hub
from reproduction.models.families import family
from reproduction.plan import chain
from reproduction.plan.node import Node
from reproduction.plan.preflight import Wanted, refused, unavailable
from reproduction.plan.settings import Plan
from reproduction.tasks.vision import TASKS
from reproduction.tasks.vision.data_files import files_of, label_named, open_dataset
from reproduction.tasks.vision.decoding import open_image
from tallmasks.errors import TallmasksError
from tallmasks.io import hub

MNIST = TASKS["mnist"]
CLIP = {"family": "clip", "architecture": "ViT-B-32"}


@pytest.mark.parametrize(
    "files", [("train.parquet", "test.parquet"), ("deep/train/0000.parquet", "deep/test/0000.parquet")]
)
def test_a_local_folder_of_parquet_files(files: tuple[str, str], tmp_path: Path) -> None:
    """Users whose files have slightly different names would have to rename them."""
    for row, name in enumerate(files):
        write_parquet(tmp_path / name, [encoded(picture(RNG, 28, 28), "PNG")], [row], image_type=pa.binary())
    for row, split in enumerate(("train", "test")):
        assert open_dataset(MNIST, files_of(MNIST, split, tmp_path)).labels.tolist() == [row]


def test_a_folder_per_class_is_read_as_torchvision_reads_it(tmp_path: Path) -> None:
    """The validation split, which is drawn by position, would contain different images from the paper's."""
    folder = tmp_path / "train"
    for kind, name in (("AnnualCrop", "b"), ("SeaLake", "a"), ("SeaLake", "10"), ("Forest", "2"), ("AnnualCrop", "a")):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for mode, suffix in (("RGB", "jpg"), ("P", "png"), ("L", "png"), ("RGBA", "PNG")):
            picture(RNG, 30, 20, mode).save(folder / kind / f"{name}-{mode}.{suffix}")
    (folder / "SeaLake" / "notes.txt").write_text("no image")
    task = TASKS["eurosat"]
    dataset = open_dataset(task, files_of(task, "train", tmp_path))
    theirs = ImageFolder(str(folder))
    assert [name for name, _ in dataset.images()] == [str(Path(path).relative_to(folder)) for path, _ in theirs.samples]
    by_name = {"AnnualCrop": 0, "Forest": 1, "SeaLake": 9}
    assert dataset.labels.tolist() == [by_name[Path(path).parent.name] for path, _ in theirs.samples]
    for (_, stored), (image, _) in zip(dataset.images(), theirs, strict=True):
        np.testing.assert_array_equal(open_image(stored), image)


def opened(tmp_path: Path, labels: list[Any], task: str = "stl10", **columns: Any) -> Any:
    images = [encoded(picture(RNG, 8, 8), "PNG")] * len(labels)
    write_parquet(tmp_path / "train.parquet", images, labels, image_type=pa.binary(), **columns)
    return open_dataset(TASKS[task], files_of(TASKS[task], "train", tmp_path))


NAMES = list(TASKS["stl10"].classes)


@pytest.mark.parametrize(
    ("task", "labels", "columns", "expected", "note"),
    [
        ("stl10", [0, 9, 2], {"names": NAMES[::-1]}, [9, 0, 7], "order"),
        ("stl10", [9], {"names": [*NAMES[:-1], "lorry"]}, [9], "'lorry'"),
        ("dtd", ["Polka_dotted", "dotted", "46"], {"label_type": pa.string()}, [30, 10, 46], None),
    ],
)
def test_labels_go_by_name(
    task: str, labels: list[Any], columns: dict[str, Any], expected: list[int], note: str | None, tmp_path: Path
) -> None:
    """Every image would be scored against the wrong class, or a renamed class would go unnoticed."""
    dataset = opened(tmp_path, labels, task, **columns)
    assert dataset.labels.tolist() == expected
    assert not dataset.notes if note is None else note in dataset.notes[0]


@pytest.mark.parametrize(
    ("labels", "columns", "message"),
    [
        ([0, 10], {}, r"stl10: example 1 .* 10 .*0 to 9"),
        (["sofa"], {"label_type": pa.string()}, "'sofa'.*airplane, bird"),
        ([1.0, 1.7], {"label_type": pa.float32()}, "found 1.7.* whole"),
        ([0], {"names": list("abcdefghij")}, r"\(a, b.*\(airplane, "),
    ],
)
def test_what_is_not_this_tasks_data_is_refused(
    labels: list[Any], columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Hours of fine-tuning on wrong labels would end up as a row in a results table."""
    with pytest.raises(TallmasksError, match=message):
        opened(tmp_path, labels, **columns)


def test_greys_of_more_than_8_bits_are_refused() -> None:
    """16-bit images, for example from a telescope or a microscope, would come out white."""
    greys = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    for image in (Image.fromarray(greys), Image.fromarray(greys.astype(np.float32))):
        with pytest.raises(ValueError, match="8 bits"):
            open_image(encoded(image, "TIFF"))


@pytest.mark.parametrize(
    ("classes", "name", "label"),
    [
        (("2", "3", "4"), "1", None),
        (("C", "D"), "C++", None),
        (("caf\u00e9", "cafe"), "cafe\u0301", 0),
        (("a tree", "b"), "A_Tree", 0),
        (("a", "b"), "1", 1),
    ],
)
def test_a_name_is_the_class_that_it_names(classes: tuple[str, ...], name: str, label: int | None) -> None:
    """Images of a folder would be taken for another class's, and every accuracy be wrong."""
    assert label_named(replace(MNIST, classes=classes, aliases={}), name) == label


def test_weights_trained_with_quick_gelu_need_a_network_that_has_it() -> None:
    """open_clip's `openai` weights would compute something else than what they were trained for."""
    with pytest.raises(TallmasksError, match="write ViT-B-32-quickgelu"):
        family(CLIP).download_pretrained(CLIP, {"tag": "openai"})


def test_some_shards_do_not_pass_for_all(tmp_path: Path, offline: Path) -> None:
    """Two of PCAM's thirteen files would be used as the whole training set, and the accuracy would be wrong."""
    task = TASKS["pcam"]
    for count, missing in ((2, "2, 3, 4"), (12, "12"), (13, None)):
        for number in range(count):
            for folder in (tmp_path / "local" / "data", cached_repository(offline, "pcam") / "data"):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"train-{number:05d}-of-00013-{number:016x}.parquet").touch()
        if missing:
            said = f"local: pcam: {count} of 13 .*{missing}"
            with pytest.raises(TallmasksError, match=said):
                files_of(task, "train", tmp_path / "local")
            with pytest.raises(TallmasksError, match="does not answer"):
                files_of(task, "train")
    assert len(files_of(task, "train", tmp_path / "local").paths) == len(files_of(task, "train").paths) == 13


Params = dict[str, Any]


def behind(params: Params, tasks: tuple[str, ...] = ("mnist", "kmnist")) -> list[Node]:
    plan = Plan(params)
    tops = [chain.evaluate_task(plan, "vit_b32", task, "fine_tuned", 0) for task in tasks]
    return [node for top in tops for node in top.walk()]


def test_what_is_on_this_machine_is_not_missing(params: Params, offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compute node without network access would refuse to start, although it has all the files."""
    weights, local = offline.parent / "weights.pt", offline.parent / "kmnist"
    weights.touch()
    params["models"]["vit_b32"]["pretrained"] = str(weights)
    write_repository(local, "kmnist", {"train": 4, "test": 4})
    params["data"] = {"kmnist": {"path": str(local)}}
    write_repository(cached_repository(offline, "mnist"), "mnist", {"train": 4, "test": 4})
    monkeypatch.setattr(hub, "reachable", lambda: pytest.fail("asked the network"))
    assert unavailable(behind(params)) == []


def test_a_file_that_the_hub_lacks_is_named(tmp_path: Path) -> None:
    """A missing file would stop the run midway."""
    (tmp_path / "files").mkdir()
    for name in ("train-0.parquet", "test-0.parquet", "README.md", "model.bin"):
        (tmp_path / "files" / name).write_bytes(b"x")
    with loopback_hub(tmp_path / "files", tmp_path / "cache"):
        examples = Wanted(REPOSITORY, "main", "dataset", (("train-*.parquet",), ("test-*.parquet",)))
        weights = Wanted(REPOSITORY, "main", "model", (("model.safetensors", "model.bin"), ("README.md",)))
        other = Wanted(REPOSITORY, "main", "model", (("model.bin",), ("a.json", "b.model")))
        (message,) = refused([examples, other, weights])
        assert "org/name/a.json or b.model at main" in message
