"""One small project, built once by `dvc repro` and shared by all test processes; tests work on copies of it."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.project import Project, Run, lay_out


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """The project after its first `dvc repro`, committed and pushed to the remote, and what that run said."""
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


@pytest.fixture
def copies(built: tuple[Project, Run], tmp_path: Path) -> Iterator[Callable[[], Project]]:
    """Makes copies of the built project."""
    numbers = itertools.count(1)
    yield lambda: built[0].copy(tmp_path / f"copy{next(numbers)}")


@pytest.fixture
def project(copies: Callable[[], Project]) -> Project:
    """A copy of the built project."""
    return copies()
