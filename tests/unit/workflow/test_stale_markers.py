"""What Snakemake is told, and what of it is replaced: stale files, and its own handling of files around a job."""

from pathlib import Path

import pytest

from bridge.jobs import stale_marker


def test_no_marker_lies_in_a_folder_that_was_there_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake, which lists a folder once, would take the second marker for missing and draw a figure from a stale
    table: seen in 5 of 12 runs with two stale tables."""
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "table.csv"
    table.touch()
    markers = [Path(*stale_marker(table, digest)) for digest in ("two", "three")]
    folders = [marker.parent for marker in markers]
    assert folders[0] != folders[1] and [list(folder.iterdir()) for folder in folders] == [[one] for one in markers]
    assert all(marker.stat().st_mtime > table.stat().st_mtime for marker in markers)
