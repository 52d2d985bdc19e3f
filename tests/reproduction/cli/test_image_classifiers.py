"""`tallmasks compare` and `evaluate` for one's own image classifiers."""

import json
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image
from transformers import (
    AutoImageProcessor,
    ResNetConfig,
    ResNetForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
)

from conftest import ROOT
from tallmasks.cli.main import main

SIDE, CLASSES = 8, ("dark", "light")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, and a classifier that tells dark from light images; and such images, of which 3 are in a wrong folder."""
    folder = tmp_path_factory.mktemp("trained")
    torch.manual_seed(0)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = ViTConfig(**small, image_size=SIDE, patch_size=4, id2label=dict(enumerate(CLASSES)))
    network = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(network.parameters(), 0.01)
    for _ in range(60):
        labels = torch.arange(16) % 2
        pixels = (2.0 * labels - 1)[:, None, None, None] * torch.rand(16, 3, SIDE, SIDE)
        network(pixel_values=pixels, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.save_pretrained(folder / "model")
    ViTModel(ViTConfig(**small, image_size=SIDE, patch_size=4)).save_pretrained(folder / "base")
    for name in ("model", "base"):
        ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder / name)
    draw = np.random.default_rng(0)
    for number in range(40):
        label = number % 2
        pixels = draw.integers(160 * label, 160 * label + 90, (12, 10, 3), dtype=np.uint8)
        file = folder / "images" / CLASSES[(label + (number < 3)) % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return folder


def compare(trained: Path, out: Path, *more: str, model: Path | None = None, images: Path | None = None) -> int:
    paths = {"task": model or trained / "model", "images": images or trained / "images"}
    pairs = [f"--{option}={name}={path}" for name in ("one", "two") for option, path in paths.items()]
    return main(["compare", f"--base={trained / 'base'}", *pairs, f"--output={out}", *more])


@pytest.mark.parametrize("name", ["classifiers", "image_classifiers"])
def test_an_option_is_not_taken_for_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--help` would train models for a minute, into a folder of this name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["example", "--help"])
    with pytest.raises(SystemExit, match="usage: python examples"):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def test_the_accuracy_is_that_of_the_labels(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Classes in the order of their folders, or images with other pixels, give another accuracy in silence."""
    assert main(["evaluate", str(trained / "model"), f"--images={trained / 'images'}"]) == 0
    assert "92.50% of 40 images" in capsys.readouterr().out
    assert main(["evaluate", str(trained / "model"), f"--images={trained / 'images'}", "--split=test"]) == 0
    assert "of 16 images (test)" in capsys.readouterr().out
    turned = shutil.copytree(trained / "model", tmp_path / "turned")  # outputs in another order than the folders'
    config = json.loads((turned / "config.json").read_text())
    names = {"id2label": {"0": "light", "1": "dark"}, "label2id": {"light": 0, "dark": 1}}
    (turned / "config.json").write_text(json.dumps(config | names))
    assert main(["evaluate", str(turned), f"--images=any={trained / 'images'}"]) == 0
    assert "any: 7.50% of 40 images" in capsys.readouterr().out


def test_the_settings_are_those_of_the_folders(trained: Path, tmp_path: Path) -> None:
    """The table would be of another network, or of images that are prepared in another way."""
    assert compare(trained, tmp_path / "compare.yaml", "--fractions", "0.2", "0.5") == 0
    settings = yaml.safe_load((tmp_path / "compare.yaml").read_text())
    model = settings["models"]["mine"]
    assert (model["family"], model["tasks"]) == ("image_classifier", "vision")
    assert model["preprocess"]["size"] == {"height": SIDE, "width": SIDE} and "scoring" not in model
    assert settings["data"]["two"] == {
        "images": str(trained / "images"), "label": "label", "classes": list(CLASSES),
        "fractions": {"validation": 0.2, "test": 0.5},
    }  # fmt: skip


