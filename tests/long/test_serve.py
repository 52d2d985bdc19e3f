"""The server of examples/serve, as a user starts it, with LitServe from its own lock file."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import example_libraries
from conftest import ROOT

EXAMPLE = ROOT / "examples/serve"
pytestmark = pytest.mark.xdist_group("serve")


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The example's functions, with its libraries beside the project's."""
    libraries = tmp_path_factory.mktemp("serve")
    example_libraries.install("serve", libraries)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(libraries))
        patch.syspath_prepend(str(EXAMPLE))
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{libraries}")
        yield runpy.run_path(str(EXAMPLE / "benchmark.py"))


def test_every_answer_is_that_of_the_tasks_own_model(benchmark: dict, tmp_path: Path) -> None:
    """A server would mix up tasks, or answer with the weights of two."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tasks = [f"task{number}" for number in range(4)]
    benchmark["write"](tmp_path, len(tasks), layers=2, width=64)
    benchmark["export"](tmp_path, tasks)
    questions = benchmark["questions"](tasks, 200)
    command = [sys.executable, str(EXAMPLE / "server.py"), str(tmp_path / "bundle"), "--device", "cpu"]
    with benchmark["started"](command, tmp_path / "log") as (port, _):
        answers = benchmark["ask"](port, questions, clients=8)
        wrong = [{"task": "tsk0", "text": "w1"}, {"task": "task0"}]
        (status, answer), (other_status, _) = benchmark["ask"](port, wrong, clients=1)
    assert (status, other_status) == (400, 422)
    assert answer["error"] == "no task 'tsk0'; expected one of task0, task1, task2, task3"
    assert [status for status, _ in answers] == [200] * len(questions)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    inputs = tokenizer([question["text"] for question in questions], return_tensors="pt")
    found = torch.tensor([answer["logits"] for _, answer in answers])
    nearest = []
    for task in tasks:
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "exported" / task).eval()
        with torch.inference_mode():
            nearest.append((model(**inputs).logits - found).abs().amax(1))
    off = torch.stack(nearest)  # [tasks, questions]; another batch rounds otherwise, by less than 1e-5
    of_task = torch.tensor([tasks.index(question["task"]) for question in questions])
    right = torch.nn.functional.one_hot(of_task, len(tasks)).T.bool()
    assert off[right].max() < 1e-5
    assert off[~right].min() > 1e-4


def test_the_benchmark_runs(benchmark: dict) -> None:
    """Nobody could repeat the numbers of the page."""
    sizes = ["--tasks", "2", "--layers", "1", "--width", "16", "--clients", "4", "--requests", "8", "--rounds", "1"]
    command = [sys.executable, str(EXAMPLE / "benchmark.py"), *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows] == ["tasks mixed", "1", "2", "memory, GB"]


def test_a_wrong_bundle_is_one_line(benchmark: dict, tmp_path: Path) -> None:
    """A user who forgets --include-base would get a traceback of transformers."""
    command = [sys.executable, str(EXAMPLE / "server.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"error: {tmp_path / 'base'} is no folder of a model; give --base, or compress with --include-base"
    ]
