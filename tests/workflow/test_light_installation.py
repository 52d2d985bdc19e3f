"""What works with the wheel's dependencies alone, without extras and without the reproduction, and what the rest says.

`tests/long/test_installation.py` does the same in a fresh environment; here their imports fail.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tallmasks
from models_made import make_small
from tallmasks.errors import EXTRAS

ABSENT = [
    *EXTRAS, "PIL", "datasets", "dvc", "jinja2", "matplotlib", "open_clip", "pandas", "pyarrow", "pynvml", "scipy",
    "snakemake", "threadpoolctl", "tokenizers", "torchvision",
]  # fmt: skip
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT}))  # importing these raises ModuleNotFoundError
from tallmasks.cli.main import main
def run(words):
    try:
        return main(words.split())
    except SystemExit as end:
        return end.code
"""
TASKS = "--base base --task cars=cars --task dtd=dtd"


def without_extras(folder: Path, code: str, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that has only the plain dependencies; ``package`` is the folder of another `tallmasks`."""
    environment = {**os.environ, "PYTHONPATH": str(package)} if package else None
    command = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    make_small(tmp_path)
    return tmp_path


def test_a_light_installation_merges_compresses_and_loads(models: Path) -> None:
    """Merging two models would need gigabytes of PyTorch, Snakemake and DVC."""
    done = without_extras(
        models,
        f"""
import numpy, safetensors.numpy, tallmasks
for number, method in enumerate(("task_arithmetic", "ties", "dare", "consensus_ties", "tsv_m", "iso_c", "swudi_a")):
    assert run(f"merge {TASKS} --method {{method}} -o merged{{number}}") == 0
for method in ("stochastic_rounding", "lossless", "task_arithmetic", "ties"):
    assert run(f"compress {TASKS} --method {{method}} -o {{method}}") == 0
    assert run(f"info {{method}}") == run(f"verify {{method}}") == 0
    assert run(f"export {{method}} --task cars -o {{method}}-cars") == 0
exported = safetensors.numpy.load_file("ties-cars/model.safetensors")
numpy.testing.assert_equal(tallmasks.load_bundle("ties").arrays("cars"), exported)
base, cars = {{"w": numpy.zeros(4, "f4")}}, {{"w": numpy.ones(4, "f4")}}
vectors = {{"cars": tallmasks.task_vector(base, cars)}}
assert tallmasks.apply(base, tallmasks.merge(vectors, "sum"))["w"].sum() == 4
""",
    )
    assert done.returncode == 0, done.stderr


def test_what_a_light_installation_lacks_is_one_line(models: Path) -> None:
    """A traceback would not say what to install."""
    words = f"merge {TASKS.replace('base base', 'base base/model.safetensors')} --method ties -o merged.pt"
    done = without_extras(
        models,
        f"""
import tallmasks
assert run({words!r}) == run("evaluate base --texts a.csv") == 1
assert run("compress {TASKS} -o bundle") == 0
try:
    tallmasks.load_bundle("bundle").state_dict("cars")
except tallmasks.TallmasksError as error:
    print(error, file=sys.stderr)
""",
    )
    assert done.returncode == 0, done.stderr
    lacking = [line for line in done.stderr.splitlines() if " needs " in line]
    assert ["pip install '.[torch]'" in line for line in lacking] == [True, False, True]
    assert "make install" in lacking[1]


def test_the_library_works_without_the_reproduction(models: Path) -> None:
    """The wheel has no reproduction: its users would see a traceback, or lose commands that need none of it."""
    shutil.copytree(Path(tallmasks.__file__).parent, models / "wheel/tallmasks")
    done = without_extras(
        models,
        f"""
import tallmasks
assert {str(models)!r} in tallmasks.__file__
assert run("compress {TASKS} -o bundle") == run("verify bundle bundle") == run("methods") == 0
assert [run(words) for words in ("verify base", "verify")] == [1, 2]
for command in ("doctor", "gc", "why x", "compare"):
    assert run(command) == 1, command
""",
        models / "wheel",
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("run it in the folder of a clone") == 4 and "expected the folder of a bundle" in done.stderr
    )


@pytest.mark.parametrize("code", ["import tallmasks", "run('--help')", "run('merge --help')"])
def test_help_and_import_wait_for_no_library(code: str, tmp_path: Path) -> None:
    """NumPy, numba and pydantic take seconds to import, which nobody waits for who only asks what there is."""
    libraries = ("numpy", "numba", "pydantic", "rich", "huggingface_hub", "safetensors")
    slow = libraries if "merge" not in code else ("torch", "huggingface_hub", "pydantic")
    done = without_extras(tmp_path, f"{code}\nprint(sorted(set({slow}) & set(sys.modules)), file=sys.stderr)")
    assert done.stderr == f"{sorted(set(slow) & set(ABSENT))}\n"
