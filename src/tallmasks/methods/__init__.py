"""Merges and methods: each file of the folder ``rows`` registers its own, and nothing else changes.

A *merge* turns the task vectors of a benchmark into one multi-task vector. Its function is ``(vectors, piece,
facts, **options) -> merged`` (see `Merge`); it becomes a row of the results table by `merged_row`.

A *method* is any other row. Its function names, as parameters, what it is computed from (see ``inputs``), and returns
an update: float32, element by element, so that it works on a slice.  It is written with operators (``*``, ``>=``,
``abs``), so that it works on a GPU's tensors too. One that takes ``layout`` works on the whole model; one that
compresses each tensor by itself is written under `by_tensor`, and can be stored in a bundle.

Keyword-only parameters with defaults are options, which params.yaml may set (``methods: [..., {ties: {keep: 0.1}}]``).
The protocol of a method, one of the classes in ``method_protocols``, says how its update is used. A method of
``group="later"`` is in no table that does not ask for it.
"""

from tallmasks.methods.contract import Kept, Method
from tallmasks.methods.inputs import INPUTS, Input, Source, input
from tallmasks.methods.merges import Mask, Merge, Network, Statistics, TensorPiece, Vector, each_piece
from tallmasks.methods.method_protocols import PAST_ONE, FineTuned, Fixed, Masked, PerTask, Scaled
from tallmasks.methods.options import Between, Fraction, Share
from tallmasks.methods.own_tensors import by_tensor
from tallmasks.methods.registry import (
    GROUPS,
    at_threshold,
    code,
    consensus,
    consensus_row,
    data_behind,
    get,
    get_merge,
    kept_fractions,
    load_rows,
    masking,
    masking_row,
    merge,
    merge_names,
    merged_row,
    method,
    names,
    needing,
    shown,
    slug,
    spec_of,
    specs_of,
    stages_behind,
    statistics_behind,
    tuned_merge,
)
from tallmasks.methods.scaled_masks import ScaledMask

__all__ = [
    "GROUPS", "INPUTS", "PAST_ONE", "Between", "FineTuned", "Fixed", "Fraction", "Input", "Kept", "Mask", "Masked",
    "Merge", "Method", "Network", "PerTask", "Scaled", "ScaledMask", "Share", "Source", "Statistics", "TensorPiece",
    "Vector",
    "at_threshold", "by_tensor", "code", "consensus", "consensus_row", "data_behind", "each_piece", "get",
    "get_merge", "input", "kept_fractions", "masking", "masking_row", "merge", "merge_names", "merged_row", "method",
    "names", "needing", "shown", "slug", "spec_of", "specs_of", "stages_behind", "statistics_behind",
    "tuned_merge",
]  # fmt: skip

load_rows()  # last: the files in rows import the names above
