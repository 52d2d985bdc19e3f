"""`tallmasks methods`: what it says of each method, merge and input."""

from __future__ import annotations

import pytest

from tallmasks import methods
from tallmasks.commands.main import main


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


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("ties", ["ties: TIES (Yadav et al. 2023)", "whole task vectors, slices", "keep=0.2: a number from 0 to 1"]),
        ("adamerging", ["sum_t lambda_t tau_t", "validation data without labels", "by=tensor: tensor or task"]),
        ("ties_sum", ["merge ties_sum", "consensus_ties_k1, tall_mask_ties"]),
        ("emr", ["the whole model", "merge emr_unified, layout, task_vector"]),
        ("magnitude_pruning", ["looks at      whole task vectors, slices"]),
        ("threshold", ["input threshold", "top keep(T)", "magnitude_pruning, magnitude_masking"]),
        ("mask", ["one per task and lambda", "stage mask_bundle"]),
    ],
)
def test_one_of_them_is_described(name: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A reader would have to open the code for what an option may be, or for the paper."""
    main(["methods", name])
    described = capsys.readouterr().out
    assert not [line for line in lines if line not in described], described


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen would end in a traceback."""
    assert main(["methods", "tiez"]) == 1
    assert "did you mean 'ties'" in capsys.readouterr().err
