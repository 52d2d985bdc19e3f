"""Damaged files: found, restored or made again, and never committed as the new truth."""

import hashlib
import re
from pathlib import Path

from project import Project


def cached(project: Project, content: Path) -> Path:
    """The object in DVC's cache that holds a file's content."""
    md5 = hashlib.md5(content.read_bytes()).hexdigest()
    return project.path(".dvc/cache/files/md5", md5[:2], md5[2:])


def test_damage_is_never_committed_and_comes_back(project: Project) -> None:
    """A flipped bit would become the official checkpoint, or the command that brings a file back would fail."""
    before, lock = project.sha256("store"), project.path("dvc.lock").read_bytes()
    overwritten = project.one("store/tiny/checkpoints/finetune/mnist-s0-*.safetensors")
    in_remote = project.one("store/tiny/derived/task_vector/svhn-*.safetensors")
    for_nobody = project.one("store/tiny/derived/merge/sum-3tasks-*.safetensors")
    cached(project, in_remote).unlink()
    for place in (".dvc/cache", ".dvc-remote"):
        project.path(place, str(cached(project, for_nobody).relative_to(project.path(".dvc/cache")))).unlink()
    project.damage(overwritten, b"garbage" * 1000)
    project.damage(in_remote, in_remote.read_bytes()[:-4] + b"\0\0\0\0")

    stopped = project.dvc("repro", fails=True).output
    for path in (overwritten, in_remote):
        name = path.relative_to(project.root)
        assert f".tallmasks/damaged/{name}" in stopped and f"`dvc pull {name}`" in stopped
    for command in re.findall("`(dvc pull .+?)`", stopped):
        project.run(*command.split())
    assert project.sha256("store") == before

    project.dvc("remote", "default", "--unset")
    project.damage(for_nobody, b"")
    found = project.tallmasks("verify", fails=True).output
    assert f"damaged/{for_nobody.relative_to(project.root)}" in found
    assert found.endswith("1 problem\n") and " 0 problems" in project.tallmasks("verify").output
    project.git("checkout", "-q", ".dvc/config")
    assert project.dvc("repro").jobs.keys() == {"merge"}
    assert project.sha256("store") == before and project.path("dvc.lock").read_bytes() == lock
    assert not project.git("status", "--porcelain").output

    project.path("store").rename(project.path("elsewhere"))  # as in a clone
    assert "`dvc pull`" in project.tallmasks("verify", fails=True).output


def test_a_tampered_results_file_is_written_again(project: Project) -> None:
    """A number changed by hand, or a merge conflict, would pass for a result."""
    before, table = project.sha256("results"), project.path("results/tiny/two/table.csv")
    table.write_text(table.read_text().replace("0", "9"))
    project.path("results/tiny/three/provenance.json").write_text("<<<<<<< HEAD\n")
    assert project.snakemake("all").jobs.keys() == {"tables"}
    assert project.sha256("results") == before
    table.unlink()
    for job in project.path(".tallmasks/jobs").glob("*.json"):  # a disk that was full, or somebody who tried something
        job.write_text(job.read_text()[:100])
    assert project.snakemake("all").jobs.keys() == {"tables"}
    assert project.sha256("results") == before
