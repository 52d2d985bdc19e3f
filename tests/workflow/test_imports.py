"""What is imported when: torch takes seconds, and most commands, jobs and every parse of the Snakefile need none."""

import subprocess
import sys
from pathlib import Path

from conftest import PARAMS, ROOT
from small_checkpoints import file_of, state

WITHOUT_TORCH = """
import sys, yaml
import tallmasks
tallmasks.merges()
import tallmasks.masks.mask_bundles, tallmasks.masks.consensus, tallmasks.results.tables
import tallmasks.vectors.multi_task_vectors
from tallmasks.plan.planner import Plan
from tallmasks.vectors.checkpoints import open_checkpoint

open_checkpoint(sys.argv[1]).piece("a.half", 0, 3)
plan = Plan(yaml.safe_load(open(sys.argv[2])), sys.argv[3])
print(*(node.path for node in plan.index.closure("tiny")))
assert plan.multi_task_vector("tiny", ("mnist", "svhn"), "regmean", 0).digest
sys.exit("torch" in sys.modules)
"""


def test_without_tensors_of_torchs_nothing_imports_torch(tmp_path: Path, params: dict) -> None:
    """A script on arrays, every command, every job and every parse of the Snakefile would wait for seconds; and a
    store shared between machines would find nothing again, if digests differed from process to process."""
    from tallmasks.plan.planner import Plan

    command = [sys.executable, "-c", WITHOUT_TORCH, str(file_of(tmp_path, state())), str(PARAMS), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [node.path for node in Plan(params, ROOT).index.closure("tiny")]
