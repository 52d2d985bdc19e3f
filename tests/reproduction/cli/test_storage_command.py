"""`tallmasks storage`: the paper's figures from architectures alone."""

import csv
import io
import shutil
from pathlib import Path

import pytest

from conftest import PARAMS, ROOT
from reproduction.results.reference import paper_table
from tallmasks import methods
from tallmasks.cli import main as cli


def test_it_prints_the_papers_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader would compare accuracies at a cost that is not the method's."""
    shutil.copy(PARAMS, tmp_path / "params.yaml")
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["storage"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "model,benchmark,method,formula_gbit"
    found = {
        (row["model"], row["benchmark"], row["method"]): float(row["formula_gbit"])
        for row in csv.DictReader(io.StringIO(printed))
    }
    assert 0 < found["tiny", "8tasks", "zeroshot"] < 0.1
    for number in (2, 3, 7):
        for row in paper_table(number).itertuples():
            assert round(found[str(row.model), str(row.benchmark), str(row.method)], 1) == row.formula_gbit, row
            assert methods.get(str(row.method)).stores_more == row.lower_bound
    assert cli.main(["storage", "--parameters", "8e6", "--tasks", "20", "--dtype", "bfloat16", "--bits", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "base + stochastic_rounding, 0.5 bits   26.0 MB          8.1%\n" in said
    assert "base + masks over ties                 39.0 MB         12.2%\n" in said
