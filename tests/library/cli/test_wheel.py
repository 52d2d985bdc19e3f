"""What the wheel holds, and what it asks for; `tests/long/test_installation.py` installs it."""

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import tallmasks
from project import ROOT
from wheels import build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_is_the_package_alone(wheel: zipfile.ZipFile) -> None:
    """Users of the library would also install the reproduction, and its commands would ask them for Snakemake."""
    names = wheel.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tallmasks"}
    package = Path(tallmasks.__file__).parent
    shipped = {f"tallmasks/{path.relative_to(package)}" for path in package.rglob("*") if path.is_file()}
    assert {name for name in shipped if "__pycache__" not in name} <= set(names)


def test_the_version_and_the_address_are_the_same_everywhere(wheel: zipfile.ZipFile) -> None:
    """A bug report or a citation would name a version whose changes nobody can look up, or another repository."""
    versions = re.findall(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    citation = (ROOT / "CITATION.cff").read_text()
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == tallmasks.__version__ == versions[0]
    assert f"version: {tallmasks.__version__}\n" in citation
    addresses = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    cited = re.search(r"^repository-code: (\S+)", citation, re.M)
    assert addresses.get("Repository") == (cited and cited[1])
