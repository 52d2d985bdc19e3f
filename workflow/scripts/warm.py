"""A warm Python for jobs: one process that has torch and open_clip imported and forks a child for every job.

Importing torch and open_clip costs about ten seconds of CPU, a fine-tuning on the tiny model twenty, an evaluation
two.  On a laptop the imports would be most of the work, so the first job that needs torch starts a server in the
background, and each job is a fork of it: the same script, arguments, environment, folder and output streams, with the
imports already there.  Jobs that need no torch are forks of it where it runs.  The server is an accelerator and
nothing else: without it (TALLMASKS_WARM=0, on a cluster, for GPU jobs) a job imports what it needs itself and gives
the same bytes.

* One server per user, Python, niceness, CPU set and limits, shared by all copies of the project; it leaves 60 s after
  its last job.  Server and clients make sure that the other end is of the same user.
* It runs nothing in its own process but imports of installed packages; the project's code is read by each child, so
  an edit takes effect with the next job.
* A child watches its client's connection and dies with it: kill -9 of a job or of Snakemake leaves nothing behind.
* It never touches CUDA and starts no threads, so that forking is sound.
* What tables and figures need is imported when no job has come for a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

IDLE_SECONDS = 60.0
PRELOADED = ("numpy", "torch", "torch._dynamo", "open_clip", "numba", "safetensors")
WHEN_IDLE = ("pandas", "matplotlib.pyplot", "scipy.stats", "scipy.cluster.hierarchy")  # for tables and figures
SCRATCH = Path(".tallmasks")
BEGUN = b"+"  # what a client hears when its job starts


def _address() -> str:
    """An abstract socket name: it vanishes with its process, so there is no stale file to clean up."""
    key = "|".join([sys.executable, *_search_path()[1], *_surroundings()])
    return "\0tallmasks-warm-" + hashlib.sha256(key.encode()).hexdigest()[:20]


def _surroundings() -> list[str]:
    """What a fork takes over from the server although it is another's: only clients with the same share a server."""
    status = Path("/proc/self/status").read_text().splitlines()
    own = ("Uid:", "Gid:", "Groups:", "Umask:", "Cpus_allowed:")
    return [
        *(line for line in status if line.startswith(own)),
        *(Path("/proc/self", name).read_text() for name in ("limits", "cgroup")),
        str(Path("/proc/self/ns/mnt").readlink()),
        f"nice {os.nice(0)}",
    ]


def _search_path() -> tuple[list[str], list[str]]:
    """PYTHONPATH's folders in this copy of the project, which a job imports from, and the others, which all share."""
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    ours = [folder for folder in folders if Path(folder).is_relative_to(Path.cwd())]
    return ours, [folder for folder in folders if folder not in ours]


def _same_user(connection: socket.socket) -> bool:
    """Whether the other end is of this user: an abstract socket has no file permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def wanted() -> bool:
    """Whether a job should look for the warm server: only on Linux, on this machine, with no GPU leased."""
    return sys.platform == "linux" and os.environ.get("TALLMASKS_WARM", "1") != "0" and "SLURM_JOB_ID" not in os.environ


# -- the client -------------------------------------------------------------------------------------------


def run(script: str, arguments: list[str], start: bool) -> int | None:
    """Run `script` in a fork of the warm server; if there is none, start it where `start` says so.

    Returns the script's exit status; None, with nothing run, where there is no server to be had.
    """
    connection = _connect() if start else _try_connect()
    if connection is None:
        return None
    request = json.dumps(
        {"script": script, "arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
    ).encode()
    with connection:
        try:
            socket.send_fds(connection, [struct.pack("!I", len(request))], [0, 1, 2])
            connection.sendall(request)
            begun = connection.recv(len(BEGUN))
        except OSError:
            return None
        if begun != BEGUN:
            return None
        answer = connection.recv(4)
    if len(answer) < 4:
        print(
            "error: the job's process died (out of memory, or killed); nothing half-written is kept",
            file=sys.stderr,
        )
        return 137
    return int(struct.unpack("!i", answer)[0])


def _connect() -> socket.socket | None:
    connection = _try_connect()
    if connection is not None:
        return connection
    SCRATCH.mkdir(exist_ok=True)
    with (SCRATCH / "warm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one client of a copy starts the server, the others wait
        connection = _try_connect()
        if connection is None:
            server = _start_server()
            while connection is None and server.poll() is None:
                time.sleep(0.02)
                connection = _try_connect()
    return connection or _try_connect()  # the server of another copy may have been faster


def _try_connect() -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(_address())
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        return None
    if not _same_user(connection):
        connection.close()
        return None
    return connection


def _start_server() -> subprocess.Popen[bytes]:
    """Start the server in a session of its own, free of the first job's thread limits: each fork sets its own."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment["PYTHONPATH"] = os.pathsep.join(_search_path()[1])
    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    with (SCRATCH / "warm.log").open("w") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )


# -- the server -------------------------------------------------------------------------------------------


def serve() -> None:
    """Accept jobs until none has run for `IDLE_SECONDS`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(_address())
    except OSError:
        return  # another server was faster
    listener.listen(256)  # clients may queue before it is ready
    for name in PRELOADED:
        importlib.import_module(name)
    print(f"ready: process {os.getpid()}", flush=True)
    children: set[int] = set()
    later = list(WHEN_IDLE)
    last = time.monotonic()
    while children or time.monotonic() - last < IDLE_SECONDS:
        ready, _, _ = select.select([listener], [], [], 1.0)
        if ready:
            connection, _ = listener.accept()
            if _same_user(connection):
                children.add(_fork(connection, listener))
            connection.close()
        elif later:
            importlib.import_module(later.pop(0))
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.discard(child)
                last = time.monotonic()


def _fork(connection: socket.socket, listener: socket.socket) -> int:
    child = os.fork()
    if child:
        return child
    listener.close()
    status = 1
    try:
        status = _child(connection)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(struct.pack("!i", status))
        os._exit(status)


def _child(connection: socket.socket) -> int:
    """In the fork: become the job."""
    os.setsid()
    header, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    (size,) = struct.unpack("!I", header)
    request = b""
    while len(request) < size:
        piece = connection.recv(size - len(request))
        if not piece:
            return 1  # the client is gone already
        request += piece
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    threading.Thread(target=_die_with, args=(connection,), daemon=True).start()
    job = json.loads(request)
    connection.sendall(BEGUN)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.argv = [job["script"], *job["arguments"]]
    sys.path[:0] = [str(Path(job["script"]).resolve().parent), *_search_path()[0]]
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _die_with(connection: socket.socket) -> None:
    """A client sends nothing more, so anything readable is its end."""
    select.select([connection], [], [])
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    serve()
