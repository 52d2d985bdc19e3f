"""What every step of the workflow shares: how a job is told what to do, and how it is started.

A job is the function `run` of one step script (`finetune.py`, `evaluate.py`, ...) and one JSON object.  A rule passes
that object whole.  So a job runs again by hand from the command line in its log, without Snakemake and params.yaml:

    python workflow/runner/job.py workflow/scripts/merge_vectors.py '{"recipe": ..., "inputs": ..., "output": ...}'

An object that is too long for a command line lies in a file, `@.tallmasks/jobs/<digest>.json`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import own_code

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
    def parse(cls, text: str) -> Job:
        told = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
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


def main(step: Callable[[Job], None], text: str) -> None:
    """Run a step on a job; a user's error is one line, not a traceback."""
    from tallmasks.store import atomic_files
    from tallmasks.store.errors import TallmasksError, in_words

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    job = Job.parse(text)
    if "numba" in sys.modules:  # in a fork of the warm server it was imported with all cores, as torch was
        launched = sys.modules["numba"].config.NUMBA_NUM_THREADS
        os.environ["NUMBA_NUM_THREADS"] = str(
            launched
        )  # it reads this whenever it compiles, and refuses another number
        sys.modules["numba"].set_num_threads(min(job.threads, launched))
    if "torch" in sys.modules:
        from threadpoolctl import threadpool_limits

        sys.modules["torch"].set_num_threads(job.threads)
        threadpool_limits(job.threads, user_api="blas")  # NumPy's
    start = time.monotonic()
    try:
        own_code.check()
        atomic_files.BEFORE_RENAME.append(own_code.check_unchanged)
        import checked_inputs

        with in_words(), checked_inputs.damage_put_away():
            made_from = checked_inputs.checked(job)
            own_code.check_unchanged()
            step(replace(job, made_from=made_from))
    except TallmasksError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Snakemake does not see that of a fork
    print(f"done in {time.monotonic() - start:.1f} s, with {memory:.0f} MB of memory", flush=True)


def start(script: str, text: str) -> int:
    """Run a step script with the job's threads in force: in the warm server if there is one to be had, else here.

    The job dies with the process that started it: after kill -9 of Snakemake none goes on beside those of the next one.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
    if stat.S_ISREG(os.fstat(1).st_mode):  # a log begins with the command that runs the job alone
        print("$", shlex.join(["python", "workflow/runner/job.py", script, text]), flush=True)
    job = Job.parse(text)
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
    if (status := warm.run(script, text, keep=held)) is not None:
        return status
    os.execv(sys.executable, [sys.executable, __file__, HERE, script, text])


def run_here(script: str, text: str) -> None:
    """Run a step script's function `run` in this process, which has the job's threads in force."""
    sys.argv = [script, text]
    step = runpy.run_path(script, run_name="__main__").get("run")
    if step:
        main(step, text)


if __name__ == "__main__":
    if sys.argv[1] == HERE:
        run_here(*sys.argv[2:])
    else:
        sys.exit(start(*sys.argv[1:]))
