"""What the real engines build again, and what they do not."""

from collections import Counter

from project import Project, Run

EVERYTHING = {
    "examples": 9, "head": 3, "finetune": 3, "task_vector": 3, "evaluate_task": 6, "merge": 2, "mask": 2,
    "consensus": 2, "evaluate": 6, "tables": 2,
}  # fmt: skip


def test_a_first_run_does_everything_once_and_a_second_nothing(built: tuple[Project, Run], project: Project) -> None:
    """A user would wait again for what is there."""
    assert built[1].jobs == EVERYTHING
    assert not project.dvc("repro").jobs and project.up_to_date()
    assert not project.snakemake("all").jobs
    assert not project.git("status", "--porcelain").output
    assert not any(project.path(".tallmasks").glob("training/*")), "no half-finished training is left"


def test_a_new_subset_costs_its_new_task_and_its_own_jobs(project: Project) -> None:
    """A new subset would fine-tune again; the same set under another name would be computed twice."""
    project.benchmark("again", ["dtd", "mnist", "svhn"])
    assert project.snakemake("results/tiny/again/table.csv").jobs.keys() == {"tables"}
    project.benchmark("new", ["mnist", "cars"])
    new_task = {"examples": 3, "head": 1, "finetune": 1, "task_vector": 1, "evaluate_task": 2}
    own = {"merge": 1, "mask": 1, "consensus": 1, "evaluate": 3, "tables": 1}
    assert project.snakemake("all").jobs == Counter(new_task) + Counter(own)


def test_a_change_costs_what_lies_downstream_and_views_on_the_way_back(project: Project) -> None:
    """A changed value would leave old results in place, or cost more than what depends on it."""
    before = project.sha256("results")
    project.raise_version("chain.py", "evaluate")
    assert project.dry_run("all").planned.keys() == {"consensus", "evaluate", "tables"}
    project.git("checkout", "-q", "src")
    project.change(lambda params: params["grids"].update(mask_lambda=[0.2, 0.3]))
    assert project.snakemake("all").jobs.keys() == {"mask", "consensus", "evaluate", "tables"}
    project.git("checkout", "-q", "params.yaml")
    assert project.snakemake("all").jobs.keys() == {"tables"}, "what the old parameters made is still there"
    assert project.sha256("results") == before
