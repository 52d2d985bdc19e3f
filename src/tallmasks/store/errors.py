"""Errors that a user can act on."""

import difflib
import traceback
from collections.abc import Iterable


class TallmasksError(Exception):
    """Something a user can put right.

    The message names the file or key, says what was found, what was expected and what to do.
    The command line prints it alone, without a traceback, and exits with status 1.
    """


class TallmasksWarning(UserWarning):
    """Something a user should know of a result. The command line prints it in one line."""


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' with the valid name nearest to a wrong one, or nothing if none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        name.lower(), [other for other in names if other.lower() == name.lower()] or names, n=1
    )
    return f"; did you mean {close[0]!r}?" if close else ""


def at_import(error: Exception) -> TallmasksError:
    """What went wrong in a module that somebody added, at its import: in one line, with the file and the line there."""
    if isinstance(error, SyntaxError):
        file, line, said = error.filename, error.lineno, error.msg
    else:
        ran = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
        file, line = (ran[-1].filename, ran[-1].lineno) if ran else (None, None)
        said = str(error)
    where = f"{file}, line {line}: " if file else ""
    return TallmasksError(f"{where}{type(error).__name__}: {' '.join(said.split())}; put it right there")
