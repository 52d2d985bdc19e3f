"""The newer input by which Snakemake makes results of another recipe again."""

from pathlib import Path

import pytest

from bridge import newer_input


def test_no_newer_input_lies_in_a_folder_that_was_there_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake would draw a figure from a stale table (it lists each folder only once)."""
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "table.csv"
    table.touch()
    inputs = [Path(*newer_input([str(table)], digest)) for digest in ("two", "three")]
    folders = [one.parent for one in inputs]
    assert folders[0] != folders[1] and [list(folder.iterdir()) for folder in folders] == [[one] for one in inputs]
    assert all(one.stat().st_mtime > table.stat().st_mtime for one in inputs)
    assert newer_input([str(tmp_path / "missing.csv")], "two") == []
