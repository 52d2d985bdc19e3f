"""`dvc exp run`, in the project's folder, in one of its own and from the queue."""

import json

from project import Project

COSTS = {"evaluate": 4, "results": 2}  # two methods on two benchmarks have scaling coefficients


def grid(*values: float) -> str:
    return f"grids.scaling_coefficient=[{','.join(map(str, values))}]"


def test_experiments_cost_only_what_changed(project: Project) -> None:
    """An experiment in a folder of its own, or from the queue, would start with fine-tuning."""
    here = project.dvc("exp", "run", "-n", "here", "-S", grid(0.0, 1.0))
    assert here.jobs == COSTS
    assert project.dvc("exp", "run", "--temp", "-n", "aside", "-S", grid(0.0, 0.4)).jobs == COSTS
    project.dvc("exp", "run", "--queue", "-n", "queued", "-S", grid(0.0, 0.8))
    assert project.dvc("exp", "run", "--run-all").jobs == COSTS
    table = json.loads(project.dvc("exp", "show", "--json").output)
    names = {run["name"] for entry in table for run in entry["experiments"] or [] for run in run["revs"]}
    assert names == {"here", "aside", "queued"}
    assert project.path("params.yaml").read_text().count("0.8") == 0, "the queue works elsewhere"
