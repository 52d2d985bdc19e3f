"""What a program finds around it: standard streams, which can be closed or full, and a current folder, which can be
deleted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from tallmasks.errors import ESCAPES, TallmasksError

_IN_TEXT = {code: text for code, text in ESCAPES.items() if chr(code) not in "\n\t"}


@contextmanager
def checked_surroundings() -> Iterator[None]:
    """Escape control characters on stdout, and ignore that stderr cannot be written.

    Raises TallmasksError if stdout is closed or cannot be written, or the current folder no longer exists.
    """
    is_closed = sys.stdout is None
    _open_closed_streams()
    if is_closed:
        raise TallmasksError("standard output is closed; redirect it to a file, or to /dev/null")
    try:
        Path.cwd()
    except FileNotFoundError:
        raise TallmasksError("the current folder no longer exists; change to another one with `cd`") from None
    output = _Output(sys.stdout)
    with redirect_stdout(cast(TextIO, output)), redirect_stderr(cast(TextIO, _Errors(sys.stderr))):
        try:
            yield
        finally:
            output.flush()


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null. Otherwise the next opened file would get such a number, and messages
    would be written into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
        setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


class _Stream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Output(_Stream):
    def write(self, text: str) -> int:
        with self._reported():
            return self._stream.write(text.translate(_IN_TEXT))

    def flush(self) -> None:
        with self._reported():
            self._stream.flush()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # so that the flush at exit does not fail
            if isinstance(error, BrokenPipeError):  # the reader, for example `head`, has closed the pipe
                raise
            raise TallmasksError(
                f"standard output cannot be written: {error.strerror}; redirect it to a file on a disk with free space"
            ) from None


class _Errors(_Stream):
    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()
