"""Every block of shell, Python and YAML in the documents, as far as it can run here; and the notebook."""

import argparse
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.cli.parser import get_main_parser
from snakemake.cli import get_argument_parser

from conftest import ROOT, shipped_params
from project import ORDERS, Project, lay_out, quick
from reproduction.plan.params import check_params
from tallmasks.cli.main import module_of

GENERATED = {"commands.md", "params.md"}
ELSEWHERE = "docs/own_models.md"
"""test_own_classifiers.py follows this page from its first line to its last."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
PLAIN = {"cd", "curl", "du", "git", "pip", "source"}
"""Commands of the machine, which are taken as they are."""
SHELL = {"make", "snakemake", "dvc", "tallmasks", ".venv/bin/python", ".venv/bin/uv", "python", *PLAIN}
"""What a block of shell begins with."""
NOT_RUN = {
    r"make (install|clean|remotes)": "they change an environment of 6 GB: test_clones.py, test_installation.py",
    r"make (check|test|rehearsal)": "all tests, these among them",
    r"\.venv/bin/uv pip": "another torch in the environment, for a driver that is not here",
    r"source ": "the environment of the tests is active",
    r"snakemake .*(vit_|t5_large|gpt2_glue)": "a GPU; planned by a dry run below",
    r"(make|snakemake) .*results/minilm": "an encoder that the small project lacks; planned by a dry run below",
    r"tallmasks doctor": "a GPU and a hub: tests/reproduction/cli/test_doctor.py",
    r"dvc repro experiments/vit_b32": "a GPU",
    r"dvc remote (add|modify)|git commit -m .A remote": "test_remotes.py runs the lines of this section",
    r"git clone ": "it needs the network",
    r"pip install |python3 -m venv": "test_installation.py",
    r"git checkout --ours": "two branches in conflict",
    r"\.venv/bin/python -m pytest": "a file of the reader's; tests/workflow/test_readme.py runs it",
    r"make \.venv/llms|\.venv/bin/python examples/llms": "test_merge_llms.py runs the lines of this page",
    r"tallmasks (merge|compress) --base (meta-llama|\./tiny/)": "the same",
    r"tallmasks export .* --task (instruct|code|math|sums) ": "the same",
}
"""Lines of shell that no test runs as they are, by how they begin, and why."""
FOLLOWED = {page for group in runpy.run_path(str(ROOT / "docs/printed_output.py"))["FOLLOWED"] for page in group}
"""Pages whose lines of `tallmasks` are run by tests/workflow/test_readme.py, with what they print."""
PYTHON = "CONTRIBUTING.md README.md docs/change.md docs/own_models.md docs/python.md"
"""Pages with blocks of Python, which test_readme.py, test_state_dicts.py and test_figures.py run."""


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The blocks of a language, each with its page."""
    for page in PAGES:
        for found, text in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
            if found == language:
                yield str(page.relative_to(ROOT)), text


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """The words after a program in all blocks of shell, each with its page."""
    for page, text in blocks(""):
        if text.split()[0] not in SHELL:  # a diagram, or a list of files
            continue
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"\s&&\s", line):
                words = shlex.split(part, comments=True)
                if words[:1] == [program]:
                    yield page, words[1:]


