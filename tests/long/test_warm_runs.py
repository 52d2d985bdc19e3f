"""The warm Python under a real Snakemake: it dies with it, and changes nothing but the time."""

import subprocess
from pathlib import Path

from processes import gone, wait_for
from project import Project, lay_out
from tallmasks.plan import chain
from tallmasks.plan.project import open_plan


def test_a_snakemake_has_its_own_and_kill_9_leaves_neither(tmp_path: Path) -> None:
    """A server would stay when its Snakemake is gone, or jobs would import torch one by one."""
    laid_out = lay_out(tmp_path / "project")
    laid_out.replace(
        "workflow/scripts/head.py",
        "def run(job: Job) -> None:\n",
        "def run(job: Job) -> None:\n    import os, time\n\n"
        "    os.write(os.open('told', os.O_WRONLY | os.O_CREAT), f'{os.getpid()} {os.getppid()}\\n'.encode())\n"
        "    time.sleep(600)\n",
    )
    own = Project(laid_out.root, {"TALLMASKS_WARM": ""})
    head = chain.head(open_plan(own.root), "tiny", "dtd").path
    told = own.path("told")
    snakemake = own.start("snakemake", "-j2", "--", head, stdout=subprocess.DEVNULL)
    wait_for(lambda: told.exists() and told.read_text().endswith("\n"))
    job, server = map(int, told.read_text().split())
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
    assert jobs == {"finetune": 1, "evaluate": 1, "head": 1}
    assert project.sha256("store", "results") == before
