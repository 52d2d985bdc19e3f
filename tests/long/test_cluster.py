"""The chain on a real slurm cluster with a job killed by scancel on the way.

The cluster is one machine, on loopback: munged, slurmctld and slurmd of the user who runs the tests.
"""

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processes import wait_for
from project import Project

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "sinfo")
PLUGIN = Path(sys.prefix) / "slurm"  # where `make test-long` puts Snakemake's plugin, apart from what other tests use

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=60000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    """What a cluster needs and this machine does not have; empty if nothing."""
    names = [name for name in PROGRAMS if not shutil.which(name, path=search_path())]
    if names:
        return f"no {', '.join(names)}: .ci/install-programs"
    return "" if PLUGIN.is_dir() else f"no slurm plugin for snakemake in {PLUGIN}: `make test-long` puts it there"


def search_path() -> str:
    """The tests' own, with the tests' Python first, and the folders of daemons, which a user's own may lack."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"])


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster with its files in `folder`; yields the environment for its commands."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    configuration = folder / "slurm.conf"
    host = socket.gethostname().split(".")[0]
    ports = free_ports()
    configuration.write_text(CONFIGURATION.format(folder=folder, host=host, ports=ports, user=getpass.getuser()))
    # slurm's own variables do not reach an srun within a job (the plugin drops them)
    (folder / "bin" / "srun").write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which("srun")} "$@"\n')
    (folder / "bin" / "srun").chmod(0o755)
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{search_path()}",
        "PYTHONPATH": str(PLUGIN),
        "SLURM_CONF": str(configuration),
    }
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge = {"key-file": key} | {f"{name}-file": folder / f"munge.{name}" for name in ("pid", "log", "seed")}
    munge["socket"] = folder / "munge.socket"
    commands = [
        ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in munge.items())],
        ["slurmctld", "-D", "-c", "-f", str(configuration)],
        ["slurmd", "-D", "-c", "-f", str(configuration), "-N", host],
    ]
    daemons, both = [], {**os.environ, **environment}
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("w") as out:
                daemons.append(subprocess.Popen(command, env=both, stdout=out, stderr=out, start_new_session=True))
            if command[0] == "munged":
                wait_for((folder / "munge.socket").exists)
        wait_for(lambda: "idle" in said(["sinfo", "-h", "-o", "%t"], environment))
        yield environment
    finally:
        said(["scancel", "--user", getpass.getuser()], environment)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)


def free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True).stdout


TARGET = "results/tiny/two/table.csv"
# seconds instead of minutes between looks at the queue, no account, and no more CPUs than this cluster has
OPTIONS = (
    "--profile", "profiles/slurm", "--cores", "2", "--verbose", "--slurm-no-account",
    "--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2",
)  # fmt: skip


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_a_table_comes_out_of_slurm_although_a_job_was_cancelled(project: Project, tmp_path: Path) -> None:
    """On a cluster, a preempted job would end the run, or thousands of tiny jobs would queue for days."""
    before = project.sha256("store", "results")
    for path in project.path("store/tiny").rglob("*"):
        if re.search(r"finetune/svhn|task_vector/svhn|fine_tuned-svhn|-2tasks-s0", str(path)):
            path.unlink()
    project.path(TARGET).unlink()
    with cluster(tmp_path / "cluster") as environment:
        on_cluster = Project(project.root, {**environment, "TALLMASKS_WARM": ""})
        refused = on_cluster.run("snakemake", *OPTIONS, "--", TARGET, fails=True).output
        assert "--slurm-status-command squeue" in refused, "there is no accounting"
        process = on_cluster.start("snakemake", *OPTIONS, "--slurm-status-command", "squeue", "--", TARGET)
        cancelled = cancel_the_first(environment, process)
        output, _ = process.communicate()
    assert process.returncode == 0, output
    submitted = re.findall(r"sbatch call: sbatch .* --comment (\S+)", output)
    assert cancelled and len(submitted) < 10, "10 steps are bundled"
    assert project.sha256("store", "results") == before


def cancel_the_first(environment: dict[str, str], process: subprocess.Popen[str]) -> str | None:
    """scancel the first job that runs; its number, or None where `process` ends before there is one."""
    while process.poll() is None:
        running = said(["squeue", "-h", "-t", "RUNNING", "-o", "%A"], environment)
        if number := running.partition("\n")[0]:
            time.sleep(3)  # it has begun to work
            said(["scancel", number], environment)
            return number
        time.sleep(0.2)
    return None
