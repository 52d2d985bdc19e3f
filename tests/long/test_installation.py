"""The wheel in an environment of its own, away from any clone: what somebody has who only merges models.

Libraries come from the package index, as for `make install`.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from project import ROOT
from wheels import build_wheel

pytestmark = pytest.mark.xdist_group("installation")  # one environment for all of them
UV = Path(sys.executable).with_name("uv")


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel, and a folder with models, which is no clone."""

    root: Path

    def run(self, *command: str | Path) -> str:
        """Run a program of the environment in the folder of models, and return what it printed."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environ["PATH"] = f"{self.root / 'venv/bin'}:{environ['PATH']}"
        done = subprocess.run(command, cwd=self.root, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("elsewhere"))
    wheel = build_wheel(environment.root / "dist")
    environment.run(UV, "venv", "--quiet", "--python", sys.executable, "venv")
    environment.run(UV, "pip", "install", "--quiet", "--python", "venv", wheel)
    for number, name in enumerate(("base", "cars", "dtd")):
        (environment.root / name).mkdir()
        weight = np.arange(64, dtype=np.float32).reshape(8, 8) + number
        save_file({"w.weight": weight}, environment.root / name / "model.safetensors")
    return environment


def test_the_readme_works_with_the_wheel_alone(environment: Environment) -> None:
    """Whoever merges two models would have to clone the project and install 6 GB."""
    (commands,) = re.findall(r"^```\w*\n(tallmasks merge .*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    for line in commands.splitlines():
        environment.run(*line.split())
    loaded = """
import safetensors.numpy, tallmasks
again = safetensors.numpy.load_file("cars-again/model.safetensors")
print((tallmasks.load_bundle("./bundle").arrays("cars")["w.weight"] == again["w.weight"]).all())
"""
    assert environment.run("python", "-c", loaded) == "True\n"
    environment.run("tallmasks", "info", "./bundle")
    environment.run("tallmasks", "verify", "./bundle")


def test_the_wheel_brings_neither_torch_nor_the_workflow(environment: Environment) -> None:
    """A dependency of a dependency could bring them back."""
    listed = json.loads(environment.run(UV, "pip", "list", "--format", "json", "--python", "venv"))
    heavy = {"torch", "transformers", "datasets", "dvc", "snakemake", "pandas", "matplotlib", "scipy"}
    assert not heavy & {package["name"] for package in listed}


@pytest.mark.parametrize("extra", ["torch", "clip", "t5", "workflow"])
def test_every_extra_can_be_added(extra: str, environment: Environment) -> None:
    """The commands name an extra where a library is missing; its installation would end with an error."""
    environment.run(UV, "pip", "install", "--quiet", "--dry-run", "--python", "venv", f"tallmasks[{extra}]")
