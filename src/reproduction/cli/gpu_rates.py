"""Examples per second in training and evaluation: measured on this machine's GPU, or recorded on an H100."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from reproduction.models.cuda import Wanted
from reproduction.models.families import Spec, family

START_SECONDS = 3.0
"""Seconds until a GPU job starts to compute (CUDA start, loading the model); 2 to 3 s measured on an H100."""
A100_FACTOR = 2.5
"""Assumed slowdown of an A100 relative to an H100. NVIDIA's data sheets: 3.2 times lower peak in bfloat16, 1.7 times
lower memory bandwidth."""
TRIAL_SECONDS = 5.0
_EXAMPLES = 2048


class Rates(NamedTuple):
    """Examples per second; ``evaluation`` counts an example once per weight set."""

    training: float
    evaluation: float


ON_AN_H100 = {
    ("ViT-B-32-quickgelu", None): Rates(3942, 15600),
    ("ViT-B-16-quickgelu", None): Rates(1703, 5109),  # evaluation not measured: three times the training rate
    ("ViT-L-14-quickgelu", None): Rates(478, 1390),
    ("t5-large-lm-adapt", None): Rates(370, 559),
    ("t5-large-lm-adapt", "ia3"): Rates(301, 559),
}
"""By architecture and adapter, measured at commit 5d659cf with the settings in params.yaml; see docs/gpu.md."""


def rates_of_an_h100(spec: Spec) -> Rates | None:
    """The recorded rates of a model, or None."""
    architecture = spec["architecture"]
    return ON_AN_H100.get((architecture, spec.get("adapter"))) if isinstance(architecture, str) else None


def measured(spec: Spec, settings: Mapping[str, Any], at_once: int | None, device: Wanted = "cuda") -> Rates | None:
    """Measure a model with random weights on random examples; None if its family has no `trial`.

    Takes up to half a minute, longer if a training step takes seconds.

    Args:
        settings: the model's `finetuning` in params.yaml.
        at_once: `micro_batch_size`.
    """
    trial = getattr(family(spec), "trial", None)
    if trial is None:
        return None
    return Rates(_training(trial, spec, settings, at_once, device), _evaluation(trial, spec, device))


def _training(trial: Any, spec: Spec, settings: Mapping[str, Any], at_once: int | None, device: Wanted) -> float:
    from reproduction.training.finetuning import FinetuneConfig, finetune

    every_step = {"validate_every": None, "patience": None, "seed": 0, "micro_batch_size": at_once}
    config = FinetuneConfig(**{**settings, **every_step})
    model, examples = trial(spec, config.precision, device, max(_EXAMPLES, config.batch_size))

    def seconds(steps: int) -> float:
        start = time.perf_counter()
        finetune(model, "trial", examples, replace(config, iterations=steps))
        return time.perf_counter() - start

    seconds(1)  # the first step allocates memory and compiles
    one, two = seconds(1), seconds(2)
    steps = max(2, min(100, round(TRIAL_SECONDS / max(two - one, 1e-3))))
    return steps * config.batch_size / max(seconds(1 + steps) - one, 1e-6)


def _evaluation(trial: Any, spec: Spec, device: Wanted) -> float:
    import numpy as np

    from reproduction.evaluation.counting import Evaluator, TaskData

    model, examples = trial(spec, spec["evaluation"]["precision"], device, _EXAMPLES)
    evaluator = Evaluator(model, [TaskData("trial", {"test": examples})], spec["evaluation"]["batch_size"])
    update, coefficients = np.zeros(model.flat.numel(), np.float32), [0.0, 0.5, 1.0]

    def seconds() -> float:
        start = time.perf_counter()
        evaluator.scaled("test", update, coefficients)
        return time.perf_counter() - start

    seconds()
    rounds = max(1, round(TRIAL_SECONDS / max(seconds(), 1e-3)))
    return len(coefficients) * len(examples) * rounds / sum(seconds() for _ in range(rounds))
