"""Damaged files: found, restored or made again, and never committed as the new truth."""

import hashlib
from pathlib import Path

from store.project import Project


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


def test_a_damaged_file_that_dvc_does_not_know_yet_is_made_again(project: Project) -> None:
    """Half an artifact, damaged between the run of Snakemake and that of DVC, would be committed."""
    merged = "store/tiny/derived/multi_task_vectors/*"
    known = set(project.root.glob(merged))
    project.benchmark("new", ["mnist", "dtd"])
    project.snakemake("results/tiny/new/table.csv")
    before = project.sha256("store", "results")
    (new,) = set(project.root.glob(merged)) - known
    project.damage(new, new.read_bytes()[: new.stat().st_size // 2])
    assert project.dvc("repro").jobs == {"merge": 1}
    assert project.sha256("store", "results") == before


def test_a_tampered_results_file_is_written_again(project: Project) -> None:
    """A number changed by hand, or a merge conflict, would pass for a result."""
    before, lock = project.sha256("results"), project.path("dvc.lock").read_bytes()
    table = project.path("results/tiny/two/table.csv")
    table.write_text(table.read_text().replace("0", "9"))
    project.path("results/tiny/three/provenance.json").write_text("<<<<<<< HEAD\n")
    assert project.snakemake("all").jobs == {"results": 2}
    assert project.sha256("results") == before
    table.unlink()
    assert project.dvc("repro").jobs == {"results": 1}
    assert project.sha256("results") == before and project.path("dvc.lock").read_bytes() == lock
