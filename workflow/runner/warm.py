"""A warm Python for jobs: one process that has a network's libraries imported and forks a child for every job.

Importing torch and open_clip, for one, costs about ten seconds of CPU, a fine-tuning on the tiny model twenty, an
evaluation two.  So a Snakemake starts a server before its first job that needs torch.  Each job is a fork of it: the
same script, arguments, environment, folder and output streams, with the imports already there.  It makes jobs faster
and nothing else: without it (TALLMASKS_WARM=0, on a cluster, by hand) a job imports what it needs itself, and gives the
same bytes.

* It belongs to the Snakemake that started it, and the kernel kills it when that ends, however it ends.
* It serves the owner's descendants in the same namespaces and with the same rights, and no other process: one in a
  sandbox may well reach the socket, and would get things done outside.  The socket is a file in a folder of mode 700
  inside the project, made anew by each owner.
* Nobody waits for it longer than `PATIENCE` seconds: who has waited in vain takes the socket away, and imports himself.
  A job is sent to a fork that has said that it is ready: none runs twice.
* It runs nothing in its own process but imports of installed packages; the project's code is read by each child.  It
  never touches CUDA and starts no threads, so that forking is sound: a job on a GPU is the first to initialise it.
* A child dies with its client, kill -9 included.  It holds the client's locks on GPUs as long as it lives.
* It imports what the networks of the families at work need (`Family.imports`).  While no job comes, it imports what
  tables and figures need.

Many short Snakemakes that one process starts, as the tests do, can share one server: that process is the owner
(`warm.py FOLDER OWNER MODULES LATER`), and TALLMASKS_WARM names the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

PATIENCE = 120.0  # seconds; imports from a slow disk take half of it
FOLDER = Path(".tallmasks", "warm")
MOST_KEPT = 64  # descriptors beside its streams that a job takes along
READY = b"+"  # what a client hears when a fork waits for its job
RIGHTS = ("Uid:", "Gid:", "Groups:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@contextlib.contextmanager
def _address(where: Path) -> Iterator[str]:
    """The name of the socket in a folder, through /proc: a name holds 107 bytes, and a project's path may hold more.

    Raises OSError where there is no such folder, or it is not this user's alone.
    """
    descriptor = os.open(where, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise PermissionError(f"{where} is not this user's alone")
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def _belongs(connection: socket.socket, owner: int) -> bool:
    """Whether the process at the other end is the owner's, with the rights of this one."""
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        return _rights(pid) == _rights(os.getpid()) and owner in _ancestors(pid)
    except OSError:  # ended meanwhile
        return False


def _rights(pid: int) -> list[str]:
    process = Path("/proc", str(pid))
    status = [line for line in (process / "status").read_text().splitlines() if line.startswith(RIGHTS)]
    return status + [str((process / "ns" / name).readlink()) for name in ("mnt", "user", "pid", "net")]


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
        yield pid


# -- the client -------------------------------------------------------------------------------------------


def run(script: str, file: str, keep: Sequence[int] = ()) -> int | None:
    """Run `script` in a fork of the warm server, if there is one.  The fork holds the descriptors `keep` as well.

    Returns the script's exit status; None, with nothing run, where there is no server to be had.
    """
    wanted = os.environ.get("TALLMASKS_WARM", "1")
    if sys.platform != "linux" or wanted == "0":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        if not _connected(connection, Path(wanted) if "/" in wanted else FOLDER):
            return None
        job = {"script": script, "file": file, "environment": dict(os.environ), "folder": str(Path.cwd())}
        answer = b""
        with contextlib.suppress(OSError):  # the child died
            socket.send_fds(connection, [READY], [0, 1, 2, *keep])
            with connection.makefile("w") as request:
                request.write(json.dumps(job) + "\n")
            answer = connection.recv(4)
    if len(answer) < 4:
        print("error: the job's process died (out of memory, or killed); nothing half-written is kept", file=sys.stderr)
        return 137
    return int(struct.unpack("!i", answer)[0])


def _connected(connection: socket.socket, where: Path) -> bool:
    """Connect to a fork of the server that waits for a job, if there is one."""
    with contextlib.suppress(OSError), _address(where) as address:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(address)
            ready = connection.recv(len(READY)) == READY
        except TimeoutError:
            Path(address).unlink(missing_ok=True)  # so that no other job waits for it
            raise
        connection.settimeout(None)
        return ready
    return False


# -- the server -------------------------------------------------------------------------------------------


def serve(where: Path, owner: int, modules: Sequence[str], later: Sequence[str] = ()) -> None:
    """Serve the jobs of the owner, whose child this process is, until it ends.

    Imports `modules` first, and one of `later` whenever no job has come for a second.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        return
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        del os.environ[name]  # a job's, where a job started the owner; each fork sets its own
    if where.is_symlink():
        where.unlink()
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(mode=0o700, parents=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _address(where) as address:
        listener.bind(address)
    listener.listen(256)  # clients queue before it is ready
    print("listening", flush=True)  # for the owner
    with (where / "log").open("w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    for name in modules:
        _import(name)
    children: set[int] = set()
    waiting = list(later)
    while True:
        if select.select([listener], [], [], 1.0)[0]:
            connection, _ = listener.accept()
            with connection:
                if _belongs(connection, owner):
                    gc.freeze()  # a fork that looked for garbage in all that was imported would copy it
                    children.add(os.fork() or _fork(connection, listener))
        elif waiting:
            _import(waiting.pop(0))
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


def _import(name: str) -> None:
    """Import a module; of Numba also what it looks up before it compiles, as each job would for its first kernel."""
    module = importlib.import_module(name)
    if name == "numba":
        module.njit(lambda: None).compile(())


def _fork(connection: socket.socket, listener: socket.socket) -> int:
    """In the fork: run the client's job, and end."""
    listener.close()
    status = 1
    try:
        status = _job(connection)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(struct.pack("!i", status))
        os._exit(status)


def _job(connection: socket.socket) -> int:
    os.setsid()
    connection.sendall(READY)
    begun, descriptors, _, _ = socket.recv_fds(connection, len(READY), 3 + MOST_KEPT)
    if not begun:
        return 1  # the client has gone another way
    with connection.makefile() as request:
        job = json.loads(request.readline())
    for stream, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    threading.Thread(target=_die_with, args=(connection,), daemon=True).start()
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    search_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    script = Path(job["script"]).resolve()  # of the project that the job is of, which may be another than the server's
    sys.path[:0] = [str(script.parent), str(script.parents[1] / "runner"), *search_path]
    return int(importlib.import_module("job").run_here(job["script"], job["file"]))


def _die_with(connection: socket.socket) -> None:
    """A client sends nothing more, so anything readable is its end."""
    select.select([connection], [], [])
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), *(names.split() for names in sys.argv[3:]))
