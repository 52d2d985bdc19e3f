"""Several runs at once, and a disk that fills up: nothing twice, nothing corrupt, a clear error."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from project import Project, Run


def at_once(both: list[subprocess.Popen[str]]) -> list[Run]:
    """Two runs to their ends, which must be good ones."""
    runs = [Run(process.wait(), output) for process in both for output in [process.communicate()[0]]]
    assert [run.status for run in runs] == [0, 0], "\n".join(run.output for run in runs)
    return runs


def test_two_clones_on_one_cache_at_once(built: tuple[Project, Run], tmp_path: Path) -> None:
    """A group's shared cache would be damaged by two members at work."""
    clones = [built[0].copy(tmp_path / name) for name in ("one", "other")]
    for clone in clones:
        clone.dvc("cache", "dir", "--local", str(tmp_path / "shared-cache"))
        clone.benchmark("new", ["mnist", "dtd"])
    at_once([clone.start("dvc", "repro") for clone in clones])
    assert clones[0].path("dvc.lock").read_bytes() == clones[1].path("dvc.lock").read_bytes()
    objects = [path for path in (tmp_path / "shared-cache" / "files" / "md5").rglob("*") if path.is_file()]
    for path in objects:
        assert hashlib.md5(path.read_bytes()).hexdigest() == (path.parent.name + path.name).removesuffix(".dir")
    manifests = [json.loads(path.read_text()) for path in objects if path.suffix == ".dir"]
    stored = {
        hashlib.md5(path.read_bytes()).hexdigest() for path in clones[0].path("store").rglob("*") if path.is_file()
    }
    assert stored == {entry["md5"] for manifest in manifests for entry in manifest}
    assert clones[0].up_to_date()


FULL_DISK = """
export TALLMASKS_WARM=0  # the tests' server is outside this namespace
mount -t tmpfs -o size=600k tmpfs store/tiny/derived/mask
snakemake -j2 -- all; echo "first: $?"
ls -A store/tiny/derived/mask | sed 's/^/left: /'
mount -o remount,size=100m store/tiny/derived/mask
snakemake -j2 -- all; echo "second: $?"
sha256sum store/tiny/derived/mask/*
"""


def can_mount() -> bool:
    """True if this user may mount a small disk in a namespace."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this user may not mount a small disk to be filled")
def test_a_full_disk_is_a_clear_error_and_leaves_nothing_half(project: Project) -> None:
    """A full disk would leave a truncated artifact that the next run takes for whole."""
    bundles = project.path("store/tiny/derived/mask")
    before = project.sha256("store/tiny/derived/mask")
    for path in bundles.iterdir():
        path.unlink()
    for path in project.path("store/tiny/derived/evaluate").glob("tall_mask*"):
        path.unlink()
    for path in project.path("results/tiny").glob("*/table.csv"):
        path.unlink()
    run = project.run("unshare", "-rm", "sh", "-c", FULL_DISK)
    assert "first: 1" in run.output and "second: 0" in run.output
    assert "no space" in run.output
    assert ".tmp" not in run.output
    assert all(content in run.output for content in before.values())
