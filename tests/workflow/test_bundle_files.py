"""Bundles through the real Snakemake: what is in them, what is made for them, and what happens to them."""

from pathlib import Path

import pytest

from project import METHODS, Project, Run, read_json
from tallmasks.bundles.verification import verify_bundle

pytestmark = [pytest.mark.xdist_group("bundle_files"), pytest.mark.long]  # builds one bundle first, once
FOLDER = "results/tiny/two/bundle"
TARGET = f"{FOLDER}/bundle.json"
MASKED = {"tall_mask_ties": {"bits": 3}}


@pytest.fixture(scope="module")
def bundled(built: tuple[Project, Run], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The bundle of two tasks, made of what is there."""
    project = built[0].copy(tmp_path_factory.mktemp("bundled") / "project")
    project.change(lambda params: params.update(methods=[*METHODS, MASKED], bundle=MASKED))
    of_two_tasks = {"merge", "mask", "evaluate", "bundle_archive", "bundle"}
    assert project.snakemake(TARGET).jobs.keys() == of_two_tasks
    fine_tuned = {"examples", "head", "finetune", "task_vector", "evaluate_task"}
    assert project.run("snakemake", "-n", "-F", "--", TARGET).planned.keys() == fine_tuned | of_two_tasks
    return project


@pytest.fixture
def project(bundled: Project, tmp_path: Path) -> Project:
    return bundled.copy(tmp_path / "copy")


def test_a_second_call_does_nothing_and_nothing_is_for_git(project: Project) -> None:
    """A bundle would be written with every call, and lie in everybody's git for ever."""
    assert not project.snakemake(TARGET).jobs
    assert "would not be rebuilt" in project.tallmasks("why", TARGET).output
    assert not project.git("status", "--porcelain", "results").output
    assert FOLDER in project.dvc("check-ignore", TARGET).output


def test_damage_is_seen_and_a_bundle_is_put_right(project: Project) -> None:
    """A flipped bit of a mask would give a model that nobody evaluated."""
    assert "0 problems" in project.tallmasks("verify").output
    before = project.sha256(FOLDER)
    mask = project.path(FOLDER, "masks", "mnist.safetensors")
    archive = project.one("store/tiny/derived/bundle_archive/*")
    content = mask.read_bytes()
    project.damage(mask, content[:-1] + bytes([content[-1] ^ 1]))
    assert "masks/mnist.safetensors" in project.tallmasks("verify", fails=True).output
    assert project.snakemake(TARGET).jobs.keys() == {"bundle"}
    project.damage(archive, archive.read_bytes()[:-1])
    assert archive.name in project.tallmasks("verify", fails=True).output
    mask.unlink()
    assert project.snakemake(TARGET).jobs.keys() == {"bundle_archive", "bundle"}
    now = project.sha256(FOLDER)
    assert {name for name in before if now.get(name) != before[name]} <= {f"{FOLDER}/provenance.json"}


def test_another_grid_or_method_costs_what_follows_from_it_and_gc_knows_bundles(project: Project) -> None:
    """Old masks would stay in a bundle; or cleaning up would remove the bundle, or leave what a killed job left."""
    assert "nothing to remove" in project.tallmasks("gc", "--yes").output
    left = project.path(
        "store/tiny/derived/bundle_archive/.tall_mask_ties.0123456789ab.tmp/.bundle.ba9876543210.tmp/masks"
    )
    left.mkdir(parents=True)
    (left / "mnist.safetensors").touch()
    project.change(lambda params: params["grids"].update(mask_lambda=[0.3, 0.5]))
    assert project.snakemake(TARGET).jobs.keys() == {"mask", "evaluate", "bundle_archive", "bundle"}
    assert set(read_json(project.path(TARGET))["mask_lambda"].values()) <= {0.3, 0.5}
    removed = project.tallmasks("gc", "--yes").output
    assert "mnist.safetensors" in removed and "derived/bundle_archive/tall_mask_ties" in removed
    assert len(list(project.path("store/tiny/derived/bundle_archive").iterdir())) == 1
    project.change(lambda params: params.pop("bundle"))
    assert project.snakemake(TARGET).jobs.keys() == {"bundle_archive", "bundle"}
    assert verify_bundle(project.path(FOLDER)) == [], "what each task has of its own comes in the place of masks"
