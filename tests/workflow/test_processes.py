"""Tests that need a process of their own: imports, memory use, and leftovers of a kill."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import PARAMS, ROOT
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan
from small_checkpoints import file_of, saved_llama, state
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.writing import new_checkpoint

WITHOUT_TORCH = """
import sys, yaml
import tallmasks
tallmasks.merges()
import tallmasks.masks.mask_grids, tallmasks.masks.consensus, reproduction.results.tables
import tallmasks.vectors.task_vectors
from reproduction.plan import chain
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan
from tallmasks.vectors.checkpoints.opening import open_checkpoint

open_checkpoint(sys.argv[1]).piece("a.half", 0, 3)
plan = Plan(yaml.safe_load(open(sys.argv[2])), sys.argv[3])
print(*(node.path for node in closure(plan, "tiny")))
assert chain.merge(plan, "tiny", ("mnist", "svhn"), "regmean", 0).digest
sys.exit("torch" in sys.modules)
"""


def test_without_tensors_of_torchs_nothing_imports_torch(tmp_path: Path, params: dict) -> None:
    """Every command and job would wait for torch's import, or two processes name one artifact differently."""
    command = [sys.executable, "-c", WITHOUT_TORCH, str(file_of(tmp_path, state())), str(PARAMS), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [node.path for node in closure(Plan(params, ROOT), "tiny")]


CHAIN = """
import resource, sys
from pathlib import Path
import numpy as np
from tallmasks import methods
from tallmasks.masks import consensus, mask_grids as masks
from tallmasks.vectors import task_vectors as merging
from tallmasks.io.tensor_files import Layout, new_flat, open_tensors
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
    masks.write_mask_grid(folder / "masks", vectors, folder / "sum", [0.2, 0.4], {})
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
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHAIN, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


KILLED = """
import sys, time
from tallmasks.io.temporary_folders import TemporaryFolder
from tallmasks.vectors.checkpoints.writing import new_checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint

with new_checkpoint(sys.argv[2], open_checkpoint(sys.argv[1]), None) as new, TemporaryFolder():
    print("writing", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes of hidden halves would fill the disk; or the next run would remove what another one is writing."""
    source, out = saved_llama(tmp_path / "model"), tmp_path / "out"
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    command = [sys.executable, "-c", KILLED, str(source), str(out)]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "writing\n"
        (hidden,), (temporary,) = tmp_path.glob(".*"), (tmp_path / "tmp").iterdir()
        base = open_checkpoint(source)
        with new_checkpoint(out, base, None), TemporaryFolder() as own:
            assert hidden.exists() and temporary.exists() and own != temporary  # their owner lives
        assert not own.exists()
        process.kill()
    assert hidden.exists() and temporary.exists() and not list(out.glob(".*"))
    out.rename(tmp_path / "elsewhere")
    with new_checkpoint(out, base, None), TemporaryFolder():
        assert not hidden.exists() and not temporary.exists()
    assert open_checkpoint(out).tensors == base.tensors
