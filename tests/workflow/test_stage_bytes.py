"""Compares what every stage makes of a small project with stages.json, which `make record` writes.

Changed code of a stage does not change a recipe; only the stage's `version=` does. So a stage must give the same bytes
on one kind of machine, and the same up to rounding on another, or have another version.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from conftest import shipped_params
from project import METHODS, ROOT, Project, Run, quick, read_json
from reproduction.artifacts.labels import FILES, read_label
from reproduction.plan.node import stage_versions
from reproduction.plan.project import Index  # noqa: F401  (declares every stage)
from tallmasks import methods
from tallmasks.io.content_digests import NOT_CONTENT, content_of_json, content_of_tensors
from tallmasks.io.tensor_files import open_tensors
from tallmasks.methods.merges import LEARNED

pytestmark = pytest.mark.xdist_group("paper")  # goes on from every table and figure of the paper
RECORD = Path(__file__).with_name("stages.json")
TOLERANCE = 0.02
"""Between the norms of a stage on two kinds of machines. Its values differ more: training amplifies rounding errors to
2 % of a task vector, and then some weights are in other masks, and streams have other lengths."""
FIELD = "results/tiny/three/field.csv"
FIGURE = "results/tiny/figures/field_pareto.svg"
NOT_BUILT = {"field_seeds", "pretrained", "held_out", "evaluate_unseen", "learn"}
"""The first is the step of `seeds` on the methods of `field`; the second makes weights of networks with other words.
`tests/long/test_held_out.py` has the others."""
REST = (
    *(f"results/tiny/three/{name}" for name in ("zeroshot.csv", "seeds/table.csv", "bundle/bundle.json")),
    "results/tiny_t5/texts/table.csv",
    "checkpoints_imported",
)


def other_models(params: dict[str, Any]) -> None:
    """The tiny language model beside the other, and a model of foreign checkpoints."""
    tiny, texts = params["models"]["tiny"], quick(shipped_params()["models"]["tiny_t5"])
    params["models"] = {"tiny": tiny, "tiny_t5": texts, "imported": {**tiny, "checkpoints": "foreign"}}
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
    """A later method would be missing in the table of all methods, or change the paper's table."""
    project, run = field
    assert run.jobs["field"] and not {"finetune", "task_vector", "tables"} & {*run.jobs}
    table = pd.read_csv(project.path(FIELD)).set_index("method")
    assert set(table.index) == set(methods.names()) - set(methods.needing(LEARNED))
    before = paper.path("results/tiny/three/table.csv")
    assert project.path("results/tiny/three/table.csv").read_bytes() == before.read_bytes()
    shown = pd.read_csv(before).set_index("method")
    assert set(METHODS) < set(shown.index) < set(table.index)
    for name in ("accuracy", "normalized_accuracy", "formula_gbit"):
        assert table.loc[shown.index, name].to_dict() == shown[name].to_dict()
    has_size = table["file_gbit"].notna()
    assert has_size[["ties", "fine_tuned", "stochastic_rounding", "lossless"]].all()
    assert not has_size[["tall_mask_ties", "magnitude_pruning", "rtvq", "emr"]].any(), "nobody has written their files"
    assert project.dry_run(FIELD, FIGURE).planned == {}


def made(project: Project) -> Iterator[tuple[str, str, str, float]]:
    """The stage, the path, the content's digest and the sum of squares of every artifact and set of results."""
    for path in sorted(project.path("store").rglob("*-*.*")):
        label = read_label(path)
        content, numbers = label.content, [np.array([*numbers_of(read_json(path))])] if path.suffix == ".json" else []
        if path.suffix == ".safetensors":  # without the metadata
            tensors = open_tensors(path)
            content = content_of_tensors(tensors.infos, tensors.data, {})
            numbers = [array for _, array in sorted(load_file(path).items())]
        yield label.recipe["kind"], name_of(project, path), content, squares(numbers)
    for path in sorted(project.path("results").rglob("*provenance.json")):
        provenance = read_json(path)
        tables = [path.parent / name for name in sorted(provenance[FILES]) if name.endswith(".csv")]
        numbers = [pd.read_csv(table).select_dtypes("number").to_numpy() for table in tables]
        content = content_of_json({FILES: provenance[FILES]})
        yield provenance["recipe"]["kind"], name_of(project, path), content, squares(numbers)


def name_of(project: Project, path: Path) -> str:
    """The path below store/ or results/, without the digest of the recipe."""
    name = path.relative_to(project.root).as_posix().partition("/")[2]
    return re.sub(r"-[0-9a-f]{12}\.\w+$|[./]provenance\.json$", "", name)


def numbers_of(value: Any) -> Iterator[float]:
    """All numbers of a JSON value, in the order of its keys."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value) if key not in NOT_CONTENT]
    if isinstance(value, list):
        yield from (number for inner in value for number in numbers_of(inner))
    elif isinstance(value, int | float):
        yield float(value)


def squares(arrays: list[np.ndarray]) -> float:
    """The sum of squares of all numbers."""
    numbers = np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays] or [np.empty(0)])
    numbers = np.where(np.isfinite(numbers), numbers, 0)
    return float(numbers @ numbers)


def summary(project: Project) -> dict[str, Any]:
    stages: dict[str, dict[str, Any]] = {}
    for kind, name, content, total in made(project):
        stage = stages.setdefault(kind, {"version": stage_versions()[kind], "norm": 0.0, "contents": {}})
        stage["norm"] += total
        stage["contents"][name] = content[:8]
    for stage in stages.values():
        stage["norm"] = float(f"{stage['norm'] ** 0.5:.7g}")
    (machine, *_) = {read_json(path)["machine"] for path in project.path("results").rglob("*provenance.json")}
    return {"machine": hashlib.sha256(machine.encode()).hexdigest()[:8], "stages": dict(sorted(stages.items()))}


def changed(before: dict[str, Any], now: dict[str, Any], same_machine: bool) -> list[str]:
    """The names of a stage's artifacts that differ from the record; on another machine all, if their norm does."""
    if same_machine:
        names = before["contents"].keys() | now["contents"].keys()
        return sorted(name for name in names if before["contents"].get(name) != now["contents"].get(name))
    return ["its norm"] if abs(now["norm"] - before["norm"]) > TOLERANCE * before["norm"] else []


def test_a_stage_makes_the_same_bytes_as_ever(every_stage: Project) -> None:
    """Artifacts of the old code would stay in everybody's store under the names of what the new code makes."""
    now = summary(every_stage)
    assert now["stages"].keys() == stage_versions().keys() - NOT_BUILT
    if "TALLMASKS_RECORD" in os.environ:
        lines = [f'"{name}": {json.dumps(stage)}' for name, stage in now["stages"].items()]
        RECORD.write_text(f'{{"machine": "{now["machine"]}", "stages": {{\n' + ",\n".join(lines) + "\n}}\n")
        return
    recorded = json.loads(RECORD.read_text())
    wrong = [
        f"stage {name}: {', '.join(others)} changed: mend it, or, if its code and not a method or a value of a recipe "
        f"changed, raise version= (now {stage['version']}) in src/reproduction/plan/; then `make record`"
        for name, stage in now["stages"].items()
        if (others := changed(recorded["stages"][name], stage, recorded["machine"] == now["machine"]))
    ]
    assert not wrong, "\n".join(wrong)
