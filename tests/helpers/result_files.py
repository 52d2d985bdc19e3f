"""Result files of a made-up model, as the workflow writes them, for the tests of figures and tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from reproduction.results.figures import ResultFiles
from reproduction.tasks.titles import TITLES
from tallmasks import methods

COEFFICIENTS = [round(0.1 * step, 1) for step in range(11)]
LAMBDAS = [0.2, 0.3, 0.4, 0.5, 0.6]
MASKED = ("tall_mask_task_arithmetic", "tall_mask_ties")


def write_results(folder: Path, counts: tuple[int, ...] = (8, 14, 20)) -> ResultFiles:
    """A folder like results/<model>, with a benchmark of the first n of the paper's tasks for every count."""
    benchmarks = {f"{count}tasks": tuple(list(TITLES)[:count]) for count in counts}
    for name, tasks in benchmarks.items():
        _benchmark(folder / name, tasks)
        _field(folder / name, len(tasks))
        _held_out(folder / name, tasks)
        _masks(folder / name / "mask_statistics", tasks)
        _thresholds(folder / name / "thresholds", len(tasks))
        _subsets(folder / name / "subsets", len(tasks))
        _controlled(folder / name / "controlled")
        _illustration(folder / name / "illustration", tasks[:4])
    return ResultFiles(folder, benchmarks)


def _write(path: Path, rows: list, columns: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows, columns=columns.split()).to_csv(path, index=False)


def _benchmark(folder: Path, tasks: tuple[str, ...]) -> None:
    draw = np.random.default_rng(len(tasks))
    per_task, table, agreement, selection = [], [], [], {}
    for place, name in enumerate(methods.names("paper")):
        method = methods.get(name)
        scores = np.clip(45 + 5 * place + draw.normal(0, 4, (2, len(tasks))), 0, 100).round(4)
        for split, row in zip(("validation", "test"), scores, strict=True):
            per_task += [(name, task, split, score, score + 3, "", "") for task, score in zip(tasks, row, strict=True)]
        kind = method.stored_size(len(tasks), 1_400_000, 200_000)
        files = "" if method.stores_more else round(1.02 * kind.gigabits, 4)
        table.append((method.section, name, scores[1].mean(), scores[1].mean() + 3, kind.gigabits, files))
        if isinstance(method.usage, methods.Scaled):
            grid = [*COEFFICIENTS, 2.0] if name == "iso_c" else COEFFICIENTS
            curve = [{"scaling_coefficient": x, "normalized_accuracy": 60 - 30 * (x - 0.3) ** 2} for x in grid]
            selection[name] = {"scaling_coefficient": 0.3, "validation": curve}
        elif isinstance(method.usage, methods.Masked):
            chosen = draw.choice(LAMBDAS, len(tasks)).tolist()
            selection[name] = {
                task: {
                    "mask_lambda": best,
                    "validation": [{"mask_lambda": x, "normalized_accuracy": 99 - 8 * abs(x - best)} for x in LAMBDAS],
                }
                for task, best in zip(tasks, chosen, strict=True)
            }
    selection["lines"] = selection["task_arithmetic"]
    for name in MASKED:
        shares = draw.dirichlet(np.ones(len(tasks) + 1)).round(6)
        agreement += [(name, n, share, round(share / 4, 6)) for n, share in enumerate(shares)]
    _write(
        folder / "per_task.csv",
        per_task,
        "method task split accuracy normalized_accuracy scaling_coefficient mask_lambda",
    )
    _write(folder / "table.csv", table, "section method accuracy normalized_accuracy formula_gbit file_gbit")
    _write(folder / "agreement.csv", agreement, "method n fraction merged_zero")
    (folder / "selection.json").write_text(json.dumps(selection))


