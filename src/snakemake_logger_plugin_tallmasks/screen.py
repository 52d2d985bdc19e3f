"""Lines that stay, and below them, on a terminal, one that is written over."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from .results import BEST

RED, BOLD, PLAIN = "\033[31m", "\033[1m", "\033[0m"


class Screen:
    """Where the short view is written; a file or a pipe gets the lines that stay, and no control characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._colours = self.live and not os.environ.get("NO_COLOR")
        self._status = ""

    @property
    def width(self) -> int:
        """Characters of the line that is written over."""
        return shutil.get_terminal_size().columns - 1

    def line(self, text: str) -> None:
        """Write a line that stays, or several."""
        if not text:
            return
        self._clear()
        self._stream.write(f"{self._coloured(text)}\n")
        self._draw()

    def _coloured(self, text: str) -> str:
        """Errors in red and what is the best of a table in bold, where the terminal may have colours."""
        if not self._colours:
            return text
        return "\n".join(
            f"{RED}{line}{PLAIN}"
            if line.startswith(("error:", "failed:"))
            else f"{BOLD}{line}{PLAIN}"
            if line.endswith(BEST)
            else line
            for line in text.split("\n")
        )

    def status(self, text: str) -> None:
        """Put another text into the last line; on a terminal only."""
        if self.live and text != self._status:
            self._clear()
            self._status = text
            self._draw()

    def _clear(self) -> None:
        if self._status:
            self._stream.write("\r\033[K")

    def _draw(self) -> None:
        if self._status:
            self._stream.write(self._status[: self.width])
        self._stream.flush()
