"""kill -9 at random moments: a plain rerun always finishes, with the same bytes as a run that nobody disturbed."""

import os
import random
import signal
import subprocess
import time

from project import Project

KILLS = 24
LONGEST_SECONDS = 8.0
RUNNING = "another snakemake is running in this folder; wait until it ends"


def forget_some(project: Project, draw: random.Random) -> None:
    """Delete about half of what can be made again, and one of the tables."""
    for path in sorted(project.path("store").rglob("*-s0-*")):
        if draw.random() < 0.5:
            path.unlink()
    project.path("results/tiny", draw.choice(["two", "three"]), "table.csv").unlink(missing_ok=True)


COMMANDS = (("snakemake", "-j2", "--", "all"), ("dvc", "repro"))


def test_a_plain_rerun_recovers_from_any_kill(project: Project) -> None:
    """A night's run would be lost to a crash, or worse, go on from half a file."""
    draw, killed = random.Random(KILLS), 0
    before = project.sha256("store", "results")
    while killed < KILLS:
        forget_some(project, draw)
        command, alone = COMMANDS[killed % 2], killed % 4 < 2
        process = project.start(*command, stdout=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.5, LONGEST_SECONDS))
        if process.poll() is None:
            if alone:  # its jobs must not go on beside those of the next run
                process.kill()
            else:  # as the kernel does when a session's memory limit is reached
                os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        lock = project.path(".dvc/tmp/rwlock")
        if lock.is_file() and not lock.read_text():  # DVC does not write it atomically: docs/troubleshooting.md
            lock.unlink()
        while (run := project.run(*command, check=False)).status and RUNNING in run.output:
            time.sleep(1)  # of a killed `dvc repro`, Snakemake goes on
        assert run.status == 0, run.output
        assert "--unlock" not in run.output and "IncompleteFiles" not in run.output
    assert project.dvc("repro").status == 0
    after = project.sha256("store", "results")
    assert {path: content for path, content in after.items() if not path.endswith(".tmp")} == before
    assert project.up_to_date()
    project.tallmasks("gc", "--yes")
    assert project.sha256("store", "results") == before
