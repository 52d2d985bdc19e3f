"""A warm Python for jobs: one process that has a network's libraries imported and forks a child for every job.

Importing torch and open_clip, for one, costs about ten seconds of CPU, a fine-tuning on the tiny model twenty, an
evaluation two.  On a laptop the imports would be most of the work, so a Snakemake starts a server before its first job
that needs torch, and each job is a fork of it: the same script, arguments, environment, folder and output streams, with
the imports already there.  The server is an accelerator and nothing else: without it (TALLMASKS_WARM=0, on a cluster,
by hand) a job imports what it needs itself and gives the same bytes.

* **A server per owner, and it dies with it.**  The owner is the Snakemake that started it; the kernel kills the server
  when the owner ends, however it ends.
* **Only the owner's jobs are served.**  Each end looks at the process at the other end, by a descriptor that cannot
  come to mean another process: it descends from the owner, or is the server that the owner started, and it has the
  same user, namespaces, capabilities, filters (seccomp, no-new-privileges), control group and limits.  So a process of
  the same user in a sandbox gets nothing done outside of it.  It may well reach the socket, even where the store is
  mounted read-only for it, since connecting writes no file: so file permissions alone would not do, nor would a secret
  in the environment, which /proc shows to every process of the user.
* **Nobody waits for it in vain.**  The socket is a file in a folder of mode 700 inside the project, made anew by each
  owner, so no name can be taken beforehand.  One who listens there and neither answers nor computes (a stopped server,
  another process) is left after `SILENT_SECONDS`, one who never answers after `LONGEST_SECONDS`, and the job imports
  what it needs itself.  A job begins when the client has sent it, which it does to a fork that has said that it is
  ready: none runs twice.
* A socket's address holds 107 bytes, a project's path more: the address goes through an open folder in /proc/self/fd.
* It runs nothing in its own process but imports of installed packages; the project's code is read by each child, so
  an edit takes effect with the next job.
* A child watches its client's connection and dies with it: kill -9 of a job or of Snakemake leaves nothing behind.
* It never touches CUDA and starts no threads, so that forking is sound: a job on a GPU is the first to initialise it.
* A job's locks on its GPUs are held by its fork too, so that a GPU is free only when nothing computes on it any more.
* What it imports is what the families of the models say that their networks need (`Family.imports`), and then what
  tables and figures need, while no job comes.

Many short Snakemakes that one process starts, as the tests do, can share one import of torch: that process is the owner
(`warm.py FOLDER OWNER MODULES LATER`), and TALLMASKS_WARM names the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SILENT_SECONDS = 10.0
LONGEST_SECONDS = 600.0
FOLDER = Path(".tallmasks", "warm")
MOST_KEPT = 64  # descriptors beside its streams that a job takes along
LISTENING = "listening"  # what the owner reads when the server can be connected to
READY = b"+"  # what a client hears when a fork waits for its job
NAMESPACES = ("mnt", "user", "pid", "net")
STATUS = ("Uid:", "Gid:", "Groups:", "Umask:", "Cpus_allowed:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SO_PEERPIDFD = 77  # asm-generic/socket.h; Linux 6.5


def folder() -> Path | None:
    """Where jobs look for a server; None where they do not."""
    wanted = os.environ.get("TALLMASKS_WARM", "1")
    if sys.platform != "linux" or wanted == "0" or "SLURM_JOB_ID" in os.environ:
        return None
    return Path(wanted) if "/" in wanted else FOLDER


# -- who is at the other end ------------------------------------------------------------------------------


@contextlib.contextmanager
def _address(where: Path) -> Iterator[str]:
    """The name of the socket in a folder; OSError where there is no such folder, or it is not this user's alone."""
    descriptor = os.open(where, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{where} is not this user's alone")
        yield f"/proc/self/fd/{descriptor}/socket"
    finally:
        os.close(descriptor)


def _peer(connection: socket.socket) -> int | None:
    """The process at the other end; None unless it lives in the same surroundings as this one."""
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        try:
            held = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
        except OSError:
            held = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        same = _surroundings(pid) == _surroundings(os.getpid())
        alive = not select.select([held], [], [], 0)[0]  # then what its number led to was read of it
    except OSError:
        return None
    finally:
        os.close(held)
    return pid if same and alive else None


def _surroundings(pid: int) -> list[str]:
    """What a process may do, and what a fork takes over from the server although it is another's."""
    process = Path("/proc", str(pid))
    return [
        *(line for line in (process / "status").read_text().splitlines() if line.startswith(STATUS)),
        *((process / name).read_text() for name in ("limits", "cgroup")),
        *(str((process / "ns" / name).readlink()) for name in NAMESPACES),
        f"nice {_stat(pid)[16]}",
    ]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on, which follows the name."""
    return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _descends(pid: int, owner: int) -> bool:
    """Whether a process was started by the owner, or by one that was."""
    with contextlib.suppress(OSError):  # ended meanwhile
        while pid > 1:
            pid = _parent(pid)
            if pid == owner:
                return True
    return False


# -- the client -------------------------------------------------------------------------------------------


def run(script: str, arguments: list[str], keep: Sequence[int] = ()) -> int | None:
    """Run `script` in a fork of the warm server, if there is one.  The fork holds the descriptors `keep` as well.

    Returns the script's exit status; None, with nothing run, where there is no server to be had.
    """
    connection = _connect()
    if connection is None:
        return None
    request = json.dumps(
        {"script": script, "arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
    ).encode()
    answer = b""
    with connection, contextlib.suppress(OSError):  # the child died
        socket.send_fds(connection, [struct.pack("!I", len(request))], [0, 1, 2, *keep])
        connection.sendall(request)
        answer = connection.recv(4)
    if len(answer) < 4:
        print("error: the job's process died (out of memory, or killed); nothing half-written is kept", file=sys.stderr)
        return 137
    return int(struct.unpack("!i", answer)[0])


def _connect() -> socket.socket | None:
    """A connection to a fork of the server that waits for a job."""
    where = folder()
    if where is None:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(where) as address:
            connection.settimeout(SILENT_SECONDS)  # as long as its queue is full
            connection.connect(address)
        connection.settimeout(None)
        server = _peer(connection)
        if server and _descends(os.getpid(), _parent(server)) and _answers(connection, server):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _answers(connection: socket.socket, server: int) -> bool:
    """Wait for a fork as long as the server lives and computes: it answers nobody while it imports."""
    begun = computed = time.monotonic()
    known: list[str] = []
    while (now := time.monotonic()) < min(begun + LONGEST_SECONDS, computed + SILENT_SECONDS):
        if select.select([connection], [], [], 0.5)[0]:
            return connection.recv(len(READY)) == READY
        spent = _stat(server)[11:13]  # its time on a processor
        known, computed = spent, (computed if spent == known else now)
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
    print(LISTENING, flush=True)
    log = os.open(where / "log", os.O_WRONLY | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    for name in modules:
        importlib.import_module(name)
    children: set[int] = set()
    waiting = list(later)
    while True:
        if select.select([listener], [], [], 1.0)[0]:
            connection, _ = listener.accept()
            client = _peer(connection)
            if client and _descends(client, owner):
                children.add(_fork(connection, listener))
            connection.close()
        elif waiting:
            importlib.import_module(waiting.pop(0))
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}


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
    connection.sendall(READY)
    header, descriptors, _, _ = socket.recv_fds(connection, 4, 3 + MOST_KEPT)
    if len(header) < 4:
        return 1  # the client has gone another way
    (size,) = struct.unpack("!I", header)
    request = b""
    while len(request) < size:
        piece = connection.recv(size - len(request))
        if not piece:
            return 1
        request += piece
    for stream, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    threading.Thread(target=_die_with, args=(connection,), daemon=True).start()
    job = json.loads(request)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.argv = [job["script"], *job["arguments"]]
    search_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    script = Path(job["script"]).resolve()  # of the project that the job is of, which may be another than the server's
    sys.path[:0] = [str(script.parent), str(script.parents[1] / "runner"), *search_path]
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
    serve(Path(sys.argv[1]), int(sys.argv[2]), *(names.split() for names in sys.argv[3:]))
