"""Fixtures and settings for all tests."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import settings

if TYPE_CHECKING:
    from project import Project, Run

if "PYTEST_XDIST_WORKER" in os.environ:  # before anybody imports torch or NumPy: two test processes of as many threads
    os.environ["OMP_NUM_THREADS"] = "1"  # as there are cores wait for each other most of the time

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for tiny_worlds, where pytest is not called as `python -m pytest`


def _shipped() -> Path:
    """params.yaml as git has it, whatever somebody has made of theirs; the file itself where there is no git."""
    own = ROOT / "params.yaml"
    shown = subprocess.run(["git", "show", ":params.yaml"], cwd=ROOT, capture_output=True, check=False)
    if shown.returncode or shown.stdout == own.read_bytes():
        return own
    folder = tempfile.TemporaryDirectory(prefix="tallmasks-params-")
    atexit.register(folder.cleanup)
    Path(folder.name, "params.yaml").write_bytes(shown.stdout)
    return Path(folder.name, "params.yaml")


PARAMS = _shipped()
"""The params.yaml that the project ships: the one in the project's folder is the user's to edit."""


def shipped_params() -> dict[str, Any]:
    return yaml.safe_load(PARAMS.read_text())


@pytest.fixture
def params() -> dict[str, Any]:
    """The parameters that the project ships, safe to change."""
    return shipped_params()


def pytest_configure(config: pytest.Config) -> None:
    """`make test` draws a quarter of the examples of each property that `make test-long` draws."""
    settings.register_profile("short", max_examples=25, deadline=None)
    if config.option.markexpr == "not long":
        settings.load_profile("short")


LONG = Path(__file__).parent / "long"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `long` tests, gives them two hours, and puts tests that start processes first, so that none runs alone at
    the end."""
    items.sort(key=lambda item: not {"library", "reproduction"}.isdisjoint(item.path.parts))
    for item in items:
        if LONG in item.path.parents and not item.get_closest_marker("short"):
            item.add_marker("long")
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(7200))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """`.ci/run` gives the long tests some minutes; what they do not reach is left for another commit."""
    if time.time() > float(os.environ.get("TESTS_UNTIL", "inf")):
        pytest.skip("the time is over")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Undoes what an earlier test set in the same process."""
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    from huggingface_hub import constants

    from tallmasks.io import hub

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "reachable", lambda: False)
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """One small project after its first `dvc repro`, built once for all test processes, committed and pushed to the
    remote; and what that run said."""
    from project import Project, Run, lay_out

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    root, said = folder / "built" / "project", folder / "built" / "first-run.txt"
    root.parent.mkdir(exist_ok=True)
    with (root.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            project = lay_out(root)
            run = project.dvc("repro")
            project.commit("first results")
            project.dvc("push", "-q")
            said.write_text(run.output)
    return Project(root), Run(0, said.read_text())


@pytest.fixture(scope="session")
def paper(built: tuple[Project, Run], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Every table and figure of the small project, and the report on them; what uses it is of the group `paper`."""
    from project import of_the_paper

    project = built[0].copy(tmp_path_factory.mktemp("paper") / "project")
    project.change(of_the_paper)
    shutil.rmtree(project.path("results/tiny/two"))
    project.snakemake("paper")
    project.snakemake("report")
    return project


@pytest.fixture
def project(built: tuple[Project, Run], tmp_path: Path) -> Project:
    """A copy of the built project."""
    return built[0].copy(tmp_path / "copy")
