"""Runs a job in a fork of a server that has already imported torch, which takes longer than a small model's job.

    python workflow/runner/warm.py workflow/scripts/evaluate.py JOB

Each Snakemake starts a server that ends with it.  With TALLMASKS_WARM=0 the job runs in this process, with equal
results.  The server starts no threads and does not initialize CUDA, so that forking is safe.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # first, because Ctrl-C during the other imports would print a traceback

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import threading
from pathlib import Path
from typing import Any

SOCKET = Path(os.environ.get("TALLMASKS_WARM", "0"), "socket")


def in_fork(arguments: list[str]) -> int | None:
    """Run a script in a fork of the server; returns its exit status, or None if there is no server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(SOCKET))
        except OSError:
            return None
        imports = json.loads(Path(arguments[1]).read_text()).get("imports", [])
        job = {"imports": imports, "arguments": arguments, "environment": dict(os.environ), "folder": str(Path.cwd())}
        status = b""
        with contextlib.suppress(OSError):  # the fork died
            socket.send_fds(connection, [b"+"], [0, 1, 2])
            connection.sendall(json.dumps(job).encode() + b"\n")
            status = connection.recv(1)
    if not status:
        print("error: the job's process died (out of memory, or killed); no incomplete file is kept", file=sys.stderr)
        return 137
    return status[0]


def here(arguments: list[str]) -> None:
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


def serve() -> None:
    # pandas imports pyarrow, whose allocator would start a thread
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(SOCKET))
    except OSError as error:
        sys.exit(f"warning: {SOCKET}: {error}; each job imports torch by itself. Set TMPDIR to another folder")
    listener.listen(256)
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError, ValueError):  # the client died
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            job = json.loads(connection.makefile().readline())
            for name in job["imports"]:
                with contextlib.suppress(Exception):  # the job reports it
                    importlib.import_module(name)
            gc.freeze()  # garbage collection in a fork would copy all imported objects
            if not os.fork():
                listener.close()
                answer(connection, streams, job)
            for stream in streams:
                os.close(stream)


def answer(connection: socket.socket, streams: list[int], job: dict[str, Any]) -> None:
    """In the fork: run the client's job and exit; killed if the client ends first."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
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
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([status & 255]))
    os._exit(status)


def end_with_client(connection: socket.socket) -> None:
    # readable once the client closes the connection, because it sends nothing more
    select.select([connection], [], [])
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent, even after kill -9
    if sys.argv[1] == "--serve":
        serve()
    if (status := in_fork(sys.argv[1:])) is None:
        here(sys.argv[1:])
    sys.exit(status)
