"""`tallmasks doctor`: what a machine lacks, before the first job."""

from pathlib import Path

import pytest

from conftest import ROOT
from tallmasks.commands import doctor
from tallmasks.commands.main import main
from tallmasks.models import cuda
from tallmasks.plan import preflight
from tallmasks.store import hub


@pytest.fixture(autouse=True)
def bare_machine(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, no network, an empty cache; the project's own params.yaml."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cuda, "listed", lambda: [])
    monkeypatch.setattr(cuda, "driver", lambda: None)


def test_what_a_model_lacks_is_said_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody would learn after an hour that there is no GPU, or no network."""
    assert main(["doctor", "tiny"]) == 0
    output = capsys.readouterr().out
    assert "tiny: ready" in output and "GPUs: none" in output and "the hub does not answer" in output

    assert main(["doctor", "vit_b32"]) == 1
    output = capsys.readouterr().out
    assert "vit_b32: cannot be run as it is" in output and "21 repositories to download" in output
    assert cuda.NO_DRIVER in output and "`hf download tanganke/sun397" in output

    assert main(["doctor", "vit_b31"]) == 1
    assert "did you mean 'vit_b32'?" in capsys.readouterr().err


def test_a_disk_that_is_too_small_for_the_downloads_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk would be full after the third of twenty data sets."""
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(preflight.Wanted, "size", lambda one: 10**15)
    report = doctor.of_model(doctor.open_plan(), "vit_b32")
    assert "21 repositories to download, 2.1e+07 GB" in report.facts
    assert any("make room, or set HF_HOME" in problem for problem in report.problems)
