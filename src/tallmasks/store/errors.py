"""Errors that a user can act on."""

import difflib
from collections.abc import Iterable


class TallmasksError(Exception):
    """Something a user can put right.

    The message names the file or key, says what was found, what was expected and what to do.
    The command line prints it alone, without a traceback, and exits with status 1.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' with the valid name nearest to a wrong one, or nothing if none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        name.lower(), [other for other in names if other.lower() == name.lower()] or names, n=1
    )
    return f"; did you mean {close[0]!r}?" if close else ""
