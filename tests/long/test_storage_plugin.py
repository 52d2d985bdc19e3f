"""Without a file system that all machines share: Snakemake keeps every file in a storage, here a folder."""

import shutil

import pytest

from project import Project
from remote_servers import PACKAGES, lacking

pytestmark = pytest.mark.skipif(bool(lacking()) or not shutil.which("rsync"), reason=lacking() or "no rsync")
TABLE = "results/tiny/two/table.csv"


def test_a_storage_gets_the_same_bytes(project: Project) -> None:
    """On Kubernetes every job would end with "output files are missing": it wrote beside Snakemake's own copy."""
    before = project.sha256("store", "results")
    storage = project.root.with_name("storage")
    for folder in ("store", "results"):
        shutil.rmtree(project.path(folder))
    shutil.copytree(project.path("models"), storage / "models")
    apart = Project(project.root, {"PYTHONPATH": f"{project.root / 'src'}:{PACKAGES}"})
    options = f"--default-storage-provider fs --default-storage-prefix {storage} --shared-fs-usage none"
    first, second = (apart.run("snakemake", "-j2", *options.split(), "--", TABLE) for _ in range(2))
    assert first.jobs["tables"] == 1 and not second.jobs
    made = Project(storage).sha256("store", "results")
    assert made and made == {path: before[path] for path in made}
