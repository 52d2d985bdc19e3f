"""An image encoder with torch's own linear layers against the same with convolutions (tallmasks.models.clip.onednn).

    python benchmarks/linear.py [--architecture ViT-B-32-quickgelu] [--batch-size 50] [--threads 1]

The architecture is that of the tiny model in params.yaml unless another is named.  Both encoders take turns on random
images.  Prints images per second of either, forward and forward-and-backward, and the median ratio over the rounds.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
import yaml

from tallmasks.models.clip import network as clip
from tallmasks.models.clip.onednn import use_onednn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture")
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="at least, for one measurement")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tiny = yaml.safe_load(Path("params.yaml").read_text())["models"]["tiny"]["architecture"]
    encoders = [clip.build(arguments.architecture or tiny).visual.eval() for _ in range(2)]
    use_onednn(encoders[1])
    size = encoders[0].image_size[0]
    images = torch.randn(arguments.batch_size, 3, size, size)

    def forward(encoder: torch.nn.Module) -> None:
        with torch.inference_mode():
            encoder(images)

    def both_ways(encoder: torch.nn.Module) -> None:
        encoder(images).sum().backward()

    for name, work in (("forward", forward), ("forward and backward", both_ways)):
        rounds = []
        for _ in range(arguments.rounds):
            rates = []
            for encoder in encoders:
                work(encoder)
                start, batches = time.perf_counter(), 0
                while (now := time.perf_counter()) - start < arguments.seconds:
                    work(encoder)
                    batches += 1
                rates.append(batches * arguments.batch_size / (now - start))
            rounds.append(rates)
        own, ours = (statistics.median(rates) for rates in zip(*rounds, strict=True))
        ratio = statistics.median(ours / own for own, ours in rounds)
        print(f"{name}: torch's own {own:.0f} images/s, convolutions {ours:.0f} images/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
