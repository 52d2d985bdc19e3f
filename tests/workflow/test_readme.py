"""The blocks, tables and links of the README and of other pages; the examples of docs/change.md and CONTRIBUTING.md."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tallmasks
from project import ROOT, Project

FOLDERS = {"half_sum": "src/tallmasks/methods/rows", "dots": "tiny_worlds/drawn/own"}
PAGE = "docs/change.md"
FILLED = ("README.md", "docs/first_run.md", "docs/results.md")
"""The pages into which docs/update.py writes tables of docs/, or the URL of CITATION.cff."""


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


UNIT_LENGTH = """
import numpy as np
import tallmasks
from tallmasks import methods
from reproduction.evaluation.method_evaluation import InMemory
from reproduction.plan.chain import STAGE_OF
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

layout = Layout(("a",), ((4,),))
vectors = [TaskVector(np.array(values, np.float32), layout, {}) for values in ([3, 4, 0, 0], [0, 0, 1, 0])]
memory = InMemory(vectors, np.zeros(4, np.float32), [0.4], lambda method: ())
for spec in ("unit_length", "unit_length:length=2.0", "unit_length:order=1.0"):
    method = methods.get(spec)
    source = memory.of(method)
    inputs = {name: methods.INPUTS[name].value(source, 0, 0, method.chosen) for name in method.needs}
    from_files = [one.name for one in method.all_inputs.values() if one in STAGE_OF]
    print(method.name, method.title, *method(**inputs), *from_files, sep="|")
print(*tallmasks.merge([{"a": vector.flat} for vector in vectors], "largest")["a"], sep="|")
"""


def test_one_file_is_a_method_with_an_option_and_an_input_of_its_own(tmp_path: Path) -> None:
    """A reader of that page alone would not get a row in the tables."""
    sources = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    package = Path(tallmasks.__file__).parent
    shutil.copytree(package, tmp_path / "tallmasks", ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in zip(("unit_length", "largest"), sources, strict=False):  # then follows a figure
        (tmp_path / "tallmasks" / "methods" / "rows" / f"{name}.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", UNIT_LENGTH], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    plain, longer, other, largest = (line.split("|") for line in run.stdout.splitlines())
    assert largest == ["3.0", "4.0", "1.0", "0.0"]
    assert plain[:2] == ["unit_length", "Unit length"]
    assert longer[:2] == ["unit_length:length=2.0", "Unit length (length = 2.0)"]
    np.testing.assert_allclose([float(value) for value in plain[2:6]], [0.6, 0.8, 0, 0], rtol=1e-6)
    np.testing.assert_allclose([float(value) for value in longer[2:6]], [1.2, 1.6, 0, 0], rtol=1e-6)
    np.testing.assert_allclose([float(value) for value in other[2:6]], [3 / 7, 4 / 7, 0, 0], rtol=1e-6)
    assert plain[6:] == ["task_vector"]


def test_the_tables_are_those_that_the_workflow_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader would see numbers that no command printed, or those of an earlier version."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
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
    assert (tmp_path / "README/merged/heads/cars.safetensors").exists()


DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("page", "script", "function"),
    [
        ("commands.md", "reference_pages.py", "commands_page"),
        ("which_method.md", "reference_pages.py", "methods_page"),
        ("params.md", "params_page.py", "page"),
    ],
)
def test_the_reference_is_that_of_the_code(page: str, script: str, function: str) -> None:
    """A reader would miss an option, a method or a key, or look for one that is gone."""
    written = runpy.run_path(str(DOCS / script))[function]()
    assert (DOCS / page).read_text() == written, f"run `python docs/{script}`"


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are made from their text."""
    lines = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_link_and_path_leads_somewhere() -> None:
    """A reader would be sent to a page, heading or file that is not there."""
    folders = ("docs", "benchmarks", "experiments", "models", "results", "tests", "workflow")
    below = (path for folder in folders for path in (ROOT / folder).rglob("*.md"))
    documents = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *below]
    lost = []
    for document in documents:
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if "://" in link or (target.exists() and (not anchor or anchor in headings(target))):
                continue
            lost.append(f"{document.relative_to(ROOT)}: {link}")
    text = (ROOT / "CONTRIBUTING.md").read_text() + (DOCS / "architecture.md").read_text()
    named = re.findall(r"`((?:src|workflow|tests|docs)/[\w./]+)`", text)
    lost += [path for path in named if not (ROOT / path).exists()]
    assert len(documents) > 10 and not lost
