"""`tallmasks doctor`: what a machine lacks, before the first job."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import PARAMS, ROOT
from reproduction.cli import doctor
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
