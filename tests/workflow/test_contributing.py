"""The example of CONTRIBUTING.md, a method with an option and an input of a new kind in one file; and all links."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import tallmasks
from conftest import ROOT

USED = """
import numpy as np
import tallmasks
from tallmasks import methods
from tallmasks.evaluation.protocols import InMemory
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

layout = Layout(("a",), ((4,),))
vectors = [TaskVector(np.array(values, np.float32), layout, {}) for values in ([3, 4, 0, 0], [0, 0, 1, 0])]
memory = InMemory(vectors, np.zeros(4, np.float32), [0.4], lambda method: ())
for spec in ("unit_length", "unit_length:length=2.0", "unit_length:order=1.0"):
    method = methods.get(spec)
    source = memory.of(method)
    inputs = {name: methods.INPUTS[name].value(source, 0, 0, method.chosen) for name in method.needs}
    print(method.name, method.title, *method(**inputs), *(needed.role for needed in method.stored_inputs), sep="|")
print(*tallmasks.merge([{"a": vector.flat} for vector in vectors], "largest")["a"], sep="|")
"""


def test_one_file_is_a_method_with_an_option_and_an_input_of_its_own(tmp_path: Path) -> None:
    """A reader of that page alone would not get a row in the tables."""
    sources = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    package = Path(tallmasks.__file__).parent
    shutil.copytree(package, tmp_path / "tallmasks", ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in zip(("unit_length", "largest"), sources, strict=True):
        (tmp_path / "tallmasks" / "methods" / "rows" / f"{name}.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    plain, longer, other, largest = (line.split("|") for line in run.stdout.splitlines())
    assert largest == ["3.0", "4.0", "1.0", "0.0"]
    assert plain[:2] == ["unit_length", "Unit length"]
    assert longer[:2] == ["unit_length:length=2.0", "Unit length (length = 2.0)"]
    np.testing.assert_allclose([float(value) for value in plain[2:6]], [0.6, 0.8, 0, 0], rtol=1e-6)
    np.testing.assert_allclose([float(value) for value in longer[2:6]], [1.2, 1.6, 0, 0], rtol=1e-6)
    np.testing.assert_allclose([float(value) for value in other[2:6]], [3 / 7, 4 / 7, 0, 0], rtol=1e-6)
    assert plain[6:] == ["task_vectors"]


def test_every_place_that_the_page_names_is_there() -> None:
    """A reader would look for files that have moved."""
    text = (ROOT / "CONTRIBUTING.md").read_text() + (ROOT / "docs" / "architecture.md").read_text()
    named = {name for name in re.findall(r"`((?:src|workflow|tests|docs)/[\w./]+)`", text) if "<" not in name}
    assert named and not [name for name in named if not (ROOT / name).exists()]


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are made from their text."""
    lines = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_link_leads_somewhere() -> None:
    """A reader would be sent to a page that is not there, or a heading; the changelog names pages of its time."""
    folders = ("docs", "benchmarks", "experiments", "models", "results", "tests", "workflow")
    below = (path for folder in folders for path in (ROOT / folder).rglob("*.md"))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *below]
    lost = []
    for document in documents:
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if "://" in link or (target.exists() and (not anchor or anchor in headings(target))):
                continue
            lost.append(f"{document.relative_to(ROOT)}: {link}")
    assert len(documents) > 10 and not lost
