"""Input files must be regular files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_plain_json
from tallmasks.io.tensor_files import open_tensors
from tallmasks.io.yaml_files import read_foreign_yaml


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_pipes_devices_and_folders_are_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A command would wait forever for data in a named pipe, or read an endless device."""
    make(tmp_path / "values.safetensors")
    for read in (read_plain_json, open_tensors):
        with pytest.raises(TallmasksError, match=r"values\.safetensors"):
            read(tmp_path / "values.safetensors")


def test_a_foreign_yaml_file_cannot_stand_for_more_than_it_has(tmp_path: Path) -> None:
    """A recipe from somebody else took all memory, through aliases of aliases."""
    for text in ("a: &a [1]\nb: [*a, *a]\n", "# " + "x" * (1 << 20)):
        (tmp_path / "recipe.yaml").write_text(text)
        with pytest.raises(TallmasksError, match=r"recipe\.yaml"):
            read_foreign_yaml(tmp_path / "recipe.yaml")
