"""The decorator of compiled functions. A separate module, because numba is slow to import."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compiles with numba. The machine code is cached on disk, unless neither the folder of the function's file nor the
    user's cache can be written."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)
