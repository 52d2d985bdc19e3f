"""Many benchmarks, 160 as in the paper's figure 5: the DAG has exactly the jobs that are missing."""

import hashlib
import itertools
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from project import Project, Run, lay_out, read_json
from tallmasks.plan import recipes
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS
from tallmasks.store.artifacts import as_metadata, facts_of, read_label, sealed
from tallmasks.store.seals import CONTENT, SEAL, content_of_json, content_of_tensors, seal_of
from tallmasks.tasks.catalogues import catalogue

pytestmark = pytest.mark.xdist_group("many subsets")  # one project for both tests

RULES = {
    "examples": "examples", "head": "head", "checkpoint": "finetune", "task_vector": "task_vector",
    "task_evaluation": "evaluate_task", "multi_task_vector": "merge", "mask_bundle": "mask", "agreement": "consensus",
    "evaluation": "evaluate",
}  # fmt: skip


@pytest.fixture(scope="module", params=[12, 160])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with so many different benchmarks of 2 to 20 tasks, every method, and nothing built."""
    project = lay_out(tmp_path_factory.mktemp("many") / "project")
    tasks, draw = sorted(catalogue("drawn").tasks({})), random.Random(5)
    sets = {tuple(sorted(draw.sample(tasks, size))) for size in itertools.chain(*[range(2, 20)] * 40)}
    chosen = draw.sample(sorted(sets), request.param - 1)
    project.change(
        lambda params: params.update(
            methods="all", benchmarks={f"set{n}": list(names) for n, names in enumerate([*chosen, tasks])}
        )
    )
    return project


def plan_of(project: Project) -> Plan:
    return Plan(yaml.safe_load(project.path("params.yaml").read_text()), project.root)


def pretend(root: Path, node: Node, identities: dict[str, str]) -> str:
    """Put a small artifact in a node's place, and before it all that it is made from; its identity."""
    if node.path not in identities:
        made_from = {
            role: [pretend(root, needed, identities) for needed in nodes] for role, nodes in node.inputs.items()
        }
        facts, path = facts_of(node.recipe, made_from, 1), root / node.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            path.write_text(json.dumps(sealed(facts)))
        else:
            values = np.zeros(1, np.uint8)
            metadata = as_metadata(facts) | {CONTENT: content_of_tensors([("a", "U8", [1])], values)}
            save_file({"a": values}, path, metadata | {SEAL: seal_of(metadata)})
        identities[node.path] = read_label(path).identity
    return identities[node.path]


def test_nothing_is_there(many: Project) -> None:
    """A large experiment could not even be planned, or would do shared work once per subset."""
    expected = Counter(RULES[node.kind] for node in plan_of(many).index.closure("tiny"))
    assert many.dry_run("all").planned == expected + Counter({"results": len(plan_of(many).params["benchmarks"])})


def test_everything_is_there(built: tuple[Project, Run], many: Project) -> None:
    """Asking for one more table of a large experiment would take longer than making it."""
    plan = plan_of(many)
    identities: dict[str, str] = {}
    for node in plan.index.closure("tiny"):
        pretend(many.root, node, identities)
    files = list(read_json(built[0].path("results/tiny/two/provenance.json"))["sha256"])
    for benchmark in plan.params["benchmarks"]:
        folder = many.path("results/tiny", benchmark)
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).write_text(benchmark)
        vouched = {"sha256": dict.fromkeys(files, hashlib.sha256(benchmark.encode()).hexdigest())}
        behind = VIEWS["benchmark"].artifacts(plan, "tiny", benchmark)
        made_from = {role: [identities[node.path] for node in nodes] for role, nodes in behind.items()}
        provenance = facts_of(recipes.of_view(plan, VIEWS["benchmark"], "tiny", benchmark), made_from, 1) | vouched
        provenance[CONTENT] = content_of_json(vouched)
        (folder / "provenance.json").write_text(json.dumps(provenance | {SEAL: seal_of(provenance)}))
    assert "Nothing to be done" in many.dry_run("all").output
    lost = next(node for node in plan.index.closure("tiny") if node.kind == "multi_task_vector")
    many.path(lost.path).unlink()
    assert "Nothing to be done" in many.dry_run("all").output, "a lost intermediate re-runs nothing that is there"
    many.path("results/tiny/set7/table.csv").write_text("another")
    assert many.dry_run("all").planned == {"results": 1}
