"""Run a job in a fork of a Python that has the large libraries: importing torch takes longer than a small model's job.

    python workflow/runner/warm.py workflow/scripts/evaluate.py JOB

A Snakemake that runs jobs on this machine starts a server before the first of them, which ends with it.  Where there is
none the job runs in this process.  So it is on a cluster and with TALLMASKS_WARM=0, with the same bytes.

The server imports installed packages alone, starts no threads and never touches CUDA, so that forking is sound.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
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
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 120.0  # seconds; imports from a slow disk take half of it
FOLDER = Path(os.environ.get("TALLMASKS_WARM", ".tallmasks/warm"))
READY = b"+"  # what a client hears when a fork waits for its job


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, kill -9 included."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback


def in_fork(arguments: Sequence[str]) -> int | None:
    """Run a script in a fork of the server; its exit status, or None, with nothing run, where no server answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(str(FOLDER / "socket"))
            if connection.recv(len(READY)) != READY:
                return None
        except OSError:
            return None
        connection.settimeout(None)
        job = {"arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
        answer = b""
        with contextlib.suppress(OSError):  # the child died
            socket.send_fds(connection, [READY], [0, 1, 2])
            with connection.makefile("w") as request:
                request.write(json.dumps(job) + "\n")
            answer = connection.recv(4)
    if len(answer) < 4:
        print("error: the job's process died (out of memory, or killed); nothing half-written is kept", file=sys.stderr)
        return 137
    return int(struct.unpack("!i", answer)[0])


def here(arguments: Sequence[str]) -> None:
    """Run a script in this process, as `python` would."""
    sys.argv, sys.path[0] = list(arguments), str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


def serve(modules: Sequence[str], later: Sequence[str]) -> None:
    """Serve this user's jobs; imports `modules` first, and one of `later` whenever no job has come for a second."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700, parents=True)
    listener, waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), list(later)
    listener.bind(str(FOLDER / "socket"))
    listener.listen(256)  # clients queue before it is ready
    print("listening", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in modules:
        importlib.import_module(name)
    while True:
        if waiting and not select.select([listener], [], [], 1.0)[0]:
            importlib.import_module(waiting.pop(0))
            continue
        connection, _ = listener.accept()
        gc.freeze()  # a fork that looked for garbage in all that was imported would copy it
        if not os.fork():
            listener.close()
            answer(connection)
        connection.close()


def answer(connection: socket.socket) -> None:
    """In the fork: run the client's job, and end; also when the client ends."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        connection.sendall(READY)
        _, streams, _, _ = socket.recv_fds(connection, len(READY), 3)
        with connection.makefile() as request:
            job = json.loads(request.readline())
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        threading.Thread(target=end_with_client, args=(connection,), daemon=True).start()
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        here(job["arguments"])
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(struct.pack("!i", status))
        os._exit(status)


def end_with_client(connection: socket.socket) -> None:
    """A client sends nothing more, so anything readable is its end."""
    select.select([connection], [], [])
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] == "--serve":
        serve(*(names.split() for names in sys.argv[2:]))
    elif (status := in_fork(sys.argv[1:])) is None:
        here(sys.argv[1:])
    else:
        sys.exit(status)
