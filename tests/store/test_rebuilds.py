"""What is built again, and what is not: exact job counts of the real engines."""

import re
from collections import Counter
from typing import Any

import pytest

from store.project import Project, Run

EVERYTHING = {
    "examples": 9,
    "head": 3,
    "finetune": 3,
    "task_vector": 3,
    "evaluate_task": 6,
    "merge": 2,
    "mask": 2,
    "consensus": 2,
    "evaluate": 6,
    "results": 2,
}
VIEWS = {"results": 2}


def test_a_first_run_does_everything_once_and_a_second_nothing(built: tuple[Project, Run], project: Project) -> None:
    """A user would wait again for what is there."""
    assert built[1].jobs == EVERYTHING
    again = project.dvc("repro")
    assert not again.jobs and "up to date" in again.output
    assert "up to date" in project.dvc("status").output
    assert "Nothing to be done" in project.dry_run().output
    assert not project.snakemake("all").jobs
    assert not project.git("status", "--porcelain").output


def test_a_new_subset_costs_its_new_task_and_its_own_jobs(project: Project) -> None:
    """A new subset would fine-tune again; the same set under another name would be computed twice."""
    project.benchmark("again", ["dtd", "mnist", "svhn"])
    assert project.snakemake("results/tiny/again/table.csv").jobs == {"results": 1}
    project.benchmark("new", ["mnist", "cars"])
    new_task = {"examples": 3, "head": 1, "finetune": 1, "task_vector": 1, "evaluate_task": 2}
    own = {"merge": 1, "mask": 1, "consensus": 1, "evaluate": 3, "results": 1}
    assert project.dvc("repro").jobs == Counter(new_task) + Counter(own)
    assert not project.snakemake("all").jobs
    assert "up to date" in project.dvc("status").output


def mask_lambdas(project: Project, back: bool) -> None:
    project.change(lambda params: params["grids"].update(mask_lambda=[0.2, 0.4] if back else [0.2, 0.3]))


def learning_rate(project: Project, back: bool) -> None:
    def edit(params: dict[str, Any]) -> None:
        params["models"]["tiny"]["finetuning"]["learning_rate"] = 3.0e-4 if back else 1.0e-3

    project.change(edit)


def stage_version(project: Project, back: bool) -> None:
    plan = project.path("src/tallmasks/plan.py")
    (number,) = re.findall(r'"evaluation": (\d+)', text := plan.read_text())
    plan.write_text(text.replace(f'"evaluation": {number}', f'"evaluation": {int(number) + (-1 if back else 1)}'))


def class_names(project: Project, back: bool) -> None:
    names = ('"{} texture"', '"{} surface"')
    project.replace("src/tallmasks/tasks/drawn/registry.py", *(reversed(names) if back else names))


OF_ONE_SET = {"merge": 1, "mask": 1, "consensus": 1, "evaluate": 3, "results": 1}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (mask_lambdas, {"mask": 2, "consensus": 2, "evaluate": 4, "results": 2}),
        (
            learning_rate,
            {"finetune": 3, "task_vector": 3, "evaluate_task": 3, **{rule: 2 * n for rule, n in OF_ONE_SET.items()}},
        ),
        (stage_version, {"consensus": 2, "evaluate": 6, "results": 2}),
        (class_names, {"head": 1, "finetune": 1, "task_vector": 1, "evaluate_task": 2, **OF_ONE_SET}),
    ],
)
def test_a_change_costs_what_lies_downstream_and_views_on_the_way_back(
    project: Project, change: Any, expected: dict[str, int]
) -> None:
    """A changed value would leave old results in place, or cost more than what depends on it."""
    before = project.sha256("results")
    change(project, back=False)
    assert project.snakemake("all").jobs == expected
    change(project, back=True)
    back = project.snakemake("all")
    assert back.jobs == {"results": expected["results"]}
    assert project.sha256("results") == before
