"""Input files must be regular files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tallmasks.errors import TallmasksError
from tallmasks.io.plain_files import read_plain_json
from tallmasks.io.tensor_files import open_tensors
from tallmasks.io.yaml_files import read_foreign_yaml
from tallmasks.vectors.checkpoints.torch_files import tensors_in

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (lambda path: path.write_text(POINTER), "a pointer of Git LFS, .*`git lfs pull`"),
    ],
)
def test_what_is_no_file_with_content_is_refused(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    """A command would wait forever for data in a named pipe, read an endless device, or call a download damaged."""
    make(tmp_path / "values.safetensors")
    for read in (read_plain_json, open_tensors, tensors_in):
        with pytest.raises(TallmasksError, match=rf"values\.safetensors.*{problem}"):
            read(tmp_path / "values.safetensors")


def test_a_foreign_yaml_file_cannot_stand_for_more_than_it_has(tmp_path: Path) -> None:
    """A recipe from somebody else took all memory, through aliases of aliases."""
    for text in ("a: &a [1]\nb: [*a, *a]\n", "# " + "x" * (1 << 20)):
        (tmp_path / "recipe.yaml").write_text(text)
        with pytest.raises(TallmasksError, match=r"recipe\.yaml"):
            read_foreign_yaml(tmp_path / "recipe.yaml")
