"""What a run prints, and how it ends: failure, interruption, another run in the same folder."""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from processes import gone, wait_for
from project import ROOT, Project

COMMAND = ("snakemake", "-j2", "--", "results/tiny/two/table.csv", "results/tiny/three/table.csv")


def logs_of_jobs(project: Project) -> list[Path]:
    return [path for path in project.root.glob("logs/tiny/merge/held-*.log") if path.stat().st_size]


def processes(project: Project) -> set[int]:
    """The jobs that have begun to wait, and the warm Python that they are forks of."""
    said = " ".join(path.read_text() for path in logs_of_jobs(project))
    return {int(number) for both in re.findall(r"begun (\d+) (\d+)", said) for number in both}


def ctrl_c(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)


def end_at_work(project: Project, end: Callable[[subprocess.Popen[str]], None]) -> str:
    """Start a run with a warm Python of its own, end it when two jobs are at work, and see all of it gone; what it
    said."""
    for log in logs_of_jobs(project):
        log.unlink()
    process = Project(project.root, {"TALLMASKS_WARM": ""}).start(*COMMAND)
    wait_for(lambda: len(processes(project)) == 3 or process.poll() is not None)
    end(process)
    output, _ = process.communicate(timeout=120)
    assert process.returncode and len(processes(project)) == 3, output
    wait_for(lambda: all(map(gone, processes(project))))
    return output


def test_a_failure_is_said_in_few_words_and_an_ended_run_leaves_no_job(project: Project) -> None:
    """The reason, and what to call next, would be lost in what Snakemake and Python print; or a job go on alone."""
    shutil.copy(ROOT / "profiles/default/config.yaml", project.path("profiles/default"))
    project.add_held()
    project.path("wait").touch()
    end_at_work(project, ctrl_c)
    end_at_work(project, subprocess.Popen.kill)
    project.path("wait").rename(project.path("fail"))
    output = project.run(*COMMAND, fails=True).output
    assert '"recipe"' not in output and "Traceback" not in output
    error, alone = logs_of_jobs(project)[0].read_text().splitlines()
    assert error == "error: no room; make some" and output.count(error) == 2, "two jobs failed for that"
    project.path("fail").unlink()
    project.run(*shlex.split(alone.removeprefix("This job alone: ")))
    output = project.run(*COMMAND).output
    assert re.search(r"merge +1 ", output), "the one that was run alone is not run again"
    assert re.search(r"^(\d+) of \1 jobs: tables tiny", output, re.M) and set(COMMAND[-2:]) <= set(output.splitlines())
    assert len(output.splitlines()) < 60 and "\033" not in output


def test_a_second_run_ends_and_says_why(project: Project) -> None:
    """Two runs would write one file; or the second make again what the first has made."""
    table = project.path("results/tiny/two/table.csv")
    table.unlink()
    with project.path(".tallmasks/writer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = project.snakemake("results/tiny/two/table.csv", fails=True)
        assert "another snakemake is running in this folder" in run.output.strip().splitlines()[-1]
        assert "Traceback" not in run.output and not run.jobs and not table.exists()
    assert project.snakemake("results/tiny/two/table.csv").jobs
