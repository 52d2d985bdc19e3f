"""Task vectors as hypothesis draws them: full of the values on which exact code goes wrong."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

_TRAPS = [
    0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, 0.1, -0.1, 0.2, -0.2, 0.3, 1.0, -1.0, 1.5, -3.0,
]  # fmt: skip
_VALUES = st.sampled_from([float(np.float32(trap)) for trap in _TRAPS]) | st.floats(-(2.0**90), 2.0**90, width=32)

no_deadline = settings(deadline=None)
"""The first example of a property compiles its kernels."""

PIECES = st.sampled_from([8, 16, 64])
GRIDS = st.lists(st.sampled_from([0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 2.0]), min_size=1, max_size=5, unique=True).map(
    sorted
)


def task_vectors(max_tasks=5, max_size=70):
    """Float32 arrays [T, P'], T from 1, P' from 1, with ties, zeros of both signs and denormals."""
    shapes = st.tuples(st.integers(1, max_tasks), st.integers(1, max_size))
    return npst.arrays(np.float32, shapes, elements=_VALUES)
