"""What commands print: lines that do nothing to a terminal, and no warnings of libraries."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO, cast

from tallmasks.store.errors import TallmasksWarning

_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_NO_CHARACTERS = range(0xD800, 0xE000)
_WRITTEN = {code: ascii(chr(code))[1:-1] for code in (*_CONTROLS, *_DIRECTIONS, *_NO_CHARACTERS)}


def harmless(text: str) -> str:
    """A text with its control characters spelled out, as in ``\\x1b``, but for newlines and tabs."""
    return text.translate(_WRITTEN)


@contextmanager
def in_plain_lines() -> Iterator[None]:
    """Print harmless text alone on stdout, and of warnings only the package's own, a line each on stderr."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(cast(TextIO, _Harmless(sys.stdout))), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TallmasksWarning)
            warnings.showwarning = _print_warning
            yield
    finally:
        logging.disable(logging.NOTSET)


def _print_warning(message: Warning | str, *rest: Any, **others: Any) -> None:
    print(f"warning: {harmless(str(message))}", file=sys.stderr)


class _Harmless:
    """A stream to another one, as which it passes in all the rest."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str) -> int:
        return self._to.write(harmless(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)
