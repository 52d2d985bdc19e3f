"""`tallmasks doctor`: what a machine lacks, before the first job; `tallmasks storage`."""

import csv
import io
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import PARAMS, ROOT
from reproduction.cli import doctor
from reproduction.results.reference import paper_table
from tallmasks import methods
from tallmasks.cli import main as cli
from tallmasks.cli.main import main


@pytest.fixture(autouse=True)
def bare_machine(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no network, an empty cache; the project's own params.yaml."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_what_a_model_lacks_is_said_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Somebody would learn after an hour that there is no GPU, or no network."""
    assert main(["doctor", "tiny"]) == 0
    output = capsys.readouterr().out
    assert "tiny: ready" in output and "GPUs: none" in output and "the hub does not answer" in output

    assert main(["doctor", "vit_b32"]) == 1
    output = capsys.readouterr().out
    assert "vit_b32: cannot be run as it is" in output and "21 repositories to download" in output
    assert "there is no GPU" in output and "set gpu: 0" in output

    assert main(["doctor", "results/vit_b32/20tasks/table.csv"]) == 1
    output = capsys.readouterr().out
    assert "94 jobs on a GPU: 20 finetune" in output

    assert main(["doctor", "vit_b31"]) == main(["doctor", "results/tiny/8task/table.csv"]) == 2
    assert "did you mean 'vit_b32'?" in capsys.readouterr().err


def test_the_downloads_are_one_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty commands would have to be copied from the output, and the shell would expand their patterns."""
    shutil.copy(PARAMS, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "vit_b32", "t5_large"]) == 1
    assert capsys.readouterr().out.count(f"`sh {doctor.DOWNLOADS}`") == 2
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hf").write_text('#!/bin/sh\nprintf "%s|" "$@"; echo\n')
    (tmp_path / "bin/hf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(["sh", doctor.DOWNLOADS], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 32 and done.stderr == ""
    assert sum("|--repo-type|model|" in line for line in lines) == 2
    assert any("tanganke/sun397|" in line and "|--include|data/train-*.parquet|" in line for line in lines)


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
