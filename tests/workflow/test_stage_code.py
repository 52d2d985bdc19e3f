"""A stage's number stands for the code that the stage runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT, Project, lay_out

SCRIPT = "workflow/runner/stage_code.py"


def check(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, cwd=root, env={"PYTHONPATH": "src"}, capture_output=True, text=True, check=False)


def test_every_number_stands_for_the_code_as_it_is() -> None:
    """Changed code would leave the artifacts of the old code in place, under the same names."""
    done = check(ROOT)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Project:
    """A copy whose record is that of its own code."""
    project = lay_out(tmp_path / "project")
    assert check(project.root, "--record", "--same").returncode == 0
    return project


FINETUNE = "src/tallmasks/training/finetuning.py"
MASKS = "src/tallmasks/masks/mask_bundles.py"


def first_function_of(project: Project, file: str, line: str) -> None:
    """Put a line into the body of every function of a file."""
    import ast

    path = project.path(file)
    lines = path.read_text().splitlines(keepends=True)
    for node in reversed([node for node in ast.parse("".join(lines)).body if isinstance(node, ast.FunctionDef)]):
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        lines.insert(first.lineno - 1, f"{' ' * first.col_offset}{line}\n")
    path.write_text("".join(lines))


def raise_number(project: Project, stage: str) -> None:
    """Raise the number of a stage where it is declared."""
    for name in ("chain", "views"):
        file = project.path("src/tallmasks/plan", f"{name}.py")
        before, found, after = file.read_text().partition(f"\ndef {stage}(plan: Plan,")
        if found:
            head, version, tail = before.rpartition("version=")
            number = re.match(r"\d+", tail)
            assert number
            file.write_text(f"{head}{version}{int(number[0]) + 1}{tail[number.end() :]}{found}{after}")
            return
    drawn = {"figure": 'Drawing("figure", 3', "paper_table": 'Drawing("paper_table", 4'}[stage]
    project.replace("src/tallmasks/plan/views.py", drawn, f"{drawn}0")


def test_comments_and_docstrings_do_not_count(copy: Project) -> None:
    """A better sentence would cost every user a rebuild."""
    first_function_of(copy, FINETUNE, "# a comment")
    text = copy.path(FINETUNE).read_text()
    copy.path(FINETUNE).write_text(text.replace('    """', '    """Now: ', 1))
    assert check(copy.root).returncode == 0


def test_changed_code_needs_a_new_number(copy: Project) -> None:
    """A corrected step would not run again."""
    first_function_of(copy, MASKS, "print('changed')")
    refused = check(copy.root)
    assert refused.returncode == 1
    assert "stage mask_bundle: " in refused.stderr and "tallmasks.masks.mask_bundles." in refused.stderr
    assert "stage checkpoint:" not in refused.stderr, "fine-tuning has nothing to do with masks"
    assert check(copy.root, "--record").returncode == 1, "a record alone is not a new number"
    stages = [
        line.split(":")[0].removeprefix("stage ") for line in refused.stderr.splitlines() if line.startswith("stage")
    ]
    for stage in stages:
        raise_number(copy, stage)
    assert check(copy.root).returncode == 1, "the record must follow"
    assert check(copy.root, "--record").returncode == 0
    assert check(copy.root).returncode == 0


NEW_STAGE = """

@stage(script="counted", version=1, folder="store/{model}/derived/counted", uses="arrays")
def counted(plan: Plan, model: str, task: str, seed: Seed) -> Made:
    return Made(task, {}, {"checkpoint": [plan.checkpoint(model, task, seed)]})
"""


def test_what_is_new_must_be_recorded(copy: Project) -> None:
    """A stage of one's own could change, and what it made before would pass for fresh."""
    with copy.path("src/tallmasks/plan/chain.py").open("a") as chain:
        chain.write(NEW_STAGE)
    script = copy.path("workflow/scripts/counted.py")
    script.write_text("def count(job):\n    job.write_json({})\n")
    refused = check(copy.root)
    assert refused.returncode == 1
    assert "not recorded, so that nobody would see a change of it: counted.count, counted.script\n" in refused.stderr
    assert check(copy.root, "--record").returncode == 0
    script.write_text("def count(job):\n    job.write_json({'a': 1})\n")
    assert "stage counted: counted.count changed; raise its number" in check(copy.root).stderr


def test_a_new_method_concerns_no_stage(copy: Project) -> None:
    """Whoever adds a merge method would have to rebuild everybody else's evaluations."""
    readme = (ROOT / "README.md").read_text()
    (source,) = (block.partition("```")[0] for block in readme.split("```python\n") if "def half_sum(" in block)
    copy.path("src/tallmasks/methods/rows/half_sum.py").write_text(source)
    assert check(copy.root).returncode == 0
    method = copy.path("src/tallmasks/methods/rows/ties.py")
    method.write_text(method.read_text().replace("return ", "return 2 * ", 1))
    assert check(copy.root).returncode == 0, "the digest of its code is in the recipes of what is made with it"


def test_what_else_decides_the_bytes_needs_a_new_number_too(copy: Project) -> None:
    """Artifacts would be made from other inputs, by another script or library, under the names of the old ones."""
    with copy.path("src/tallmasks/results/reference/table2.csv").open("a") as table:
        table.write("\n")
    copy.replace("src/tallmasks/plan/chain.py", 'script="merge_vectors"', 'script="mask"')
    copy.replace(
        "workflow/bridge/jobs.py", "for role, paths in inputs.items()}", "for role, paths in reversed(inputs.items())}"
    )
    lock = copy.path("requirements.lock").read_text()
    copy.path("requirements.lock").write_text(re.sub(r"^torch==[^ ]+", "torch==1.0", lock, flags=re.M))
    first_function_of(copy, "src/tallmasks/methods/own_tensors.py", "print('changed')")
    with copy.path("src/tallmasks/store/errors.py").open("a") as module:  # of which few stages use anything
        module.write("import numpy\n\nnumpy.sign = numpy.abs\n")
    refused = check(copy.root)
    assert refused.returncode == 1
    changed = {}
    for line in refused.stderr.splitlines():
        if line.startswith("stage "):
            stage, _, names = line.removeprefix("stage ").partition(": ")
            changed[stage] = names.partition(" changed;")[0].split(", ")
    everywhere = {"bridge.told_of", "requirements.torch", "tallmasks.store.errors"}
    assert all(everywhere <= set(names) for names in changed.values()) and "examples" in changed
    assert "multi_task_vector.script" in changed["multi_task_vector"]
    assert "tallmasks.methods.own_tensors.by_tensor" in changed["evaluation"], "BitDelta, T-Switch and TSV-C"
    assert "tallmasks.results.reference/table2.csv" in changed["paper_table"]
    assert "tallmasks.results.reference/table2.csv" not in changed["checkpoint"]
    assert check(copy.root, "--record", "--same").returncode == 0
    assert check(copy.root).returncode == 0


def test_a_name_that_hides_another_is_refused(copy: Project) -> None:
    """The code that runs would be another than the one that was compared."""
    copy.path("workflow/scripts/numpy.py").write_text("")
    copy.path("src/tallmasks/vectors/kernels").mkdir()
    refused = check(copy.root).stderr
    assert "workflow/scripts/numpy.py hides the library numpy" in refused
    assert "src/tallmasks/vectors/kernels.py is hidden by the folder of its name" in refused
