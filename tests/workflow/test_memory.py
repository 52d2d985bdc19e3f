"""The whole array core on files, with less memory than one model."""

import os
import subprocess
import sys
from pathlib import Path

import tallmasks

CHAIN = """
import resource, sys
from pathlib import Path
import numpy as np
from tallmasks import methods
from tallmasks.masks import consensus, mask_bundles as masks
from tallmasks.vectors import multi_task_vectors as merging
from tallmasks.store.tensor_files import Layout, new_flat, open_tensors
from tallmasks.vectors.task_vectors import compute_task_vector

def chain(folder, size, tasks):
    folder.mkdir()
    layout = Layout(("a", "b"), ((size // 2,), (size // 2,)))
    for seed, name in enumerate(("pretrained", "checkpoint")):
        draw = np.random.default_rng(seed)
        with new_flat(folder / name, layout, {}) as new:
            for start in range(0, size, 1000):
                new.flat[start : start + 1000] = draw.standard_normal(1000, dtype=np.float32)
    vectors = {f"task {i}": folder / f"tau {i}" for i in range(tasks)}
    initial = {name: open_tensors(folder / "pretrained").view(name) for name in "ab"}
    for path in vectors.values():
        compute_task_vector(folder / "pretrained", folder / "checkpoint", initial, path, {}, [0.2])
    for merge in ("sum", "ties_mean"):
        merging.write_multi_task_vector(methods.get_merge(merge), merge, list(vectors.values()), folder / merge, {})
    masks.write_mask_bundle(folder / "masks", vectors, folder / "sum", [0.2, 0.4], {})
    consensus.write_agreement(folder / "agreement", folder / "masks", dict.fromkeys(vectors, 0.4), {})
    counts, merged = consensus.open_agreement(folder / "agreement"), merging.open_multi_task_vector(folder / "sum")
    assert sum(consensus.agreement_profile(counts, merged, tasks).fractions) > 0.999

chain(Path(sys.argv[1]) / "warm", 1000, 2)
(used,) = [int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData")]
resource.setrlimit(resource.RLIMIT_DATA, (used + (12 << 20), used + (12 << 20)))
chain(Path(sys.argv[1]) / "large", 4_000_000, 6)
"""


def test_memory_does_not_grow_with_the_models(tmp_path):
    """Merging 20 large models would need the memory of 20: here 12 MiB must do for six models of 15 MiB."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tallmasks.__file__).parent.parent),
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", CHAIN, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
