"""Run the blocks of the README and of some pages in order, and write what the commands print into the blocks below.

    python docs/printed_output.py

Runs the lines that begin with `tallmasks` and the blocks of Python, on the models of `tallmasks example`. A `text`
block after a block of commands holds what the commands print, with warnings, after `pip install .`, without
transformers.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tallmasks.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
FOLLOWED = (("README.md",), ("docs/python.md",))
"""Pages that a reader can follow one after another in one folder."""
_BLOCK = re.compile(r"^```(python)?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def followed(pages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Run the blocks of ``pages`` in the current folder; each page with its text, as these commands print it.

    Raises SystemExit if a command fails.
    """
    for page in pages:
        names: dict[str, Any] = {}

        def run(block: re.Match[str], names: dict[str, Any] = names) -> str:
            language, code, output = block.groups()
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                if language:
                    exec(code, names)
                else:
                    with mock.patch("tallmasks.vectors.checkpoints.known_tensors.find_spec", lambda _: None):
                        _run_commands(code)
            if output is None:
                return block[0]
            return f"```{language or ''}\n{code}```\n\n```text\n{printed.getvalue()}```\n"

        yield page, _BLOCK.sub(run, (ROOT / page).read_text())


def _run_commands(code: str) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["tallmasks"] and main(words[1:]):
            raise SystemExit(f"this line of a page fails: {line}")


if __name__ == "__main__":
    for group in FOLLOWED:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            texts = dict(followed(group))
        for page, text in texts.items():
            (ROOT / page).write_text(text)