def test_other_image_processors_are_told(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that was trained on other pixels has a lower accuracy in the table, and nothing would say so."""
    for case, said in (("other", "other pixels than the base's for 40 of 40 images"), ("none", "no image processor")):
        model = shutil.copytree(trained / "model", tmp_path / case)
        file = model / "preprocessor_config.json"
        content = json.loads(file.read_text()) | {"image_mean": [0.4, 0.4, 0.4]}
        file.write_text(json.dumps(content)) if case == "other" else file.unlink()
        assert compare(trained, tmp_path / f"{case}.yaml", model=model) == 0
        assert said in " ".join(capsys.readouterr().err.split())


def test_running_statistics_are_told(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`merge` would write a model with another accuracy than its row, and nothing would say so."""
    for name in ("base", "model"):
        folder = shutil.copytree(trained / name, tmp_path / name)
        small = {"hidden_sizes": [8], "depths": [1], "embedding_size": 8}
        network = ResNetForImageClassification(ResNetConfig(**small, id2label=dict(enumerate(CLASSES))))
        (network if name == "model" else network.resnet).save_pretrained(folder)
    assert compare(tmp_path, tmp_path / "compare.yaml", images=trained / "images") == 0
    assert "`tallmasks merge` averages them" in " ".join(capsys.readouterr().err.split())


def renamed(folder: Path, *names: str) -> Path:
    for old, new in zip(CLASSES, names, strict=True):
        (folder / old).rename(folder / new)
    return folder


@pytest.mark.parametrize("named", [True, False])
def test_a_model_of_timm_is_evaluated(
    named: bool, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its names and outputs have other keys in config.json, and its head is a part of the body."""
    torch.manual_seed(0)
    shown = timm.get_pretrained_cfg("test_vit").to_dict()
    network = TimmWrapperForImageClassification(
        TimmWrapperConfig(architecture="test_vit", id2label={0: "dark", 1: "b"}, pretrained_cfg=shown)
    )
    network.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert config["label_names"] == ["dark", "b"] and "id2label" not in config
    names = {"label_names": [*CLASSES]} if named else {"label_names": None, "num_classes": 2}
    (tmp_path / "model/config.json").write_text(json.dumps(config | names))
    images = shutil.copytree(trained / "images", tmp_path / "images")
    files = [file for name in CLASSES for file in sorted((images / name).iterdir())]
    inputs = AutoImageProcessor.from_pretrained(tmp_path / "model")([Image.open(file) for file in files])
    with torch.inference_mode():
        found = network.eval()(torch.stack([*inputs["pixel_values"]])).logits.argmax(dim=1).tolist()
    right = sum(file.parent.name == CLASSES[output] for file, output in zip(files, found, strict=True))
    folders = images if named else renamed(images, "0", "1")
    assert main(["evaluate", str(tmp_path / "model"), f"--images={folders}"]) == 0
    assert f"{right / len(files):.2%} of {len(files)} images" in capsys.readouterr().out and 0 < right < len(files)


@pytest.mark.parametrize(
    ("names", "words", "said"),
    [
        (CLASSES, ["--max-tokens=5"], "--max-tokens: is only for --texts"),
        (CLASSES, ["--texts=one=a.csv"], "found --texts and --images"),
        (("dark", "grey"), [], "'grey', which the model does not"),
        (("0", "1"), [], "'0', which the model does not know"),
    ],
)
def test_wrong_moves_are_refused_in_a_line(
    names: tuple[str, ...], words: list[str], said: str, trained: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The run would stop later, or print an accuracy of other classes."""
    images = renamed(shutil.copytree(trained / "images", tmp_path / "images"), *names)
    assert compare(trained, tmp_path / "compare.yaml", *words, images=images) in (1, 2)
    assert re.fullmatch(rf"error: .*{said}.*\n", capsys.readouterr().err)
    assert not (tmp_path / "compare.yaml").exists()


def test_numbers_are_outputs_of_a_model_without_names(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders named 0 and 1 could not be used with a model that a Trainer saved without names; or without a warning."""
    images = renamed(shutil.copytree(trained / "images", tmp_path / "images"), "0", "1")
    model = shutil.copytree(trained / "model", tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    names = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    (model / "config.json").write_text(json.dumps(config | names))
    assert main(["evaluate", str(model), f"--images={images}"]) == 0
    printed = capsys.readouterr()
    assert "92.50% of 40 images" in printed.out
    assert "its numbers are taken as those of the outputs" in " ".join(printed.err.split())
