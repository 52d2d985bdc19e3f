"""The output of a run: failure, interruption, end; with the real engines."""

import fcntl
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError

from bridge import begin
from bridge.run import check_room, check_settings, check_slurm
from processes import gone, wait_for
from project import ROOT, Project, Run

TABLE = "results/tiny/new/table.csv"
COMMAND = ("snakemake", "-j2", "--", "results/tiny/two/table.csv", "results/tiny/three/table.csv")


def logs_of_jobs(project: Project) -> list[Path]:
    return [path for path in project.root.glob("logs/tiny/merge/held-*.log") if path.stat().st_size]


def workers(project: Project) -> set[int]:
    """The processes of the jobs that have begun to wait."""
    said = " ".join(path.read_text() for path in logs_of_jobs(project))
    return {int(number) for number in re.findall(r"begun (\d+) ", said)}


def interrupt_at_work(project: Project, interrupt: signal.Signals) -> str:
    """Start a run, send a signal to it and its jobs when two are at work, and see them end; what it said."""
    for log in logs_of_jobs(project):
        log.unlink()
    process = project.start(*COMMAND)
    wait_for(lambda: len(workers(project)) == 2 or process.poll() is not None)
    os.killpg(process.pid, interrupt)
    output, _ = process.communicate(timeout=120)
    assert process.returncode and workers(project), output
    wait_for(lambda: all(map(gone, workers(project))))
    return output


def test_a_failure_and_an_interruption_are_said_in_few_words(project: Project) -> None:
    """The reason, and what to call next, would be lost in what Snakemake and Python print; or a job go on alone."""
    shutil.copy(ROOT / "profiles/default/config.yaml", project.path("profiles/default"))
    project.add_held()
    project.path("wait").touch()
    for interrupt in (signal.SIGINT, signal.SIGKILL):
        assert "Traceback" not in interrupt_at_work(project, interrupt)
    project.path("wait").rename(project.path("fail"))
    output = project.run(*COMMAND, fails=True).output
    assert '"recipe"' not in output and "Traceback" not in output
    error, alone = logs_of_jobs(project)[0].read_text().splitlines()
    assert error == "error: no room; make some" and output.count(error) == 2, "two jobs failed for that"
    project.path("fail").unlink()
    project.run(*shlex.split(alone.removeprefix("This job alone: ")))
    output = project.run(*COMMAND).output
    assert re.search(r"merge +1 ", output), "the one that was run alone is not run again"
    assert len(output.splitlines()) < 60 and "\033" not in output


def test_a_second_run_waits_and_begins_anew(project: Project, tmp_path: Path) -> None:
    """Two runs would write one file; or the second make again what the first has made."""
    table = project.path("results/tiny/two/table.csv")
    content = table.read_bytes()
    with project.path(".tallmasks/writer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        table.unlink()
        process = project.start("snakemake", "-j2", "--", str(table.relative_to(project.root)))
        assert process.stdout and any("snakemake" in line for line in process.stdout)
        table.write_bytes(content)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and not Run(0, output).jobs

    table.unlink()  # on a disk without the kernel's locks, where another run was killed
    no_locks = "import fcntl\n\ndef flock(*_):\n    raise OSError(37, 'No locks available')\n\nfcntl.flock = flock\n"
    (tmp_path / "sitecustomize.py").write_text(no_locks)
    elsewhere = Project(project.root, {"PYTHONPATH": f"{tmp_path}:{project.path('src')}"})
    project.path(".snakemake/locks/0.output.lock").write_text("results/tiny/two/table.csv\n")
    assert "lock" in elsewhere.snakemake("results/tiny/two/table.csv", fails=True).output
    assert "`snakemake --unlock`" in elsewhere.tallmasks("gc", fails=True).output
    elsewhere.run("snakemake", "--unlock")
    assert "no locks" in elsewhere.snakemake("results/tiny/two/table.csv").output
    assert table.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """33 jobs would run before the table fails to be written."""
    monkeypatch.chdir(tmp_path)
    Path("results").write_text("a file in the folder's place")
    with pytest.raises(WorkflowError, match=r"^results .*File exists"):
        check_room(Path("results"))
    with pytest.raises(WorkflowError, match=r"^/proc "):  # where root cannot write either
        check_room(Path("/proc"))


def test_a_project_that_cannot_be_written_or_has_no_profile_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake would end in a traceback of fifty lines, or print a header of thirteen before the reason."""
    monkeypatch.chdir(tmp_path)
    Path(".tallmasks").write_text("a file in the folder's place")
    with pytest.raises(SystemExit, match=r"^error: \.tallmasks "):
        begin(None)
    workflow = SimpleNamespace(
        executor_plugin=SimpleNamespace(name="local"),
        resource_settings=SimpleNamespace(cores=1, nodes=1),
        dag_settings=SimpleNamespace(rerun_triggers={"mtime", "params"}),
    )
    with pytest.raises(WorkflowError, match=r"^profiles/default "):
        check_settings(workflow)


def test_without_a_core_nothing_waits(project: Project) -> None:
    """`-j0` would wait for ever, and hold up every other run."""
    project.benchmark("new", ["mnist", "dtd"])
    assert "-j0" in project.run("snakemake", "-j0", "--", TABLE, fails=True).output


def test_slurm_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs would be submitted to nobody, and the run would not even end on SIGTERM."""
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2; exit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(WorkflowError, match="Unable to contact slurm controller"):
        check_slurm(None, 1)


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
