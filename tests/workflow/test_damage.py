"""Damaged files: found, restored or made again, and never committed as the new truth."""

import hashlib
import os
from pathlib import Path

import pytest

from project import Project


def cached(project: Project, content: Path) -> Path:
    """The object in DVC's cache that holds a file's content."""
    md5 = hashlib.md5(content.read_bytes()).hexdigest()
    return project.path(".dvc/cache/files/md5", md5[:2], md5[2:])


def test_damage_is_repaired_and_dvc_lock_stays(project: Project) -> None:
    """A flipped bit would become the project's official checkpoint, and be pushed to everybody."""
    before, lock = project.sha256("store"), project.path("dvc.lock").read_bytes()
    overwritten = project.one("store/tiny/checkpoints/mnist-s0-*.safetensors")
    truncated = project.one("store/tiny/derived/mask_bundles/sum-2tasks-*.safetensors")
    deleted = project.one("store/tiny/derived/task_vectors/dtd-*.safetensors")
    with_bad_cache = project.one("store/tiny/derived/task_vectors/svhn-*.safetensors")
    for_nobody = project.one("store/tiny/derived/multi_task_vectors/sum-3tasks-*.safetensors")
    project.damage(cached(project, with_bad_cache), b"bad sector")  # the remote still has it
    for place in (".dvc/cache", ".dvc-remote"):  # nobody has this one
        md5 = cached(project, for_nobody).relative_to(project.path(".dvc/cache"))
        project.damage(project.path(place, str(md5)), None)
    for path, content in {
        overwritten: b"garbage" * 1000,
        truncated: truncated.read_bytes()[:-1],
        deleted: None,
        with_bad_cache: with_bad_cache.read_bytes()[:-4] + b"\0\0\0\0",
        for_nobody: b"",
    }.items():
        project.damage(path, content)

    repaired = project.dvc("repro")

    assert repaired.jobs == {"merge": 1}
    for path in (overwritten, truncated, deleted, with_bad_cache):
        assert f"{path.relative_to(project.root)}: restored" in repaired.output
    assert project.sha256("store") == before
    assert project.path("dvc.lock").read_bytes() == lock
    assert "up to date" in project.dvc("status").output
    assert not project.git("status", "--porcelain").output


@pytest.mark.long
def test_what_is_lost_is_named_and_one_file_is_restored(project: Project) -> None:
    """`verify` would pass a store that lost a file, and `--restore` of one file move it away and bring nothing back."""
    lost, damaged = (project.one(f"store/tiny/derived/task_vectors/{task}-s0-*") for task in ("dtd", "svhn"))
    before, names = project.sha256("store"), [str(path.relative_to(project.root)) for path in (lost, damaged)]
    project.damage(lost, None)
    project.damage(damaged, damaged.read_bytes()[:-1])
    assert f"{names[0]} is not there, and dvc.lock has it" in project.tallmasks("verify", fails=True).output
    assert f"{names[1]}: restored" in project.tallmasks("verify", "--restore", names[1]).output
    os.mkfifo(lost)  # for which DVC would wait for ever
    lost.with_name("link").symlink_to("nowhere")  # at which it would fail
    project.tallmasks("verify", "--restore", "store/tiny/derived")
    assert project.sha256("store") == before and "0 problems" in project.tallmasks("verify").output
    assert "no such file or folder" in project.tallmasks("verify", "--restore", "store/tinny", fails=True).output
    project.damage(lost, None)
    project.change(lambda params: params["benchmarks"].pop("three"))  # and nobody asks for it any more
    assert "0 problems" in project.tallmasks("verify").output


def test_a_tampered_results_file_is_written_again(project: Project) -> None:
    """A number changed by hand, or a merge conflict, would pass for a result."""
    before, table = project.sha256("results"), project.path("results/tiny/two/table.csv")
    table.write_text(table.read_text().replace("0", "9"))
    project.path("results/tiny/three/provenance.json").write_text("<<<<<<< HEAD\n")
    assert project.snakemake("all").jobs == {"results": 2}
    assert project.sha256("results") == before
    table.unlink()
    assert project.snakemake("all").jobs == {"results": 1}
    assert project.sha256("results") == before
