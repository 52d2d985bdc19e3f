"""Errors that a user can act on."""

import difflib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

# Optional libraries, and the extra in pyproject.toml that installs each.
EXTRAS = {"torch": "torch", "transformers": "transformers"}


_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_BREAKS = (0x2028, 0x2029)
_SURROGATES = range(0xD800, 0xE000)
_UNSEEN = (*range(0x20), *range(0x7F, 0xA0), *_DIRECTIONS, *_LINE_BREAKS, *_SURROGATES)
ESCAPES = {code: ascii(chr(code))[1:-1] for code in _UNSEEN}


class TallmasksError(Exception):
    """An error that the user can fix. The message names the file or key, what was found, what was expected, and what to
    do. The command line prints only the message, without a traceback, and exits with status 1. Several arguments are
    several messages, one per line."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class OptionError(TallmasksError):
    """A wrong command line or setting. The exit status is 2."""


class TallmasksWarning(UserWarning):
    """A warning about a result. The command line prints it on one line."""


_GROUPED: ContextVar[dict[str, list[str]] | None] = ContextVar("_GROUPED", default=None)


def warn(text: str, whose: str | None = None) -> None:
    """Warn, with the line that called this package. ``whose``: the model that the text is about; see
    `grouped_warnings`."""
    groups = _GROUPED.get()
    if whose is not None and groups is not None:
        groups.setdefault(text, []).append(whose)
        return
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe())]
    outermost = max(number for number, name in enumerate(modules) if name.partition(".")[0] == "tallmasks")
    text = text if whose is None else f"{whose}: {text}"
    warnings.warn(text, TallmasksWarning, stacklevel=outermost + 2)


@contextmanager
def grouped_warnings() -> Iterator[None]:
    """Warn once, at the end of this block, if the same text is about several models."""
    groups: dict[str, list[str]] = {}
    token = _GROUPED.set(groups)
    try:
        yield
    finally:
        _GROUPED.reset(token)
        for text, whose in groups.items():
            warn(text, ", ".join(whose))


@contextmanager
def option_errors() -> Iterator[None]:
    """Turn the errors of a block that only looks at options into OptionErrors."""
    try:
        yield
    except TallmasksError as error:
        raise OptionError(*error.args) from error


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors of files and folders, such as missing permissions, and of GPU memory into TallmasksErrors."""
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's type, not imported here because that is slow
            raise
        raise TallmasksError(
            "the GPU ran out of memory; stop other programs that use it, set jobs_per_gpu: 1, or use a GPU with more"
            " memory"
        ) from None
    except OSError as error:
        if error.filename is None or isinstance(error, FileNotFoundError):
            raise
        raise TallmasksError(
            f"{cut(os.fsdecode(error.filename))}: {error.strerror}; correct this and run again"
        ) from None


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the path to an OSError that has no file name, for example a read error of a failing disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def needed_for(what: str, install: str | None = None) -> Iterator[None]:
    """Turn the import error of a missing library into a TallmasksError that says how to install it: by the command
    ``install``, or else by its extra. Other import errors stay as they are."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if install is None and library not in EXTRAS:
            raise
        raise TallmasksError(f"{what} needs {library}: {install or by_extra(EXTRAS[library])}") from None


def by_extra(extra: str) -> str:
    """How to install an extra; the package is in no index."""
    return f"run pip install '.[{extra}]' in the project's folder"


def nearest(name: str, names: Iterable[str], words: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return " (did you mean ...?)" with the closest valid name, or an empty string if none is close. ``words``: other
    words for some names."""
    by_word = {word.lstrip("-").lower(): other for word, other in {**words, **{own: own for own in names}}.items()}
    close = difflib.get_close_matches(name[:100].lstrip("-").lower(), by_word, n=1)
    return f" (did you mean {by_word[close[0]]!r}?)" if close else ""


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 file", "2 classes"."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('s') else 's'}"


def short(value: object) -> str:
    """The repr of a user's value for an error message, cut to 100 characters."""
    return cut(repr(value[:101] if isinstance(value, str) else value))


def cut(text: str) -> str:
    """At most 100 characters of a text for a message."""
    return text if len(text) <= 100 else f"{text[:100]}..."


def one_line(text: object) -> str:
    """Escape line breaks, other control characters and marks of direction, which could fake a terminal's output."""
    return str(text).translate(ESCAPES)


def name_some(names: Iterable[str], limit: int = 5) -> str:
    """The first few names, cut, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(cut(one_line(name)) for name in names[:limit]) + more
