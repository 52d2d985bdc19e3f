"""Merges and methods: each file of the folder ``rows`` registers its own, and nothing else changes.

A *merge* turns the task vectors of a benchmark into one multi-task vector. A *method* is a row of the results
table. Its function names, as parameters, what it is computed from (see ``inputs``), and returns an update:
float32, element by element, so that it works on a slice as on the whole, and written with operators (``*``, ``>=``,
``abs``), so that it works on a GPU's tensors as on NumPy's arrays. Keyword-only parameters with defaults are options,
which params.yaml may set (``methods: [..., {ties: {keep: 0.1}}]``). Its protocol says how the update is used:

=========  ===================================================================================================
fixed      one model, theta_0 + coefficient(T) * update
scaled     one model, theta_0 + alpha * update; alpha is the best on validation data, over the whole benchmark
per_task   a model per task, theta_0 + update; nothing to choose
masked     a model per task, theta_0 + update; mask_lambda is the best on validation data, for that task alone
finetuned  the checkpoints themselves; theta_0 + update is the same up to rounding
=========  ===================================================================================================

A merge that needs a whole tensor of all tasks says ``over="tensors"``, one that has to know where in the model its
slice lies ``over="places"``, a method that needs the whole model (one scale a task, say) ``over="model"``; one that
compresses each tensor by itself is written under `by_tensor`, and can be stored in a bundle.  A method of
``group="later"`` is in no table that does not ask for it.
"""

import importlib
import pkgutil

from tallmasks.methods import rows
from tallmasks.methods.contract import GRIDS, Merge, Method, Place, Statistics, Vector
from tallmasks.methods.inputs import INPUTS, Input, Source, input
from tallmasks.methods.options import Between, Share
from tallmasks.methods.own_tensors import by_tensor
from tallmasks.methods.registry import (
    GROUPS,
    after_every_merge,
    at_threshold,
    code,
    consensus,
    consensus_row,
    followed,
    get,
    get_merge,
    kept_fractions,
    masking,
    masking_row,
    merge,
    merge_names,
    method,
    names,
    needing,
    slug,
    spec_of,
    specs_of,
    statistics_behind,
    tuned_merge,
)
from tallmasks.methods.scaled_masks import ScaledMask
from tallmasks.store.errors import TallmasksError, at_import

__all__ = [
    "GRIDS",
    "GROUPS",
    "INPUTS",
    "Between",
    "Input",
    "Merge",
    "Method",
    "Place",
    "ScaledMask",
    "Share",
    "Source",
    "Statistics",
    "Vector",
    "after_every_merge",
    "at_threshold",
    "by_tensor",
    "code",
    "consensus",
    "consensus_row",
    "followed",
    "get",
    "get_merge",
    "input",
    "kept_fractions",
    "masking",
    "masking_row",
    "merge",
    "merge_names",
    "method",
    "names",
    "needing",
    "slug",
    "spec_of",
    "specs_of",
    "statistics_behind",
    "tuned_merge",
]

for _module in pkgutil.iter_modules(rows.__path__):
    try:
        importlib.import_module(f"{rows.__name__}.{_module.name}")
    except TallmasksError:
        raise
    except Exception as error:
        raise at_import(error) from error
