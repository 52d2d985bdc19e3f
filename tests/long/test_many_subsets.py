"""Many benchmarks, 160 as in the paper's figure 5: the DAG has exactly the jobs that are missing."""

import itertools
import random
from collections import Counter
from pathlib import Path

from project import lay_out
from reproduction.plan.project import closure, open_plan
from reproduction.tasks.catalogues import catalogue


def test_160_benchmarks_of_every_method_share_their_jobs(tmp_path: Path) -> None:
    """A large experiment could not even be planned, or would do shared work once per subset."""
    project = lay_out(tmp_path / "project")
    tasks, draw = sorted(catalogue("tiny_worlds.drawn").tasks({})), random.Random(5)
    sets = {tuple(sorted(draw.sample(tasks, size))) for size in itertools.chain(*[range(2, 20)] * 40)}
    benchmarks = {f"set{n}": list(names) for n, names in enumerate([*draw.sample(sorted(sets), 159), tasks])}
    project.change(lambda params: params.update(methods="paper", benchmarks=benchmarks))
    nodes = closure(open_plan(project.root), "tiny")
    expected = Counter(node.kind for node in nodes)
    assert project.dry_run("all").planned == expected + Counter({"tables": 160})
