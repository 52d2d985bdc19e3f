"""A remote on S3 and one over SSH, on the loopback, set up by the commands of docs/share.md; a storage for all files.

The S3 server is moto's. The SSH server is asyncssh's, which serves files alone, as DVC needs them.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import ROOT
from project import Project
from remote_servers import PACKAGES, lacking, server

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())
SECTION = "A remote for you, or for a group"


@dataclass(frozen=True)
class Remote:
    """A server, and what a user of it has.

    Attributes:
        commands: The page's commands, with this server's address.
        login: Environment of who may use it.
        wrong_login: Environment of who may not.
        refusal: What DVC says to the latter.
    """

    commands: list[list[str]]
    login: dict[str, str]
    wrong_login: dict[str, str]
    refusal: str

    def user(self, root: Path, login: dict[str, str] | None = None) -> Project:
        """A working copy in the hands of somebody who has DVC's plugins."""
        path = f"{root / 'src'}:{PACKAGES}"
        return Project(root, {"PYTHONPATH": path, "NO_PROXY": "127.0.0.1", **(login or self.login)})


def commands_of_the_page(section: str, block: int, example: str = "", address: str = "") -> list[list[str]]:
    """The commands of one block of a section of docs/share.md, with an address in the example's place, but for make."""
    page = (ROOT / "docs" / "share.md").read_text().replace(example or "\0", address)
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", page, re.M | re.S)
    lines = re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)[block].splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    return [words for words in commands if words and words[0] != "make"]


@pytest.fixture(params=["s3", "ssh"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    if request.param == "s3":
        with server("s3") as (port, key, secret):
            commands = commands_of_the_page(SECTION, 0, "https://s3.example.org", f"http://127.0.0.1:{port}")
            login = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "HOME": str(tmp_path)}
            yield Remote(commands, login, login | {"AWS_SECRET_ACCESS_KEY": "another"}, "Forbidden")
        return
    homes = [tmp_path / name for name in ("home", "other_home")]
    for home in homes:
        (home / ".ssh").mkdir(parents=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / ".ssh" / "id_ed25519"], check=True)
    (tmp_path / "disk" / "data").mkdir(parents=True)
    with server("ssh", str(tmp_path / "disk"), str(homes[0] / ".ssh" / "id_ed25519.pub")) as (port,):
        commands = commands_of_the_page(SECTION, 1, "user@host", f"user@127.0.0.1:{port}")
        login, wrong_login = ({"HOME": str(home), "SSH_AUTH_SOCK": ""} for home in homes)
        yield Remote(commands, login, wrong_login, "Permission denied for user user on host 127.0.0.1")


def test_another_machine_goes_on_from_a_remote(remote: Remote, project: Project, tmp_path: Path) -> None:
    """A group's checkpoints would stay on one machine, or be sent again where they have arrived."""
    here = remote.user(project.root)
    push, commit = commands_of_the_page(SECTION, 3)[::-1]
    for words in [*remote.commands, commit]:
        here.run(*words)
    refused = remote.user(project.root, remote.wrong_login).dvc("push", fails=True).output
    (line,) = re.findall(r"^ERROR: .*", refused, re.M)
    assert remote.refusal in line and "Traceback" not in refused
    total = sum(1 for path in here.path(".dvc/cache").rglob("*") if path.is_file())
    here.dvc("push", "-q", "store/tiny/checkpoints")
    (pushed,) = re.findall(r"(\d+) files? pushed", here.run(*push).output)
    assert 0 < int(pushed) < total

    here.run("git", "clone", "-q", str(here.root), str(tmp_path / "elsewhere" / "clone"))
    there = remote.user(tmp_path / "elsewhere" / "clone")
    assert ["dvc", "pull"] in commands_of_the_page("On another machine", 0)
    there.dvc("pull", "-q", "store/tiny/checkpoints")
    (fetched,) = re.findall(r"(\d+) files? fetched", there.dvc("pull").output)
    assert 0 < int(fetched) < total
    assert there.sha256("store", "results") == here.sha256("store", "results")
    assert not there.dry_run().planned


TABLE = "results/tiny/two/table.csv"


@pytest.mark.skipif(not shutil.which("rsync"), reason="no rsync")
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
