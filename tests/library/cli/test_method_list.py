"""`tallmasks methods`: what it says of each method, merge and input."""

import pytest

from tallmasks import methods
from tallmasks.cli.main import main


def test_every_method_merge_and_input_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody would find a method that is there, or the row that a new one may have."""
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    rows, merges, inputs = ([line.split() for line in part.splitlines()] for part in listed.split("\n\n"))
    assert [words[1] for words in rows] == ["method", *methods.names()]
    assert [words[0] for words in merges] == ["merge", *methods.merge_names()]
    assert [words[0] for words in inputs] == ["input", *methods.INPUTS]
    assert all(len(line) <= 140 for line in listed.splitlines())
    for name in (*methods.names(), *methods.merge_names(), *methods.INPUTS):
        assert main(["methods", name]) == 0, name
    assert main(["methods", "TIES"]) == 0
    described = capsys.readouterr().out.rpartition("TIES")
    assert "Yadav et al. 2023" in described[2] and "keep=0.2: a number from 1e-06 to 1" in described[2]
