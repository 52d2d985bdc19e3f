"""What a user reads of a run: a failure, an interruption, the end; with the real engines."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError

import bridge
from bridge.run import check_project
from processes import wait_for
from project import ROOT, Project, Run

TABLE = "results/tiny/new/table.csv"
COMMAND = ("snakemake", "-j2", "--", TABLE)


def logs_of_jobs(project: Project) -> list[Path]:
    return [path for path in project.root.glob("logs/**/*cars*.log") if path.stat().st_size]


def interrupt_at_work(project: Project, interrupt: Callable[[subprocess.Popen[str]], None]) -> Run:
    """Start a run, and interrupt it when the first job is at work."""
    for log in logs_of_jobs(project):
        log.unlink()
    process = project.start(*COMMAND)
    wait_for(lambda: bool(logs_of_jobs(project)) or process.poll() is not None)
    interrupt(process)
    output, _ = process.communicate(timeout=120)
    return Run(process.returncode, output)


def test_a_failure_and_an_interruption_are_said_in_few_words(project: Project) -> None:
    """The reason, and what to call next, would be lost in what Snakemake and Python print."""
    shutil.copy(ROOT / "profiles/default/config.yaml", project.path("profiles/default"))
    project.benchmark("new", ["cars", "gtsrb", "mnist"])
    script = project.path("workflow/scripts/finetune.py")
    text = script.read_text()
    begin = "def run(job: Job) -> None:\n"
    assert text.count(begin) == 1

    waits = "    print('begun', flush=True)\n    __import__('time').sleep(600)\n"
    script.write_text(text.replace(begin, f"{begin}{waits}"))
    ways = [lambda process: os.killpg(process.pid, signal.SIGINT), subprocess.Popen.terminate]
    for interrupt in ways:  # as a terminal's Ctrl-C does, or as a machine that shuts down
        output = interrupt_at_work(project, interrupt).output
        assert output.count("Interrupted.") == 1 and "the same command goes on" in output
        assert "Traceback" not in output and "KeyboardInterrupt" not in output

    mistake = "    from tallmasks.store.errors import TallmasksError\n    raise TallmasksError('no room; make some')\n"
    script.write_text(text.replace(begin, f"{begin}{mistake}"))
    output = project.run(*COMMAND, fails=True).output
    assert '"recipe"' not in output and "Traceback" not in output
    error, alone = next(path for path in logs_of_jobs(project) if "checkpoint" in str(path)).read_text().splitlines()
    assert error == "error: no room; make some" and output.count(error) == 2, "two jobs failed for that"
    script.write_text(text)
    project.run(*shlex.split(alone.removeprefix("This job alone: ")))

    output = project.run(*COMMAND).output
    assert re.search(r"finetune +1 ", output), "the one that was run alone is not run again"
    assert len(output.splitlines()) < 60 and "\033" not in output


def test_checkpoints_are_not_deleted_with_all_output(project: Project) -> None:
    """A month of fine-tuning would be gone with one option of Snakemake's."""
    words = ("snakemake", "-j1", "--delete-all-output", "--", "results/tiny/two/table.csv")
    assert "YES=1" in project.run(*words, fails=True).output
    checkpoint = project.one("store/tiny/checkpoints/finetune/mnist-s0-*")
    assert "Would delete" in project.run(*words[:2], "-n", *words[2:]).output and checkpoint.exists()
    Project(project.root, {"YES": "1"}).run(*words)
    assert not checkpoint.exists()


def test_a_folder_without_room_is_said_before_the_first_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake's solver would end in seventy lines of its own, or 33 jobs run whose table cannot be written."""
    monkeypatch.chdir(tmp_path)
    Path("results").write_text("a file in the folder's place")
    with pytest.raises(WorkflowError, match=r"^results cannot be written \(File exists\)"):
        bridge.Run(None).check_room()
    Path("results").unlink()
    monkeypatch.setenv("TMPDIR", "/proc")  # where root cannot write either
    with pytest.raises(WorkflowError, match=r"^/proc cannot be written .* or set TMPDIR to another folder"):
        bridge.Run(None).check_room()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tpm"))
    with pytest.raises(WorkflowError, match=r"tpm cannot be written \(No such file or directory\)"):
        bridge.Run(None).check_room()
    assert not Path("tpm").exists(), "a typo is no new folder"


def test_a_project_that_cannot_be_written_or_has_no_profile_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake would end in a traceback of fifty lines, or print a header of thirteen before the reason."""
    monkeypatch.chdir(tmp_path)
    shown = SimpleNamespace(is_main_process=True, output_settings=SimpleNamespace(show_failed_logs=True))
    check_project(shown)
    assert list(Path(".snakemake").iterdir()) == []
    monkeypatch.chdir("/proc")  # where root cannot write either
    with pytest.raises(OSError, match=r"/proc/\.snakemake"):
        check_project(shown)
    shown.output_settings.show_failed_logs = False
    with pytest.raises(SystemExit, match=r"^error: profiles/default is not in force"):
        check_project(shown)


def test_without_a_core_nothing_waits(project: Project) -> None:
    """`-j0` would wait for ever, and hold up every other run."""
    project.benchmark("new", ["mnist", "dtd"])
    assert "-j0 gives the jobs no core" in project.run("snakemake", "-j0", "--", TABLE, fails=True).output


def test_slurm_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs would be submitted to nobody, and the run would not even end on SIGTERM."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no sbatch" in bridge.no_slurm()
    for name, text in {"sbatch": "exit 1", "sinfo": "echo Unable to contact slurm controller >&2; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    assert bridge.no_slurm() == "slurm does not answer: Unable to contact slurm controller"
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 0\n")
    assert bridge.no_slurm() == ""


def test_make_clean_asks(tmp_path: Path) -> None:
    """A month of fine-tuning would be gone with one word."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "store").mkdir()
    (tmp_path / "store/weights").write_bytes(bytes(3_000_000))
    project = Project(tmp_path)
    output = project.run("make", "clean", fails=True).output
    assert "2.9M" in output and "make clean YES=1" in output
    assert project.path("store/weights").exists()
    project.run("make", "clean", "YES=1")
    assert not project.path("store").exists()
