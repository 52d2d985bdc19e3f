"""The evaluation engine against the bare forward pass, in one run, at the same batch size and precision.

    python benchmarks/evaluation.py [--architecture ViT-B-32-quickgelu] [--precision float32] [--batch-size 64]

Random weights and random images.  The engine reads uint8 images from a memory-mapped file, prepares them, and counts
right answers of several weight sets that it builds from an update; the bare pass is the image encoder alone, over and
over on one prepared batch.  Both take turns.  Prints images (times weight sets) per second of either, their ratio in
every round and the median ratio; exits with status 1 where that is under the --least share.
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from measured import median_ratio, rate

from reproduction.evaluation.evaluator import Evaluator, TaskData
from reproduction.models import cuda
from reproduction.models.clip import network as clip
from reproduction.models.clip.onednn import use_onednn
from reproduction.models.vision.image_examples import ImageExamples

CLASSES = 100
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def _enough(model: clip.ClipModel, images: torch.Tensor, update: np.ndarray, sets: int) -> int:
    """Batches whose passes by all weight sets take a hundred times as long as uploading an update."""

    head = torch.zeros(1, model._network.visual.output_dim, device=model.device)

    def passed() -> int:
        with torch.inference_mode():
            model.logits(images, head)
        return 1

    def uploaded() -> int:
        torch.from_numpy(update).to(model.device)
        return 1

    passed(), uploaded()
    return math.ceil(100 * rate(passed, model.device) / rate(uploaded, model.device) / sets)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="ViT-B-32-quickgelu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--batches", type=int, help="batches of images in the file (default: 2; on a GPU so many that uploading the "
        "update takes less than 1%% of a round)"
    )  # fmt: skip
    parser.add_argument("--side", type=int, default=None, help="of the stored images; as the network takes them")
    parser.add_argument("--coefficients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--least", type=float, default=0.9)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    device = cuda.choose(None)
    network = clip.build(arguments.architecture).to(device)
    if device.type == "cpu":
        use_onednn(network.visual)
    size = network.visual.image_size[0]
    model = clip.ClipModel(
        network, lambda: lambda prompts: torch.empty(0), clip.Preprocess(size, MEAN, STD), arguments.precision
    )
    coefficients = [k / arguments.coefficients for k in range(arguments.coefficients)]
    draw = np.random.default_rng(0)
    update = 1e-3 * draw.standard_normal(model.flat.numel(), dtype=np.float32)
    images = torch.zeros(arguments.batch_size, 3, size, size, device=device)
    batches = arguments.batches or (2 if device.type == "cpu" else _enough(model, images, update, len(coefficients)))
    count = arguments.batch_size * batches
    with tempfile.TemporaryDirectory() as folder:
        path, side = Path(folder, "images.npy"), arguments.side or size
        np.save(path, draw.integers(0, 256, (count, side, side, 3), np.uint8))
        labels = draw.integers(0, CLASSES, count)
        head = draw.standard_normal((CLASSES, network.visual.output_dim), dtype=np.float32)
        examples = ImageExamples(np.load(path, mmap_mode="r"), labels, head)
        evaluator = Evaluator(model, [TaskData("random", {"test": examples})], arguments.batch_size)
        prepared = model.pixels(np.array(examples.images[: arguments.batch_size]))

        def engine() -> int:
            evaluator.scaled("test", update, coefficients)
            return count * len(coefficients)

        def bare() -> int:
            with (
                torch.inference_mode(),
                torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bfloat16"),
            ):
                for _ in range(batches * len(coefficients)):
                    network.encode_image(prepared)
            return count * len(coefficients)

        print(
            f"{arguments.architecture}, {arguments.precision}, batches of {arguments.batch_size}, {device}, "
            f"{torch.get_num_threads()} threads, stored images {side} x {side}, {len(coefficients)} weight sets"
        )
        median = median_ratio(engine, bare, device, arguments.rounds, "images")
    print(f"median ratio {median:.3f}, at least {arguments.least} wanted")
    return int(median < arguments.least)


if __name__ == "__main__":
    sys.exit(main())
