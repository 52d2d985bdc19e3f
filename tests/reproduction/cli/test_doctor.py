"""`tallmasks doctor`: what a machine lacks, before the first job."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import ROOT
from reproduction.cli import doctor
from reproduction.cli.gpu_rates import Rates, measured
from reproduction.models import cuda
from reproduction.plan import chain, preflight
from reproduction.plan.planner import Plan
from tallmasks.cli.main import main
from tallmasks.io import hub


@pytest.fixture(autouse=True)
def bare_machine(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no network, an empty cache; the project's own params.yaml."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_what_a_model_lacks_is_said_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody would learn after an hour that there is no GPU, or no network."""
    assert main(["doctor", "tiny"]) == 0
    output = capsys.readouterr().out
    assert "tiny: ready" in output and "GPUs: none" in output and "the hub does not answer" in output

    assert main(["doctor", "vit_b32"]) == 1
    output = capsys.readouterr().out
    assert "vit_b32: cannot be run as it is" in output and "21 repositories to download" in output
    assert "there is no GPU" in output and "set gpu: 0" in output and "`hf download tanganke/sun397" in output

    target = "results/vit_b32/20tasks/table.csv"
    assert main(["doctor", target]) == 1
    output = capsys.readouterr().out
    assert "93 jobs on a GPU" in output and "H100" in output and "2.5 times as long" in output
    monkeypatch.setattr(cuda, "usable", lambda: ["a"])
    monkeypatch.setattr(cuda, "require_gpus", lambda count: None)
    monkeypatch.setattr(doctor, "measured", lambda spec, settings, at_once: Rates(394.2, 1560.0))
    main(["doctor", target])
    output = capsys.readouterr().out
    assert "5.3 GPU hours (finetune 3.6" in output and "measured here" in output

    assert main(["doctor", "vit_b31"]) == 1
    assert "did you mean 'vit_b32'?" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["tiny", "tiny_t5"])
def test_a_models_own_training_and_evaluation_are_timed(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hours on a GPU would be those of another network, or the first `doctor` on one would end in an error."""
    monkeypatch.setattr("reproduction.cli.gpu_rates.TRIAL_SECONDS", 0.0)
    monkeypatch.setattr("reproduction.cli.gpu_rates._EXAMPLES", 32)
    spec = doctor.open_plan().model(model)
    rates = measured(spec, spec["finetuning"], 16, "cpu")
    assert rates and rates.training > 0 and rates.evaluation > 0


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("vit_b32", ["21 repositories to download, 63 GB", "55.5 GB of examples", "0.76 GPU hours (finetune 0.38"]),
        ("t5_large", ["masks, 96 GB of saves of unfinished trainings", "44 GPU hours (finetune 43"]),
    ],
)
def test_a_disk_holds_all_that_is_made_and_downloaded(
    model: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk would be full after the third of twenty data sets, or after days of fine-tuning."""
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(preflight.Wanted, "size", lambda one: 3 * 10**9)
    monkeypatch.setattr(cuda, "usable", lambda: list("abcd"))
    monkeypatch.setattr(doctor, "_hub_cache", lambda: ROOT)
    plan, needed, said = doctor.open_plan(), 0.0, list[bool]()
    for free in (1e15, 0.99, 1.01):
        room = free * (needed or 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda place, room=room: SimpleNamespace(free=room))
        told: list[str] = []
        problems = list(doctor.problems(plan, *doctor.behind(plan, model), told))
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


def test_doctor_imports_no_torch() -> None:
    """`tallmasks doctor` would take a minute on a busy machine without a GPU."""
    code = (
        "import sys; from tallmasks.cli.main import main; main(['doctor']);"
        "print(sorted({'torch', 'open_clip', 'transformers'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "vit_b32: cannot be run as it is" in done.stdout and done.stdout.endswith("[]\n")
