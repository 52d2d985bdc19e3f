"""The warm Python under a real Snakemake: it dies with it, and changes nothing but the time."""

import re
import subprocess
from pathlib import Path

from processes import gone, wait_for
from project import Project


def begun(project: Project) -> list[int]:
    """The process of the job that waits, and its parent."""
    said = "".join(path.read_text() for path in project.root.glob("logs/tiny/merge/held-*.log"))
    return [int(number) for found in re.findall(r"^begun (\d+) (\d+)\n", said, re.M)[:1] for number in found]


def test_a_snakemake_has_its_own_and_kill_9_leaves_neither(project: Project) -> None:
    """A server would stay when its Snakemake is gone, or jobs would import torch one by one."""
    project.add_held()
    project.path("wait").touch()
    own = Project(project.root, {"TALLMASKS_WARM": ""})
    snakemake = own.start("snakemake", "-j2", "--", "results/tiny/two/table.csv", stdout=subprocess.DEVNULL)
    wait_for(lambda: begun(own) != [])
    job, server = begun(own)
    stat = Path("/proc", str(server), "stat").read_text().rpartition(")")[2].split()
    assert int(stat[1]) == snakemake.pid
    assert "warm.py" in Path("/proc", str(server), "cmdline").read_text()
    snakemake.kill()
    snakemake.wait(600)
    wait_for(lambda: gone(server) and gone(job))


def test_without_it_the_same_bytes_come_out(project: Project) -> None:
    """Results would depend on how a job was started."""
    before = project.sha256("store", "results")
    made = ["checkpoints/finetune/mnist-s0-*", "derived/evaluate/task_arithmetic-2tasks-*", "head/dtd-*"]
    targets = [project.one(f"store/tiny/{pattern}") for pattern in made]
    for path in targets:
        path.unlink()
    cold = Project(project.root, {"TALLMASKS_WARM": "0"})
    jobs = cold.snakemake(*(str(path.relative_to(project.root)) for path in targets)).jobs
    assert jobs.keys() == {"finetune", "evaluate", "head"}
    assert project.sha256("store", "results") == before
