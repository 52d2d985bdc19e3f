"""Several runs at once, and a disk that fills up: nothing twice, nothing corrupt, a clear error."""

import shutil
import subprocess

import pytest

from project import Project

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
