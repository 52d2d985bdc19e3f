"""`tallmasks doctor`: what a machine lacks, before the first job."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from conftest import PARAMS, ROOT
from reproduction.cli import doctor
from reproduction.models import cuda
from reproduction.plan import chain, preflight
from reproduction.plan.settings import Plan
from tallmasks.cli.main import main
from tallmasks.io import hub


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


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("vit_b32", ["21 repositories to download, 63 GB", "55.5 GB of examples"]),
        ("t5_large", ["masks, 96 GB of saves of unfinished trainings"]),
    ],
)
def test_a_disk_holds_all_that_is_made_and_downloaded(
    model: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk would be full after the third of twenty data sets, or after days of fine-tuning."""
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(preflight.Wanted, "size", lambda one: 3 * 10**9)
    monkeypatch.setattr(cuda, "usable", lambda: list("abcd"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(ROOT))
    plan, needed, said = doctor.open_plan(), 0.0, list[bool]()
    for free in (1e15, 0.99, 1.01):
        room = free * (needed or 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda place, room=room: SimpleNamespace(free=room))
        told: list[str] = []
        problems = list(doctor.problems(plan, *doctor.behind(plan, model), told, {}))
        facts = "; ".join(told)
        needed = 1e9 * sum(map(float, re.findall(r"([\d.]+) GB(?! for weights, )", facts)))
        said.append(any("set HF_HOME" in problem for problem in problems))
    assert all(part in facts for part in parts), facts
    assert said == [False, True, False]


def test_the_disk_for_masks_follows_the_models_own_grid(params: dict[str, Any]) -> None:
    """The disk would be full of masks that nobody counted, or a disk be refused that has room."""
    sizes = []
    for grid in ([0.4], [0.1 * step for step in range(1, 9)]):
        params["models"]["tiny"]["grids"] = {"mask_lambda": grid}
        plan = Plan(params, ROOT)
        masks = [chain.mask(plan, "tiny", ("mnist", "svhn"), "sum", 0)]
        sizes.append(doctor.bytes_made(plan, "tiny", masks)["checkpoints, vectors and masks"])
    assert sizes[1] == 4 * sizes[0], "levels of 8 lambdas take four bits, of one a single bit"
