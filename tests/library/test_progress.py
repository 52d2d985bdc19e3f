"""Progress: what somebody reads while a long merge runs."""

import pytest

from tallmasks import progress


def test_the_time_left_is_not_guessed_from_the_first_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A merge of 20 seconds began with "0 %, about 18:48:18 left", because its first piece had to load libraries."""
    monkeypatch.setattr(progress, "AFTER", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress.work_progress("merging", 1000) as done:
        done(1)
        assert not capsys.readouterr().err
        done(499)
        assert capsys.readouterr().err.startswith("merging: 50 %, about 0:00:00 left")
