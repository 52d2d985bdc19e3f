"""A slurm cluster of one machine, on loopback: munged, slurmctld and slurmd of the user who runs the tests."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import wait_for

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
    names = [name for name in PROGRAMS if not shutil.which(name, path=_path())]
    if names:
        return f"no {', '.join(names)}: .ci/install-programs"
    return "" if PLUGIN.is_dir() else f"no slurm plugin for snakemake in {PLUGIN}: `make test` puts it there"


def _path() -> str:
    """The tests' own, with the tests' Python first, and the folders of daemons, which a user's own may lack."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin"])


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster with its files in `folder`; yields the environment for its commands."""
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    configuration = folder / "slurm.conf"
    host = socket.gethostname().split(".")[0]
    ports = _free_ports()
    configuration.write_text(CONFIGURATION.format(folder=folder, host=host, ports=ports, user=getpass.getuser()))
    # slurm's own variables do not reach an srun within a job (the plugin drops them)
    (folder / "bin" / "srun").write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which("srun")} "$@"\n')
    (folder / "bin" / "srun").chmod(0o755)
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{_path()}",
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
    daemons = []
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("w") as output:
                daemons.append(
                    subprocess.Popen(
                        command, env={**os.environ, **environment}, stdout=output, stderr=output, start_new_session=True
                    )
                )
            if command[0] == "munged":
                wait_for((folder / "munge.socket").exists)
        wait_for(lambda: "idle" in _said(["sinfo", "-h", "-o", "%t"], environment))
        yield environment
    finally:
        _said(["scancel", "--user", getpass.getuser()], environment)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _said(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    return done.stdout
