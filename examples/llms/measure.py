"""lm_eval's scores of several models, as one CSV file.

    make .venv/llms/installed
    .venv/bin/python examples/llms/measure.py --tasks sums products --model merged=./merged --model math=./math \
        -o results.csv [--limit 100] [--batch-size 8] [--device cuda]

A model is a folder of transformers or a repository of the hub.  Tasks are lm_eval's own, or those of
examples/llms/tasks.  One row per model, task and metric: model, task, metric, value, standard_error, questions.  The
file is written anew after each model, so that an interrupted run keeps what it measured.  Without -o, the last line is
the mean over models and tasks of each task's first metric, for `tallmasks merge --choose ... --score`.
"""

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / ".venv/llms"))  # where make puts lm_eval
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

COLUMNS = ("model", "task", "metric", "value", "standard_error", "questions")


def rows_of(model: str, results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one model, out of what lm_eval returns."""
    rows = []
    for task, scores in results["results"].items():
        count = results["n-samples"][task]["effective"] if task in results["n-samples"] else ""
        for key, value in scores.items():
            metric, comma, kind = key.partition(",")
            if comma and not metric.endswith("_stderr"):
                error = scores.get(f"{metric}_stderr,{kind}", "")
                name = key.removesuffix(
                    ",none"
                )  # of gsm8k_cot "exact_match,strict-match", another row than the flexible
                rows.append(dict(zip(COLUMNS, (model, task, name, value, error, count), strict=True)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER", help="once for each model")
    parser.add_argument("--tasks", nargs="+", required=True, help="names of lm_eval's tasks")
    parser.add_argument("-o", "--output", type=Path, help="the CSV file")
    parser.add_argument("--limit", type=int, help="questions of each task; all of them by default")
    parser.add_argument("--batch-size", default="8", help="a number, or auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if arguments.output and arguments.output.exists():
        parser.error(f"{arguments.output} already exists; choose another path or remove it")
    manager = TaskManager(include_path=str(Path(__file__).parent / "tasks"))
    rows: list[dict[str, Any]] = []
    for name, _, folder in (model.partition("=") for model in arguments.model):
        if not folder:
            parser.error(f"--model {name}: expected NAME=FOLDER")
        results = simple_evaluate(
            model="hf",
            model_args={"pretrained": folder, "dtype": "auto"},
            tasks=arguments.tasks,
            task_manager=manager,
            limit=arguments.limit,
            batch_size=arguments.batch_size,
            device=arguments.device,
            log_samples=False,
        )
        rows += rows_of(name, results)
        if arguments.output:
            with arguments.output.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)
    if arguments.output:
        print(f"{arguments.output}: {len(rows)} rows")
    else:
        first = {(row["model"], row["task"]): row["value"] for row in reversed(rows)}
        print(sum(first.values()) / len(first))


if __name__ == "__main__":
    main()