def _field(folder: Path, tasks: int) -> None:
    draw = np.random.default_rng(tasks)
    rows = []
    for place, name in enumerate(methods.names()):
        method, score = methods.get(name), 45 + 1.5 * place + draw.normal()
        stored = method.stored_size(tasks, 1_400_000, 200_000).gigabits
        rows.append((method.section, name, score, score - 1, score + 1, score + 3, stored))
    columns = "section method accuracy accuracy_low accuracy_high normalized_accuracy formula_gbit"
    _write(folder / "field.csv", rows, columns)


def _held_out(folder: Path, tasks: tuple[str, ...]) -> None:
    draw = np.random.default_rng(len(tasks))
    rows = [
        (name, task, "test", 40 + place + draw.normal(), 45)
        for place, name in enumerate(methods.names("paper"))
        if methods.get(name).section == "merging"
        for task in tasks
    ]
    _write(folder / "held_out.csv", rows, "method task split accuracy normalized_accuracy")


def _masks(folder: Path, tasks: tuple[str, ...]) -> None:
    draw = np.random.default_rng(len(tasks))
    density, tensors, overlap = [], [], []
    for name in MASKED:
        density += [(name, task, 0.4, draw.uniform(0.3, 0.6), 0.01) for task in tasks]
        for layer in ("before", "0", "1", "d0", "after"):
            for kind in (
                ("embedding", "projection") if layer in ("before", "after") else ("attn.in", "attn.out", "mlp.in")
            ):
                tensors.append((name, layer, kind, int(draw.integers(100, 10_000)), draw.uniform(0.2, 0.7)))
        common = draw.uniform(0.2, 0.6, (len(tasks), len(tasks)))
        common = (common + common.T) / 2
        np.fill_diagonal(common, 1)
        overlap += [(name, a, b, common[i, j]) for i, a in enumerate(tasks) for j, b in enumerate(tasks)]
    _write(folder / "density.csv", density, "method task mask_lambda density merged_zero")
    _write(folder / "tensors.csv", tensors, "method layer kind weights density")
    _write(folder / "overlap.csv", overlap, "method task other jaccard")


def _thresholds(folder: Path, tasks: int) -> None:
    draw = np.random.default_rng(tasks)
    rows = [
        (name, k, 0.1 * min(k + 1, 10), 60 - k, 65 - k + draw.normal(), 62 - k)
        for name in ("consensus_task_arithmetic", "consensus_ties")
        for k in range(tasks + 2)
    ]
    columns = "method k scaling_coefficient accuracy normalized_accuracy validation_normalized_accuracy"
    _write(folder / "thresholds.csv", rows, columns)


def _controlled(folder: Path) -> None:
    rows = [
        (method, finetuning, score, score / 0.9, 0.3)
        for method, scores in (("fine_tuned", (90.0, 85.0)), ("task_arithmetic", (60.0, 55.0)))
        for finetuning, score in zip(("standard", "controlled"), scores, strict=True)
    ]
    _write(folder / "controlled.csv", rows, "method finetuning accuracy normalized_accuracy scaling_coefficient")


def _subsets(folder: Path, tasks: int) -> None:
    draw = np.random.default_rng(tasks)
    falls = (("task_arithmetic", 2, 0), ("tall_mask_task_arithmetic", 0.1, 0.0014), ("fine_tuned", 0, 0.04))
    rows = [
        (order, n, name, 0, 100 - fall * n + draw.normal(), 0.05 + cost * n)
        for order in ("zeroshot_ascending", "name_ascending", "name_wave")
        for n in range(1, tasks + 1)
        for name, fall, cost in falls
    ]
    _write(folder / "accuracy.csv", rows, "order n method accuracy normalized_accuracy formula_gbit")


def _illustration(folder: Path, tasks: tuple[str, ...]) -> None:
    draw = np.random.default_rng(len(tasks))
    rows = []
    for row in ("vector", "mask", "masked"):
        for block in (*tasks, "merged"):
            values = draw.integers(0, 2, (16, 16)) if row == "mask" else draw.normal(0, 0.01, (16, 16))
            rows += [(row, block, y, x, values[y, x]) for y in range(16) for x in range(16)]
    _write(folder / "weights.csv", rows, "row block y x value")
