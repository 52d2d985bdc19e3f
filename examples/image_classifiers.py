"""Train three small image classifiers of one base, to try tallmasks on.

    python examples/image_classifiers.py ./drawn

Writes a base, `drawn/base`; the classifiers, `drawn/shapes` and so on, as transformers saves them; and images that they
were not trained on, `drawn/images/shapes/circle/0.png` and so on. The base has been trained to tell all kinds of
drawings apart. Takes about a minute on a laptop.
"""

import copy
import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

TASKS = {
    "shapes": ["circle", "square", "triangle"],
    "colours": ["red", "green", "blue"],
    "fills": ["full", "striped", "hollow"],
}
DRAWINGS = list(itertools.product(*TASKS.values()))
SIDE = 32  # pixels
CORNERS = {"circle": 40, "triangle": 3, "square": 4}


def drawn(shape: str, colour: str, fill: str, draw: np.random.Generator) -> Image.Image:
    """A shape at about the middle, in a random size and shade, on a grey background with noise."""
    ink = draw.integers(0, 130, 3)
    ink[TASKS["colours"].index(colour)] = draw.integers(170, 256)
    image = Image.new("RGB", (SIDE, SIDE), (int(draw.integers(90, 230)),) * 3)
    radius = draw.uniform(10, 13)
    place = (*draw.uniform(14, 18, 2), radius)
    pen = ImageDraw.Draw(image)
    pen.regular_polygon(place, CORNERS[shape], 0, None if fill == "hollow" else tuple(ink), tuple(ink), 2)
    if fill == "striped":
        for row in range(int(draw.integers(3)), SIDE, 4):
            pen.line((0, row, SIDE, row), (255, 255, 255))
    noise = draw.normal(0, 20, (SIDE, SIDE, 3))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def train(model: ViTForImageClassification, answers: list[int], steps: int, rate: float, seed: int) -> None:
    """AdamW on batches of 32 new drawings. ``answers``: the class of each of `DRAWINGS`."""
    draw, processor = np.random.default_rng(seed), ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    for _ in range(steps):
        kinds = draw.integers(0, len(DRAWINGS), 32)
        inputs = processor([drawn(*DRAWINGS[kind], draw) for kind in kinds], return_tensors="pt")
        labels = torch.tensor([answers[kind] for kind in kinds])
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main(folder: Path) -> None:
    """Write all models and images to a new folder."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # faster for small matrices
    processor = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    small |= {"image_size": SIDE, "patch_size": 8}
    base = ViTForImageClassification(ViTConfig(**small, num_labels=len(DRAWINGS)))
    train(base, list(range(len(DRAWINGS))), 600, 2e-3, seed=1)
    base.vit.save_pretrained(folder / "base")
    processor.save_pretrained(folder / "base")
    for seed, (task, classes) in enumerate(TASKS.items(), 2):
        model = ViTForImageClassification(ViTConfig(**small, id2label=dict(enumerate(classes))))
        model.vit = copy.deepcopy(base.vit)
        kinds = [next(number for number, name in enumerate(classes) if name in drawing) for drawing in DRAWINGS]
        train(model, kinds, 200, 5e-4, seed)
        model.save_pretrained(folder / task)
        processor.save_pretrained(folder / task)
        draw = np.random.default_rng(100 + seed)
        for number in range(450):
            drawing = DRAWINGS[draw.integers(len(DRAWINGS))]
            file = Path(folder, "images", task, classes[kinds[DRAWINGS.index(drawing)]], f"{number}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            drawn(*drawing, draw).save(file)
        print(f"{task}: {', '.join(classes)}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-") or Path(sys.argv[1]).exists():
        sys.exit("usage: python examples/image_classifiers.py NEW_FOLDER")
    main(Path(sys.argv[1]))
