"""The chain on a real slurm cluster of one machine, with a job killed by scancel on the way."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from project import Project
from slurm import cluster, lacking

TARGET = "results/tiny/two/table.csv"
# seconds instead of minutes between looks at the queue, no account, and no more CPUs than this cluster has
OPTIONS = (
    "--profile", "profiles/slurm", "--cores", "2", "--verbose", "--slurm-no-account",
    "--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2",
)  # fmt: skip
TELL = """
import os, sys
def tell():
    if sys.argv[0].endswith("warm.py"):
        open("told", "a").write(f"{'numba' in sys.modules}\\n")
os.register_at_fork(after_in_child=tell)
"""
"""As sitecustomize: each fork of a warm Python says whether its libraries were imported."""


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_a_table_comes_out_of_slurm_although_a_job_was_cancelled(project: Project, tmp_path: Path) -> None:
    """On a cluster, a preempted job would end the run, or thousands of tiny jobs would queue for days."""
    before = project.sha256("store", "results")
    for path in project.path("store/tiny").rglob("*"):
        if re.search(r"finetune/svhn|task_vector/svhn|fine_tuned-svhn|-2tasks-s0", str(path)):
            path.unlink()
    project.path(TARGET).unlink()
    (tmp_path / "sitecustomize.py").write_text(TELL)
    with cluster(tmp_path / "cluster") as environment:
        path = f"{tmp_path}:{environment['PYTHONPATH']}"
        on_cluster = Project(project.root, {**environment, "PYTHONPATH": path, "TALLMASKS_WARM": ""})

        def refused(*options: str) -> str:
            return on_cluster.run("snakemake", *OPTIONS, *options, "--", TARGET, fails=True).output

        assert "--cores 2" in refused("--cores", "4")
        assert "--partition=nowhere" in refused("--default-resources", "slurm_partition=nowhere")
        on_cluster.change(lambda params: params["models"]["tiny"]["resources"]["arrays"].update(mem_mb=90000))
        assert "--mem=" in refused()
        on_cluster.git("checkout", "-q", "params.yaml")
        on_cluster.change(lambda params: params.update(longest_job=30))
        assert "longest_job" in refused()
        on_cluster.git("checkout", "-q", "params.yaml")
        assert "--slurm-status-command squeue" in refused(), "there is no accounting"
        process = on_cluster.start("snakemake", *OPTIONS, "--slurm-status-command", "squeue", "--", TARGET)
        cancelled = cancel_the_first(environment, process)
        output, _ = process.communicate()
    assert process.returncode == 0, output
    submitted = re.findall(r"sbatch call: sbatch .* --comment (\S+)", output)
    assert cancelled and len(submitted) < 10, "10 steps are bundled"
    forks = project.path("told").read_text().split()
    assert len(forks) >= 10 and set(forks) == {"True"}, "every step is a fork of what has imported its libraries"
    assert project.sha256("store", "results") == before


def cancel_the_first(environment: dict[str, str], process: subprocess.Popen[str]) -> str | None:
    """scancel the first job that runs; its number, or None where `process` ends before there is one."""
    while process.poll() is None:
        listed = ["squeue", "-h", "-t", "RUNNING", "-o", "%A"]
        running = subprocess.run(listed, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        if number := running.stdout.partition("\n")[0]:
            time.sleep(3)  # it has begun to work
            subprocess.run(["scancel", number], env={**os.environ, **environment}, check=True)
            return number
        time.sleep(0.2)
    return None
