"""The wheel in an environment of its own, away from any clone: what somebody has who only merges models.

Libraries come from the package index, as for `make install`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wheels import build_wheel

pytestmark = pytest.mark.xdist_group("installation")  # one environment for all of them
UV = Path(sys.executable).with_name("uv")


def run(root: Path, *command: str | Path) -> str:
    """Run a program of the environment in the folder of models, which is no clone; what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ["PATH"] = f"{root / 'venv/bin'}:{environ['PATH']}"
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("elsewhere")
    run(root, UV, "venv", "--quiet", "--python", sys.executable, "venv")
    run(root, UV, "pip", "install", "--quiet", "--python", "venv", build_wheel(root / "dist"))
    return root


def test_the_wheel_alone_merges_compresses_and_exports(environment: Path) -> None:
    """Merging two models would need a clone of the project and 6 GB of libraries."""
    models = "--base demo/base --task cars=demo/cars --task dtd=demo/dtd"
    for words in (
        "example demo",
        f"merge {models} --method ties --heads -o merged",
        f"compress {models} -o bundle",
        "export bundle --task cars -o cars",
        "verify bundle",
    ):
        run(environment, "tallmasks", *words.split())
    loaded = """
import safetensors.numpy, tallmasks
exported = safetensors.numpy.load_file("cars/model.safetensors")
restored = tallmasks.load_bundle("bundle").arrays("cars")
print(all((restored[name] == exported[name]).all() for name in exported))
"""
    assert run(environment, "python", "-c", loaded) == "True\n"


def test_the_wheel_brings_neither_torch_nor_the_workflow(environment: Path) -> None:
    """A dependency of a dependency could bring them back."""
    listed = json.loads(run(environment, UV, "pip", "list", "--format", "json", "--python", "venv"))
    heavy = {"torch", "transformers", "datasets", "dvc", "snakemake", "pandas", "matplotlib", "scipy"}
    assert not heavy & {package["name"] for package in listed}
