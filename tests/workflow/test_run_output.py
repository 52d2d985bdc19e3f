"""What a run prints for people beside Snakemake's own lines, and how it ends when it is told to."""

import fcntl
import os
import signal
import time

from processes import wait_for
from project import Project

TABLE = "results/tiny/two/table.csv"


def test_ctrl_c_says_last_that_nothing_is_lost(project: Project) -> None:
    """A user would read that the workflow failed; a second Ctrl-C would print a traceback."""
    project.benchmark("new", ["cars", "gtsrb", "mnist"])
    process = project.start("snakemake", "results/tiny/new/table.csv")
    wait_for(lambda: any(project.path("logs/tiny/finetune").glob("cars-*.log")) or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode and "Traceback" not in output
    assert output.strip().splitlines()[-1].startswith("Interrupted. Nothing is lost")
    assert project.run("snakemake", "results/tiny/new/table.csv").jobs["tables"] == 1


def test_a_log_has_a_line_for_each_job_and_the_result(project: Project) -> None:
    """Somebody who runs it in the background could not tell how far it is, or where the table is."""
    output = project.run("snakemake", "-f", "--", TABLE).output.splitlines()
    assert "1 of 1 jobs, about 0 s left: tables tiny two" in output and TABLE in output


def test_a_run_that_waits_for_another_ends_at_once(project: Project) -> None:
    """It would survive SIGTERM for as long as the other one runs."""
    with project.path(".tallmasks/writer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in (signal.SIGTERM, signal.SIGINT):
            process = project.start("snakemake", "-f", "--", TABLE)
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            assert any("Another snakemake is at work" in line for line in lines)
            process.send_signal(number)
            rest, _ = process.communicate(timeout=60)
            assert process.returncode == -number and not rest
