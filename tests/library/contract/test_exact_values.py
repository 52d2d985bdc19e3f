"""What stages and methods compute from fixed inputs, bit for bit, on every machine.

The arithmetic in `vectors`, `masks` and `bundles` is in no recipe: only a stage's `version=` covers it. Elsewhere the
bytes of stages depend on fine-tuning, which differs between machines, so `test_stage_bytes.py` allows 1 % there. Here
nothing is fine-tuned, and every operation is elementwise or a sum in a fixed order.
"""

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from reproduction.plan.node import stage_versions
from reproduction.plan.project import Index  # noqa: F401  (declares every stage)
from reproduction.results.mask_statistics import statistics
from tallmasks import methods
from tallmasks.io.content_digests import CONTENT
from tallmasks.io.tensor_files import Layout, read_metadata, write_tensors
from tallmasks.masks.consensus import agreement_profile, open_agreement, write_agreement
from tallmasks.masks.mask_grids import open_mask_grid, write_mask_grid
from tallmasks.vectors.task_vectors import (
    compute_task_vector,
    open_multi_task_vector,
    open_task_vector,
    write_multi_task_vector,
)

RECORD = Path(__file__).with_name("exact_values.json")
LAYOUT = Layout(("0.weight", "1.weight", "2.bias", "scale"), ((300, 500), (400, 400), (13,), ()))
"""More values than `kernels.PARTITIONED`; tensors of less and more than `kernels.SLICE`."""
CHOSEN = {"cars": 0.2, "dtd": 0.3, "mnist": 1.0}
LAMBDAS = [0.2, 0.3, 0.5, 1.0]
MERGES = ("sum", "ties_sum", "ties_mean", "lines_ties", "dare", "dare_ties", "della")
METHODS = (
    "magnitude_masking",
    "tall_mask_ties",
    "consensus_ties",
    "emr",
    "bitdelta",
    "t_switch",
    "stochastic_rounding",
    "tvq",
    "rtvq",
)
"""They use code outside `rows/`, and no matrix products, whose bits depend on the machine."""


def model(number: int) -> dict[str, np.ndarray]:
    """Weights that are often equal, then weights of any mantissa and 12 exponents, then denormals."""
    raw = np.random.PCG64(number).random_raw(LAYOUT.size)  # NumPy keeps this stream in all versions
    bits = (raw >> 32 & 0x807FFFFF | raw % 12 + 120 << 23).astype(np.uint32)
    kinds = [(raw % 5).astype(np.float32) - 2, bits.view(np.float32), (raw % 7).astype(np.uint32).view(np.float32)]
    return LAYOUT.split(np.choose(np.arange(LAYOUT.size) % 9 // 4, kinds))


def computed(folder: Path) -> Iterator[tuple[str, str, object]]:
    """The stage, the name of what it computes, with the digest of the code that recipes have, and the values."""
    theta_0, vectors = model(0), {task: folder / f"tau-{task}" for task in CHOSEN}
    for number, (task, path) in enumerate(vectors.items(), 1):
        write_tensors(folder / task, model(number), {})
        compute_task_vector(folder, folder / task, theta_0, path, {}, (0.1, 0.2), frozen=1000)
        yield "task_vector", task, read_metadata(path)[CONTENT]
    for name in MERGES:
        merge = methods.get_merge(name)
        write_multi_task_vector(merge, name, list(vectors.values()), folder / name, {})
        yield "merge", f"{name} {merge.code}", read_metadata(folder / name)[CONTENT]
    for name in ("sum", "ties_sum"):
        merged, masks, agreement = folder / name, folder / f"{name}-masks", folder / f"{name}-agreement"
        write_mask_grid(masks, vectors, merged, LAMBDAS, {})
        yield "mask", name, read_metadata(masks)[CONTENT]
        write_agreement(agreement, masks, CHOSEN, {})
        yield "consensus", name, read_metadata(agreement)[CONTENT]
        tau = open_multi_task_vector(merged)
        yield "tables", name, vars(agreement_profile(open_agreement(agreement), tau, len(CHOSEN)))
        counted = statistics(open_mask_grid(masks), CHOSEN, tau, lambda tensor: ("0", tensor))
        yield "mask_statistics", name, [table.to_csv() for table in counted.values()]
    task_vector, bits = open_task_vector(vectors["dtd"]), open_mask_grid(masks).packed_mask("dtd", CHOSEN["dtd"])
    inputs = {
        "pretrained": LAYOUT.join(theta_0),
        "task_vector": task_vector.flat,
        "multi_task_vector": tau,
        "stored_vector": tau,
        "tasks": len(CHOSEN),
        "agreement": open_agreement(agreement),
        "mask": np.unpackbits(bits, count=LAYOUT.size, bitorder="little").astype(bool),
        "threshold": task_vector.threshold(0.1),
        "layout": LAYOUT,
    }
    source = SimpleNamespace(multi_task_vector=tau, layout=LAYOUT)
    in_few_bits = methods.INPUTS["stored_vector"].value(source, 0, 0, {"bits": 3})
    yield "evaluate", "tau_MTL in 3 bits", sha256(in_few_bits.tobytes()).hexdigest()
    for method in map(methods.get, METHODS):
        yield "evaluate", f"{method.name} {method.code}", sha256(method(**inputs).tobytes()).hexdigest()


def test_changed_arithmetic_needs_a_new_version(tmp_path: Path) -> None:
    """Artifacts of the old kernels would stay in everybody's store under the names of what the new ones compute."""
    versions = stage_versions()
    found = {
        f"{stage} version {versions[stage]}: {name}": sha256(json.dumps(values).encode()).hexdigest()[:16]
        for stage, name, values in computed(tmp_path)
    }
    recorded = json.loads(RECORD.read_text())
    changed = [what for what, digest in found.items() if recorded.get(what, digest) != digest]
    assert not changed, f"{changed}: mend it, or raise version= of the stage in reproduction/plan/ and `make record`"
    if "TALLMASKS_RECORD" in os.environ:
        RECORD.write_text(json.dumps(found, indent=0) + "\n")
    else:
        assert found.keys() == recorded.keys(), "run `make record`"