@pytest.mark.short
def test_options_targets_and_files_are_there() -> None:
    """A reader would copy a line that the command refuses, or run a test that has moved."""
    for page, words in commands("tallmasks"):
        parser = argparse.ArgumentParser(prog=page, exit_on_error=False)
        module_of(words[0]).add_arguments(parser)
        parser.parse_args(words[1:])
    for _, words in commands("dvc"):
        get_main_parser().parse_args(words)
    targets = {word for _, words in commands("make") for word in words} - {"test"}  # which -n would run
    done = subprocess.run(["make", "-n", *sorted(targets)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page, words in [*commands(".venv/bin/python"), *commands("python")]:
        files = [word for word in words if word.endswith(".py") or word.startswith("tests/")]
        assert files and all((ROOT / file).exists() for file in files), page


def test_the_targets_of_snakemake_are_there(tmp_path: Path) -> None:
    """A dry run of everything that the pages ask for."""
    copy = Project(tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
    subprocess.run(f"git ls-files -z | xargs -0 cp --parents -t {tmp_path}", shell=True, cwd=ROOT, check=True)
    copy.replace("params.yaml", "\nbenchmarks:\n", "\nbenchmarks:\n  mine: [mnist, svhn]\n")
    parser = get_argument_parser()
    targets = {target for _, words in commands("snakemake") for target in parser.parse_args(words).targets}
    targets = {target for target in targets if not target.startswith("results/mine/")}  # test_own_classifiers.py
    assert len(targets) > 15
    copy.run("snakemake", "-n", "-j1", *sorted(targets))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small project with the benchmarks that the pages name, and an environment."""
    project = lay_out(tmp_path_factory.mktemp("pages") / "project")
    shutil.copy(ROOT / "dvc.yaml", project.path("dvc.yaml"))
    shutil.copytree(ROOT / ".dvc/plots", project.path(".dvc/plots"))
    shutil.copy(ROOT / "models/tiny_t5.safetensors", project.path("models"))
    project.change(of_the_pages)
    project.path(".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        project.path(".venv", part).symlink_to(Path(sys.prefix, part))
    project.path(".venv/installed").write_text(f"{project.root}\n")
    project.commit("start")
    return Project(project.root, {"HF_HUB_OFFLINE": "1", "PYTHON": "none, so that make installs nothing"})


def of_the_pages(params: dict[str, Any]) -> None:
    """The benchmarks of the pages with two or three tasks each, fine-tuned in seconds."""
    params["models"]["tiny_t5"] = quick(shipped_params()["models"]["tiny_t5"])
    two, three = ["svhn", "mnist"], ["mnist", "svhn", "dtd"]
    params["benchmarks"] = {"8tasks": two, "14tasks": two, "20tasks": three, "mine": two, "11nlp": ["qasc", "paws"]}
    params["paper"]["subsets"]["orders"] = ORDERS
    params["build"] = ["tiny"]


def scripts() -> Iterator[tuple[str, str]]:
    """The blocks of shell without the lines of `NOT_RUN` and of `FOLLOWED`, each with its page."""
    for page, text in blocks(""):
        if text.split()[0] in SHELL and page != ELSEWHERE:
            left_out = [*NOT_RUN, "tallmasks "] if page in FOLLOWED else NOT_RUN
            lines = text.replace("\\\n", " ").splitlines()
            yield page, "\n".join(line for line in lines if not any(re.match(begin, line) for begin in left_out))


@pytest.mark.parametrize("page", sorted({page for page, script in scripts() if script}))
def test_the_lines_of_a_page_run(project: Project, page: str) -> None:
    """A reader would follow a page to its first line that fails."""
    of_page = [script for name, script in scripts() if name == page]
    for written in re.findall(r"(?:-o|example) \./(\S+)", "\n".join(of_page)):
        shutil.rmtree(project.path(written), ignore_errors=True)
    if not project.path("demo").exists():
        project.run("tallmasks", "example", "demo")
    for script in of_page:
        project.run("bash", "-e", "-c", f"exec <<< y\n{script}")
        project.path(".dvc/config.local").unlink(missing_ok=True)  # names a cache that is not there


@pytest.mark.short
def test_every_block_of_python_is_run_by_a_test() -> None:
    """A page could show code that nobody ran."""
    assert {page for page, _ in blocks("python")} == set(PYTHON.split())


@pytest.mark.short
def test_the_blocks_of_yaml_are_accepted() -> None:
    """A reader would copy a key into params.yaml that is refused."""
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    checked = 0
    for _, text in blocks("yaml"):
        added = yaml.safe_load(text)
        if not set(added) <= {"benchmarks", "grids", "methods", "data", "vision_tasks"}:
            continue  # what stands under a model
        params = {**settings, **added}
        for key in {"benchmarks", "data"} & set(added):
            params[key] = {**settings.get(key, {}), **added[key]}
        if "dotted" in params["benchmarks"] or "<commit" in text:  # of a task that the page adds
            continue
        check_params(params)
        checked += 1
    assert checked >= 5


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells would stop with an error, or print what they do not compute."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tool = runpy.run_path(str(ROOT / "docs" / "run_notebook.py"))
    kept = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())
    shown = _printed(kept)
    assert len(shown) >= 6
    assert _printed(tool["executed"](kept)) == shown, "run `python docs/run_notebook.py`"


def _printed(notebook: dict[str, Any]) -> list[str]:
    """What the cells print, without the numbers, which depend on the processor."""
    texts = ["".join(output["text"]) for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return [re.sub(r"[0-9.]+", "0", text) for text in texts]
