"""What a stage of DVC refuses, so that dvc.lock only names results of the recorded parameters and code."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "workflow/dvc-stage.sh"
FOLDERS = ("src", "tiny_worlds", "real_images", "real_texts", "models", "workflow", "store", "results")
EDITS = {
    "none": (":", None),
    "the same content": ("cp params.yaml p && mv p params.yaml", None),
    "a cache of Python": ("mkdir src/__pycache__ && touch src/__pycache__/a.pyc", None),
    "a parameter": ("echo 'b: 2' >> params.yaml", "params.yaml"),
    "rules": ("echo '# b' >> Snakefile", "Snakefile"),
    "tasks": ("touch tiny_worlds/new.py", "tiny_worlds/new.py"),
    "tasks from packages": ("touch real_texts/new.py", "real_texts/new.py"),
    "pretrained weights": ("touch models/new.safetensors", "models/new.safetensors"),
    "code": ("echo 'b = 2' >> 'src/a b.py'", "src/a b.py"),
    "a new file": ("touch workflow/new.py", "workflow/new.py"),
    "a removed file": ("rm 'src/a b.py'", "src/a b.py"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose commands are scripts, in the folder bin."""
    project = tmp_path / "project"
    for name in FOLDERS:
        (project / name).mkdir(parents=True)
    (project / "params.yaml").write_text("a: 1\n")
    (project / "Snakefile").touch()
    (project / "src/a b.py").touch()
    shutil.copy(SCRIPT, project / "workflow")
    command(project, "python", ":")
    return project


def command(project: Path, name: str, line: str) -> None:
    path = project / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def stage(project: Path) -> subprocess.CompletedProcess[str]:
    path = f"{project / 'bin'}:{os.environ['PATH']}"
    call = ["workflow/dvc-stage.sh", "target", "store"]
    return subprocess.run(
        call, cwd=project, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_during_the_run_fails_the_stage(project: Path, edit: str) -> None:
    """dvc.lock would say that the table of the old parameters belongs to the new ones, and push it to others."""
    line, changed = EDITS[edit]
    command(project, "snakemake", line)
    ended = stage(project)
    assert bool(ended.returncode) == bool(changed)
    if changed:
        assert ended.stderr.startswith(f"error: changed while the stage ran: {changed};")


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize("link", ["store", "results", "store/tiny"])
def test_a_link_to_another_disk_is_refused_before_the_run(project: Path, link: str, mounted: bool) -> None:
    """DVC would refuse the outputs after hours of work."""
    if mounted:
        (project / "elsewhere").mkdir()
    if (project / link).exists():
        (project / link).rmdir()
    (project / link).symlink_to(project / "elsewhere")
    command(project, "snakemake", "touch ran")
    assert f"{link} is a symbolic link" in stage(project).stderr
    assert not (project / "ran").exists()


def test_a_failed_run_fails_the_stage(project: Path) -> None:
    """DVC would take half of a table for the whole."""
    command(project, "snakemake", "exit 3")
    assert stage(project).returncode == 3
