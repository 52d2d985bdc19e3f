"""Merges and methods. Each file in ``rows`` registers its own. To add one, add a file there; nothing else changes.

A *merge* combines the task vectors of a benchmark into one multi-task vector: a function ``(vectors, piece, prepared,
**options) -> merged`` (see `Merge`). `merged_row` adds it to the results table.

A *method* is any other row of the table: a function that returns an update, float32. The names of its parameters are
the inputs it needs (see ``inputs``). It must work on slices of the model and on GPU tensors, so it works element by
element and uses only operators (``*``, ``>=``, ``abs``). A function with the parameter ``layout`` gets the whole model.
A function decorated with `quantizer` rounds each piece of a tensor to integers, which a bundle can store; one with
`by_tensor` compresses each tensor by itself.

Keyword-only parameters with defaults are options that params.yaml can set (``methods: [..., {ties: {keep: 0.1}}]``).
The usage (see ``method_usages``) says how the update is used. Methods with ``group="later"`` are built only on
request.
"""

from tallmasks.methods.codec import LOSSLESS, by_tensor, quantizer
from tallmasks.methods.contract import KeptFraction, Method
from tallmasks.methods.few_bits import in_few_bits
from tallmasks.methods.inputs import INPUTS, Input, MethodInputs, method_input
from tallmasks.methods.merges import Mask, Merge, Network, Statistics, TensorPiece, Vector, each_piece
from tallmasks.methods.method_usages import ALPHAS_TO_3, FineTuned, Fixed, Masked, PerTask, Scaled
from tallmasks.methods.options import Between, Fraction, Share
from tallmasks.methods.registry import (
    GROUPS,
    code,
    consensus,
    get,
    get_merge,
    load_rows,
    masking,
    merge,
    merge_names,
    merged_row,
    method,
    names,
    needing,
    rows_on,
    slug,
    spec_of,
    specs_of,
    statistics_behind,
    table_digests,
    tuned_merge,
)

__all__ = [
    "ALPHAS_TO_3",
    "GROUPS",
    "INPUTS",
    "LOSSLESS",
    "Between",
    "FineTuned",
    "Fixed",
    "Fraction",
    "Input",
    "KeptFraction",
    "Mask",
    "Masked",
    "Merge",
    "Method",
    "MethodInputs",
    "Network",
    "PerTask",
    "Scaled",
    "Share",
    "Statistics",
    "TensorPiece",
    "Vector",
    "by_tensor",
    "code",
    "consensus",
    "each_piece",
    "get",
    "get_merge",
    "in_few_bits",
    "masking",
    "merge",
    "merge_names",
    "merged_row",
    "method",
    "method_input",
    "names",
    "needing",
    "quantizer",
    "rows_on",
    "slug",
    "spec_of",
    "specs_of",
    "statistics_behind",
    "table_digests",
    "tuned_merge",
]  # fmt: skip

load_rows()  # at the end, because the files in rows import the names above
