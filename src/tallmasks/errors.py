"""Errors that a user can act on."""

import difflib
import errno
import os
import reprlib
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_ANOTHER_KIND = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP)
_TOO_LONG = errno.ENAMETOOLONG

# Optional libraries, and the extra in pyproject.toml that installs each.
EXTRAS = {"torch": "torch", "transformers": "transformers"}


_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_BREAKS = (0x2028, 0x2029)
_SURROGATES = range(0xD800, 0xE000)
_UNSEEN = (*range(0x20), *range(0x7F, 0xA0), *_DIRECTIONS, *_LINE_BREAKS, *_SURROGATES)
ESCAPES = {code: ascii(chr(code))[1:-1] for code in _UNSEEN}

_REPR = reprlib.Repr()  # bounded: aliases in a YAML file can stand for billions of values
_REPR.maxlevel = 4
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = _REPR.maxset = 10
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200


class TallmasksError(Exception):
    """An error that the user can fix. The message names the file or key, what was found, what was expected, and what to
    do. The command line prints only the message, without a traceback, and exits with status 1. Several arguments are
    several messages, one per line."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class OptionError(TallmasksError):
    """A wrong command line. The exit status is 2."""


class TallmasksWarning(UserWarning):
    """A warning about a result. The command line prints it on one line."""


def warn(text: str) -> None:
    warnings.warn(text, TallmasksWarning, stacklevel=3)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn permission errors, misplaced files, disk errors and GPU out-of-memory errors into TallmasksErrors."""
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
        if error.filename is None or error.errno not in (*_NO_RIGHT, *_ANOTHER_KIND, _TOO_LONG, errno.EIO):
            raise
        path, why = Path(os.fsdecode(error.filename)), os.strerror(error.errno)
        if error.errno == _TOO_LONG:
            raise TallmasksError(f"{cut(str(path))}: {why}; shorten it") from None
        if error.errno == errno.EIO:
            raise TallmasksError(f"{path}: {why}; the disk is failing") from None
        if error.errno in _NO_RIGHT:
            denied = path if os.path.lexists(path) else path.parent  # a new file is denied by its folder
            raise TallmasksError(
                f"{denied} cannot be read or written by this user ({why}); change its permissions, or those of its disk"
            ) from None
        in_the_way = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), path)
        raise TallmasksError(f"{in_the_way}: {why}; move it away and run again") from None


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
        raise TallmasksError(f"{what} needs {library}: {install or _by_extra(library)}") from None


def _by_extra(library: str) -> str:
    return f'pip install "tallmasks[{EXTRAS[library]}]"'


def nearest(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the closest valid name, or an empty string if none is close."""
    by_lower_case = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name[:100].lower(), by_lower_case, n=1)
    return f" (did you mean {by_lower_case[close[0]]!r}?)" if close else ""


def short(value: object) -> str:
    """The repr of a user's value for an error message, cut to 100 characters."""
    try:
        text = _REPR.repr(value[:101] if isinstance(value, str) else value)
    except ValueError:  # a huge integer
        return f"a {type(value).__name__}"
    return cut(text)


def cut(text: str) -> str:
    """At most 100 characters of a text for a message."""
    return text if len(text) <= 100 else f"{text[:100]}..."


def one_line(text: object) -> str:
    """Escape line breaks, other control characters and marks of direction, which could fake a terminal's output."""
    return str(text).translate(ESCAPES)


def at_import(error: Exception) -> TallmasksError:
    """A one-line error, with file and line, for an exception raised while importing a user's module."""
    if isinstance(error, SyntaxError):
        file, line, message = error.filename, error.lineno, error.msg
    else:
        ran = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
        file, line = (ran[-1].filename, ran[-1].lineno) if ran else (None, None)
        message = str(error)
    where = f"{file}, line {line}: " if file else ""
    return TallmasksError(f"{where}{type(error).__name__}: {' '.join(message.split())}; fix it there")
