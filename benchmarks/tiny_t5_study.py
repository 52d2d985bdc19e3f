"""The tiny language model's fine-tuning, merges and masks in a few minutes of one core, to try settings with.

    python benchmarks/tiny_t5_study.py [--prefix none] [--learning-rate 1e-3] [--epsilon 1e-8] [--frozen shared.weight]

On validation data alone, with one seed, on the shipped weights and on `PlainT5`, whose step takes a tenth of what
transformers' does; freely written answers are scored by their one word.  Prints the accuracy of every task before and
after fine-tuning in percent, and of every method the accuracy relative to the fine-tuned models, with alpha chosen for
each as the workflow does it.  docs/tiny_t5/README.md says what was tried.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch.nn import functional

from tallmasks.tasks.texts import Text
from tallmasks.tasks.written import TASKS, examples
from tallmasks.tasks.written.world import DIALECTS
from tallmasks.tasks.written.written_tasks import Split
from tallmasks.training.plain_t5 import PlainT5
from tallmasks.training.tiny_t5_pretraining import IGNORED, TOKENIZER, Tokenize

ROOT = Path(__file__).parent.parent
PREFIXES = ("own", "none", "wrong-marker")
ALPHAS = [step / 10 for step in range(11)]
LAMBDAS = (0.2, 0.3, 0.4, 0.5, 0.6)
KEPT = 0.2  # of TIES
Vector = NDArray[np.float32]


class Study:
    """The network, and what is tried with it."""

    def __init__(self, said: argparse.Namespace, architecture: dict[str, int], counts: dict[str, int]) -> None:
        self.said, self.counts, self.tokenize = said, counts, Tokenize()
        self.numbers = {word: self.tokenize([word])[0, 0].item() for task in TASKS for word in _answers(task, counts)}
        self.network = PlainT5(architecture, 0)
        weights = load_file(ROOT / "models" / "tiny_t5.safetensors")
        del weights[TOKENIZER]
        kept = []
        with torch.no_grad():
            for name, tensor in self.network.tensors.items():
                tensor.copy_(weights[name])
                kept.append(torch.full((tensor.numel(),), name not in said.frozen))
        self.trained = torch.cat(kept)
        self.pretrained = self.network.flat.detach().clone()
        self.seen: dict[str, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]] = {}

    def texts(self, task: str, split: Split) -> list[Text]:
        """Examples with the prefix that is tried."""
        own, wrong = TASKS[task].prefix + " ", DIALECTS[(TASKS[task].dialect + 1) % len(DIALECTS)]
        found = list(examples(task, split, self.counts[split], 0))
        if self.said.prefix == "none":
            return [text._replace(input=text.input.removeprefix(own)) for text in found]
        return [text._replace(input=f"{wrong} {text.input}") for text in found] if self.said.prefix != "own" else found

    def use(self, update: Vector | None) -> None:
        """Take the pretrained weights and an update of those that are trained."""
        with torch.no_grad():
            self.network.flat.copy_(self.pretrained)
            if update is not None:
                self.network.flat[self.trained] += torch.from_numpy(update)

    @torch.no_grad()
    def score(self, task: str) -> float:
        """Accuracy on validation data in percent."""
        if task not in self.seen:
            texts = self.texts(task, "validation")
            right = torch.tensor([text.answer if text.answer >= 0 else self.numbers[text.target] for text in texts])
            chosen = [[self.numbers[word] for word in text.answers] for text in texts if text.answer >= 0]
            read = self.tokenize([text.input for text in texts])
            self.seen[task] = read, torch.tensor(chosen) if chosen else None, right
        read, choices, right = self.seen[task]
        logits = self.network.logits(read, torch.zeros(len(read), 1, dtype=torch.long))[:, 0]
        found = (logits if choices is None else logits.gather(1, choices)).argmax(dim=1)
        return 100 * float((found == right).float().mean())

    def fine_tune(self, task: str) -> Vector:
        """AdamW as the workflow has it; the task vector, float32 [P']."""
        said, texts, flat = self.said, self.texts(task, "train"), self.network.flat
        self.use(None)
        assert flat.grad is not None
        optimizer = torch.optim.AdamW([flat], lr=said.learning_rate, eps=said.epsilon, weight_decay=0.0)
        draw, order = np.random.default_rng((said.seed, zlib.crc32(task.encode()))), np.empty(0, np.int64)
        for step in range(1, said.steps + 1):
            if len(order) < said.batch_size:
                order = draw.permutation(len(texts))
            batch, order = [texts[i] for i in order[: said.batch_size]], order[said.batch_size :]
            read = self.tokenize([text.input for text in batch])
            wanted = self.tokenize([text.target for text in batch], IGNORED)
            logits = self.network.logits(read, functional.pad(wanted.clamp(min=0), (1, -1)))
            flat.grad.zero_()
            functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED).backward()
            flat.grad *= self.trained * min(1.0, 1 / float(flat.grad[self.trained].norm() + 1e-12))
            warm = max(1, said.steps // 10)
            falling = 0.5 * (1 + math.cos(math.pi * (step - warm) / (said.steps + 1 - warm)))
            optimizer.param_groups[0]["lr"] = said.learning_rate * (step / warm if step <= warm else falling)
            optimizer.step()
        return (flat - self.pretrained).detach()[self.trained].numpy()

    def scores(self, update: Vector | None, tasks: Sequence[str]) -> NDArray[np.float64]:
        """Accuracies of one update, [tasks]."""
        self.use(update)
        return np.array([self.score(task) for task in tasks])


def _answers(task: str, counts: dict[str, int]) -> set[str]:
    return {word for text in examples(task, "validation", counts["validation"], 0) for word in text.answers}


def ties(vectors: NDArray[np.float32], parameters: int) -> Vector:
    """TIES with sums, keeping the share of all parameters."""
    count = min(vectors.shape[1], int(KEPT * parameters) + 1)
    least = np.partition(np.abs(vectors), -count, axis=1)[:, [-count]]
    kept = np.where(np.abs(vectors) >= least, vectors, 0)
    sign = np.sign(kept.sum(axis=0))
    sign[sign == 0] = np.sign(sign.sum())
    return np.where(np.sign(kept) == sign, kept, 0).sum(axis=0)


def report(
    study: Study, benchmark: str, tasks: Sequence[str], found: dict[str, Vector], tuned: dict[str, float]
) -> None:
    """Merges, masks and consensus on a benchmark."""
    vectors, base = np.stack([found[task] for task in tasks]), np.array([tuned[task] for task in tasks])

    def best(update: Vector) -> str:
        tried = [(float((study.scores(np.float32(a) * update, tasks) / base).mean()), -a) for a in ALPHAS]
        value, alpha = max(tried)
        return f"{100 * value:5.1f} (alpha {-alpha:.1f})"

    zero = study.scores(None, tasks)
    print(f"{benchmark}  zero-shot {100 * (zero / base).mean():.1f}, {zero.mean():.1f} absolute", flush=True)
    for name, merged in (("TA", vectors.sum(axis=0)), ("TIES", ties(vectors, len(study.pretrained)))):
        votes, masked = np.zeros(len(merged), np.int64), []
        for task, vector in zip(tasks, vectors, strict=True):
            masks = [np.abs(vector) > value * np.abs(merged - vector) for value in LAMBDAS]
            kept = [study.scores(mask * merged, [task])[0] for mask in masks]
            votes += masks[int(np.argmax(kept))]
            masked.append(max(kept))
        line = [f"TALL {100 * (np.array(masked) / base).mean():5.1f}", f"{name} {best(merged)}"]
        line += [f"consensus k={k} {best(merged * (votes >= k))}" for k in (1, 2)]
        print(f"{benchmark}  {name:5s} {'   '.join(line)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", choices=PREFIXES, default="own", help="what inputs begin with")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--epsilon", type=float, default=1e-8)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--frozen", nargs="*", default=["shared.weight"], help="tensors that are not trained")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--benchmarks", nargs="*", default=["11nlp"])
    said = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    spec = params["models"]["tiny_t5"]
    study, found, tuned = Study(said, spec["architecture"], spec["examples"]), {}, {}
    for task in dict.fromkeys(task for name in said.benchmarks for task in params["benchmarks"][name]):
        before = study.scores(None, [task])[0]
        found[task] = study.fine_tune(task)
        tuned[task] = study.score(task)
        print(f"{task:12s} zero-shot {before:5.1f}   fine-tuned {tuned[task]:5.1f}", flush=True)
    print(f"{'mean':12s} {'':16s} fine-tuned {np.mean(list(tuned.values())):5.1f}", flush=True)
    for name in said.benchmarks:
        report(study, name, params["benchmarks"][name], found, tuned)


if __name__ == "__main__":
    main()
