"""What every step of the workflow shares: how a job is told what to do, and how it is started.

A job is the function `run` of one step script (`finetune.py`, `evaluate.py`, ...) and one JSON object in a file.  The
log of a job that failed ends with its command, which runs it again without Snakemake and params.yaml:

    python workflow/runner/job.py workflow/scripts/merge_vectors.py .tallmasks/jobs/<digest>.json

The package and the steps are those of this copy of the project.  The active environment may have been installed for
another one, and PYTHONPATH cannot hold a folder with a colon.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

WORKFLOW = Path(__file__).resolve().parents[1]
for folder in (WORKFLOW / "scripts", WORKFLOW / "runner", WORKFLOW.parent / "src"):
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
HERE = "--here"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# glibc hands large buffers back to the kernel and fetches them again at every training step: a quarter of the time.
ALLOCATOR_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True)
class Job:
    """One step's work: the recipe, the input files by role, the output file and the resources it may use."""

    recipe: Mapping[str, Any]
    inputs: Mapping[str, list[Path]]
    outputs: Mapping[str, Path]
    model: str = ""
    """The model that it is for, or the catalogue where it makes examples."""
    threads: int = 1
    gpus: int = 0
    submitted: bool = False
    """Whether a cluster's scheduler started it, and assigned its GPUs."""
    micro_batch_size: int | None = None
    """The largest examples per pass of a fine-tuning."""
    made_from: Mapping[str, list[str]] = field(default_factory=dict)
    """The identities of the input artifacts by role, once they have been checked."""

    @classmethod
    def read(cls, file: str) -> Job:
        told = json.loads(Path(file).read_text())
        return cls(
            recipe=told["recipe"],
            inputs={role: [Path(path) for path in paths] for role, paths in told["inputs"].items()},
            outputs={role: Path(path) for role, path in told["outputs"].items()},
            model=told.get("model", ""),
            threads=told.get("threads", 1),
            gpus=told.get("gpus", 0),
            submitted=told.get("submitted", False),
            micro_batch_size=told.get("micro_batch_size"),
        )

    @property
    def params(self) -> Mapping[str, Any]:
        return self.recipe["params"]

    @property
    def output(self) -> Path:
        """The one output of a step that has one."""
        (path,) = self.outputs.values()
        return path

    def input(self, role: str) -> Path:
        """The one input in a role that has one."""
        (path,) = self.inputs[role]
        return path

    @property
    def facts(self) -> dict[str, Any]:
        """What an artifact says of its own making."""
        from tallmasks.store.artifacts import facts_of

        return facts_of(self.recipe, self.made_from, self.threads)

    @property
    def metadata(self) -> dict[str, str]:
        """The same for a safetensors file."""
        from tallmasks.store.artifacts import as_metadata

        return as_metadata(self.facts)

    def write_json(self, value: Mapping[str, Any]) -> None:
        """Write the one output of a step whose artifact is JSON."""
        from tallmasks.store.artifacts import write_json

        write_json(self.output, value, self.facts)


def main(step: Callable[[Job], None], file: str) -> None:
    """Run a step on a job; a user's error is one line, not a traceback."""
    from tallmasks.store.errors import TallmasksError, in_words

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    job = Job.read(file)
    if "numba" in sys.modules:  # in a fork of the warm server it was imported with all cores, as torch was
        launched = sys.modules["numba"].config.NUMBA_NUM_THREADS
        os.environ["NUMBA_NUM_THREADS"] = str(launched)  # it reads this when it compiles, and refuses another number
        sys.modules["numba"].set_num_threads(min(job.threads, launched))
    if "torch" in sys.modules:
        from threadpoolctl import threadpool_limits

        sys.modules["torch"].set_num_threads(job.threads)
        threadpool_limits(job.threads, user_api="blas")  # NumPy's
    start = time.monotonic()
    try:
        import checked_inputs

        with in_words(), checked_inputs.damage_put_away():
            step(replace(job, made_from=checked_inputs.checked(job)))
    except TallmasksError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Snakemake does not see that of a fork
    print(f"done in {time.monotonic() - start:.1f} s, with {memory:.0f} MB of memory", flush=True)


def start(script: str, file: str) -> int:
    """Run a step script with the job's threads in force: in the warm server if there is one to be had, else here.

    The job dies with the process that started it: after kill -9 of Snakemake none goes on beside those of the next one.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    job = Job.read(file)
    for name in THREAD_VARIABLES:
        os.environ[name] = str(job.threads)
    os.environ.update(ALLOCATOR_VARIABLES)
    import warm

    held: list[int] = []
    if job.gpus:
        import gpu
        from tallmasks.store.errors import TallmasksError

        try:
            held = gpu.lease(job.gpus, job.submitted)
        except TallmasksError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if (status := warm.run(script, file, keep=held)) is not None:
        return status
    os.execv(sys.executable, [sys.executable, __file__, HERE, script, file])


def run_here(script: str, file: str) -> int:
    """Run a step script's function `run` in this process, which has the job's threads in force; its exit status."""
    sys.argv = [script, file]
    try:
        if step := runpy.run_path(script, run_name="__main__").get("run"):
            main(step, file)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    here = sys.argv[1] == HERE
    script, file = sys.argv[-2:]
    status = run_here(script, file) if here else start(script, file)
    if status and stat.S_ISREG(os.fstat(1).st_mode):  # in a log
        sys.stdout.flush()
        print(f"This job alone: python workflow/runner/job.py {script} {file}", file=sys.stderr)
    sys.exit(status)
