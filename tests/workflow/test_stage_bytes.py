"""What every stage makes of a small project, beside what it made when stages.json was recorded.

The name of an artifact is a digest of its recipe, and changed code changes no recipe: the stage's `version=` does.  So
one recipe must give the same bytes for ever on one kind of machine, and the same but for rounding on another.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from conftest import PARAMS
from project import METHODS, ROOT, Project, Run, read_json
from tallmasks import methods
from tallmasks.artifacts.labels import FILES, digest_of, read_label
from tallmasks.io.content_digests import NOT_CONTENT, content_of_json, content_of_tensors
from tallmasks.io.tensor_files import open_tensors
from tallmasks.plan.index import Index  # noqa: F401  (declares every stage)
from tallmasks.plan.node import stage_versions

pytestmark = pytest.mark.xdist_group("paper")  # goes on from every table and figure of the paper
RECORD = Path(__file__).with_name("stages.json")
HOW = "make record"
FIELD = "results/tiny/three/field.csv"
FIGURE = "results/tiny/figures/field_pareto.svg"
NOT_BUILT = {"field_seeds", "pretrained", "held_out", "evaluate_unseen", "learn"}
"""The first is the step of `seeds` on the methods of `field`; the second makes weights of networks with other words.
`test_held_out.py` and `test_learned.py` in `tests/long` have the others."""
REST = (
    *(f"results/tiny/three/{name}" for name in ("zeroshot.csv", "seeds/table.csv", "bundle/bundle.json")),
    "results/tiny_t5/texts/table.csv",
    "checkpoints_imported",
)


def other_models(params: dict[str, Any]) -> None:
    """The tiny language model beside the other, and a model of foreign checkpoints."""
    tiny, texts = params["models"]["tiny"], yaml.safe_load(PARAMS.read_text())["models"]["tiny_t5"]
    texts["examples"].update(train=32, validation=24, test=24)
    texts["finetuning"].update(iterations=3, batch_size=16, warmup_iterations=1)
    imported = {**tiny, "checkpoints": "foreign"}
    params["models"] = {"tiny": tiny, "tiny_t5": texts, "imported": imported}
    params["benchmarks"] |= {"texts": ["qasc", "paws"]}
    params["build"] = ["tiny"]
    params["methods"] = [*METHODS, "tall_mask_ties", "consensus_ties"]
    params["seeds"] = [0, 1]


@pytest.fixture(scope="module")
def field(paper: Project, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """The figure of every method, and the run that drew it."""
    project = paper.copy(tmp_path_factory.mktemp("every") / "project")
    return project, project.snakemake(FIGURE)


@pytest.fixture(scope="module")
def every_stage(field: tuple[Project, Run]) -> Project:
    """A project with something of every stage."""
    project, _ = field
    shutil.copy(ROOT / "models/tiny_t5.safetensors", project.path("models"))
    weights = load_file(project.path("models/tiny.safetensors"))
    project.path("foreign").mkdir()
    for number, task in enumerate(("mnist", "svhn", "dtd"), 1):
        trained = {name: np.asarray(array + 0.01 * number) for name, array in weights.items() if "visual." in name}
        save_file(trained, project.path(f"foreign/{task}.safetensors"))
    project.change(other_models)
    project.snakemake(*REST)
    return project


def test_the_long_table_has_every_method_and_the_benchmarks_table_does_not(
    paper: Project, field: tuple[Project, Run]
) -> None:
    """A later method would be left out of the one table that is for all of them, or get into the paper's, whose
    numbers people have cited; or published numbers of other models would stand beside the tiny model's; or the
    figure of all methods would be drawn before its table is there."""
    project, run = field
    assert run.jobs["field"] == 1 and run.jobs["finetune"] == run.jobs["task_vector"] == run.jobs["tables"] == 0
    assert run.jobs["statistic"] == 6, "what RegMean and Fisher merging look at of each task's data"
    table = pd.read_csv(project.path(FIELD)).set_index("method")
    assert set(table.index) == set(methods.names()) - set(methods.needing("learn"))
    before = paper.path("results/tiny/three/table.csv")
    assert project.path("results/tiny/three/table.csv").read_bytes() == before.read_bytes()
    shown = pd.read_csv(before).set_index("method")
    assert set(METHODS) < set(shown.index) < set(table.index)
    for name in ("accuracy", "normalized_accuracy", "storage_gb"):
        assert table.loc[shown.index, name].to_dict() == shown[name].to_dict()
    assert set(table.index[table["stored_gb"].isna()]) == {"magnitude_pruning"}, "which has no format"
    assert all(project.path(f"results/tiny/three/field.{ending}").stat().st_size > 500 for ending in ("md", "tex"))
    assert not project.path("results/tiny/three/vs_published.csv").exists()
    assert project.dry_run(FIELD, FIGURE).planned == {}
    forced = project.run("snakemake", "-n", "-R", "field", "--", FIGURE)
    assert forced.planned == {"field": 1, "figure_field_pareto": 1}
    assert "would not be rebuilt" in project.tallmasks("why", FIELD).output


def made(project: Project) -> Iterator[tuple[str, str, str, list[float]]]:
    """Of every artifact and every set of results: its stage, its recipe's digest, the digest of its values, and means
    of its values."""
    for path in sorted(project.path("store").rglob("*-*.*")):
        label = read_label(path)
        content, means = label.content, json_means
        if path.suffix == ".safetensors":  # without the metadata
            tensors, means = open_tensors(path), tensor_means
            content = content_of_tensors(tensors.described, tensors.data, {})
        yield label.recipe["kind"], digest_of(label.recipe), content, means(path)
    for path in sorted(project.path("results").rglob("*provenance.json")):
        provenance = read_json(path)
        tables = [path.parent / name for name in provenance[FILES] if name.endswith(".csv")]
        means = [pd.read_csv(table).select_dtypes("number").abs().stack().mean() for table in tables]
        recipe = provenance["recipe"]
        yield recipe["kind"], digest_of(recipe), content_of_json({FILES: provenance[FILES]}), means


def tensor_means(path: Path) -> list[float]:
    return [float(np.abs(array.astype(np.float64)).mean()) for array in load_file(path).values() if array.size]


def json_means(path: Path) -> list[float]:
    def numbers(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            yield from (number for inner in value for number in numbers(inner))
        elif isinstance(value, int | float):
            yield float(value)

    return [float(np.mean(list(numbers({key: v for key, v in read_json(path).items() if key not in NOT_CONTENT}))))]


def summary(project: Project) -> dict[str, Any]:
    """What there is to record: by stage its number, the mean of all values, and the content by recipe."""
    stages: dict[str, Any] = {}
    means: dict[str, list[float]] = {}
    for kind, recipe, content, values in made(project):
        stages.setdefault(kind, {"version": stage_versions()[kind], "mean": 0.0, "contents": {}})
        stages[kind]["contents"][recipe] = content[:8]
        means.setdefault(kind, []).extend(values)
    for kind, values in means.items():
        numbers = [value for value in values if np.isfinite(value)]
        stages[kind]["mean"] = float(f"{np.mean(numbers):.6g}") if numbers else 0.0
    (machine, *_) = {read_json(path)["machine"] for path in project.path("results").rglob("*provenance.json")}
    return {"machine": hashlib.sha256(machine.encode()).hexdigest()[:8], "stages": dict(sorted(stages.items()))}


def record(now: dict[str, Any]) -> None:
    """Write the summary, a line per stage."""
    lines = [f'"{name}": {json.dumps(stage)}' for name, stage in now["stages"].items()]
    RECORD.write_text(f'{{"machine": "{now["machine"]}", "stages": {{\n' + ",\n".join(lines) + "\n}}\n")


def problems(recorded: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """The stages that make something else of a recipe than was recorded."""
    for name, stage in now["stages"].items():
        before = recorded["stages"].get(name, {"mean": 0.0, "contents": {}})
        if recorded["machine"] == now["machine"]:
            other = [
                recipe
                for recipe, content in stage["contents"].items()
                if before["contents"].get(recipe, content) != content
            ]
        else:
            rounded = stage["mean"] == pytest.approx(before["mean"], rel=0.02)
            other = [] if rounded or stage["contents"].keys() != before["contents"].keys() else list(stage["contents"])
        if other:
            yield (
                f"stage {name}: the bytes of {', '.join(other)} changed under the same recipe; raise version= (now "
                f"{stage['version']}) where the stage is declared, in src/tallmasks/plan/, or mend it; then `{HOW}`"
            )


def test_one_recipe_gives_the_same_bytes_as_ever(every_stage: Project) -> None:
    """Artifacts of the old code would stay in everybody's store under the names of what the new code makes."""
    now = summary(every_stage)
    assert now["stages"].keys() == stage_versions().keys() - NOT_BUILT
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"machine": "", "stages": {}}
    wrong = list(problems(recorded, now))
    assert not wrong, "\n".join(wrong)
    if "TALLMASKS_RECORD" in os.environ:
        record(now)
        return
    for name, stage in now["stages"].items():
        before = recorded["stages"].get(name, {"contents": {}})
        assert stage["contents"].keys() == before["contents"].keys(), (
            f"stage {name} has other recipes than those recorded; where that is meant, record them with `{HOW}`"
        )


def test_other_bytes_of_one_recipe_are_found() -> None:
    """The comparison above would pass whatever a stage makes."""

    def of(content: str, mean: float, machine: str = "a") -> dict[str, Any]:
        return {"machine": machine, "stages": {"mask": {"version": 2, "mean": mean, "contents": {"0123": content}}}}

    (line,) = problems(of("x", 1.0), of("y", 1.0))
    assert line.startswith("stage mask: the bytes of 0123 changed") and "raise version= (now 2)" in line
    assert not list(problems(of("x", 1.0), of("x", 1.0)))
    assert not list(problems(of("x", 1.0), of("y", 1.001, "b"))), "rounding"
    assert list(problems(of("x", 1.0), of("y", 1.5, "b")))
