"""The blocks and tables of the README and of other pages, and the examples of docs/change.md."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from project import ROOT, Project

FOLDERS = {"half_sum": "src/tallmasks/methods/rows", "dots": "tiny_worlds/drawn/own"}
PAGE = "docs/change.md"
FILLED = ("README.md", "docs/index.md", "docs/first_run.md", "docs/tiny_model.md")
"""The pages into which docs/update.py writes tables of docs/tiny, or the URL of CITATION.cff."""
CHECKED = (
    "tests/contract/test_methods.py", "tests/contract/test_merges.py", "tests/contract/test_catalogues.py",
    "tests/unit/tasks/test_drawn.py", "tests/unit/evaluation/test_sweeps.py", "tests/unit/results/test_figures.py",
)  # fmt: skip
CONCERNED = "half_sum or dots or not ["
"""Of those, the tests of the examples and the tests of all methods and tasks at once: not those of one other each."""


def example(name: str) -> str:
    """The block of Python of the page that declares a method or a task."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / PAGE).read_text(), re.M | re.S)
    (source,) = (block for block in blocks if f"def {name}(" in block or f'"{name}"' in block)
    return source


@pytest.fixture
def with_examples(project: Project) -> Project:
    """The project with both examples, and a benchmark that asks for them."""
    for name, folder in FOLDERS.items():
        project.path(folder, f"{name}.py").write_text(example(name))
    project.change(lambda params: params["benchmarks"].update(dotted=["dots", "mnist"]))
    project.change(lambda params: params.update(methods=["zeroshot", "half_sum", "fine_tuned"]))
    return project


def test_the_examples_of_the_page_give_a_table(with_examples: Project) -> None:
    """A newcomer's first own method or task would be refused, for one reason after the other."""
    made = with_examples.snakemake("results/tiny/dotted/table.csv").jobs
    assert made == {
        "examples": 3, "head": 1, "finetune": 1, "task_vector": 1, "evaluate_task": 2, "merge": 1, "evaluate": 1,
        "tables": 1,
    }  # fmt: skip
    table = with_examples.path("results/tiny/dotted/table.csv").read_text()
    assert [line.split(",")[1] for line in table.splitlines()[1:]] == ["zeroshot", "half_sum", "fine_tuned"]
    others = with_examples.dry_run("results/tiny/two/table.csv").planned
    assert others == {"evaluate": 1, "tables": 1}, "nothing of anybody else's is made again"
    with_examples.replace("tiny_worlds/drawn/own/dots.py", "between(4, 7)", "between(4, 8)")
    again = with_examples.dry_run("results/tiny/dotted/table.csv").planned
    assert (again["examples"], again["finetune"]) == (3, 1), "a task that is drawn otherwise is drawn anew"


@pytest.mark.long
def test_the_examples_of_the_page_pass_the_tests_that_all_must(with_examples: Project) -> None:
    """What the page shows would fail in `make test`."""
    tests = [str(ROOT / file) for file in CHECKED]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", CONCERNED, *tests],
        cwd=with_examples.root,
        env={**os.environ, "PYTHONPATH": str(with_examples.path("src"))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    assert "half_sum" not in run.stdout


def test_the_tables_are_those_that_the_workflow_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader would see numbers that no command printed, or those of an earlier version."""
    for folder in ("docs", "workflow/report"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in ("README.md", "CITATION.cff"):
        shutil.copy(ROOT / file, tmp_path)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("docs/update.py")["fill_pages"]()
    assert {page: (tmp_path / page).read_text() for page in FILLED} == {
        page: (ROOT / page).read_text() for page in FILLED
    }


def test_the_pages_work_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's second page would stop at a folder that the first one wrote, or print other sizes than it shows."""
    tool = runpy.run_path(str(ROOT / "docs/printed_output.py"))
    for group in tool["FOLLOWED"]:
        folder = tmp_path / Path(group[0]).stem
        folder.mkdir()
        monkeypatch.chdir(folder)
        for page, text in tool["followed"](group):
            assert text == (ROOT / page).read_text(), "run `python docs/printed_output.py`"
    assert (tmp_path / "README/merged-heads/heads/cars.safetensors").exists()


def test_the_badges_are_true() -> None:
    """The first line of the README would promise another licence, or a Python that pip refuses."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"img.shields.io/badge/(\w+)-(.*)-blue", (ROOT / "README.md").read_text())
    oldest = project["requires-python"].removeprefix(">=")
    assert badges == [("licence", "MIT"), ("python", f"{oldest}%20or%20newer")]
    assert project["license"].startswith("MIT")
