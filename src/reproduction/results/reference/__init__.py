"""Published numbers (Wang et al. 2024, tables 1 to 7, and later papers), and comparisons with ours.

``table<n>.csv``: the paper's table n as printed.  Accuracies are in percent, storage in 1e9 bits; ``lower_bound`` marks
a printed ">".  Table 1 names no model; its fine-tuned accuracy is that of ViT-B/32 in table 3.

``single_task.csv``: single models on single tasks, in percent; ``source`` is the repository and commit.  Generation
``first`` of the fine-tuned models is the paper's; its DTD model had seen its test images (nik-dim/tall_masks#1).
``second`` replaced it on the hub by December 2024, with a new DTD model; LiNeS reports it.  LiNeS alone has zero-shot
accuracies, and splits EuroSAT differently (2,387 test images instead of 2,700).

``later.csv``: numbers of later papers and their code, as printed in ``source``.  Each belongs to a family of
checkpoints; the fine-tuned accuracies of families differ by about two points:

======  ==================================================================================================
C0      Ilharco et al. 2022; only the original 8 tasks
C1      first generation of this paper
C2      second generation, on the hub (`checkpoints: published` in params.yaml)
FB      FusionBench (`checkpoints: fusionbench`); only 8 vision tasks, and the 7 of GLUE
======  ==================================================================================================

Accuracies are compared only within a family.  Models fine-tuned here are the family "own"; their normalised accuracies
are compared with every family's.

``mergebench.csv``: scores of merged language models in MergeBench's repository at the commit in ``source``, for
``examples/llms/beside_mergebench.py``.
"""

from collections.abc import Collection, Iterable, Sequence
from importlib.resources import files

import pandas as pd

TABLES = range(1, 8)
_PREFERRED_FIRST = (2, 3, 7, 4, 5, 6)  # the first three have storage; some numbers of the others differ by rounding

PAPER_TASKS = (
    *("cars", "dtd", "eurosat", "gtsrb", "mnist", "resisc45", "sun397", "svhn"),
    *("cifar100", "stl10", "flowers102", "oxfordiiitpet", "pcam", "fer2013"),
    *("emnist", "cifar10", "food101", "fashionmnist", "renderedsst2", "kmnist"),
)
"""The vision tasks in the paper's order; its benchmarks are the first 8, 14 and 20."""

_NLP_7 = ("qasc", "quartz", "paws", "story_cloze", "wiki_qa", "winogrande", "wsc")
_QA_8 = ("cosmos_qa", "qasc", "quail", "quartz", "paws", "ropes", "social_iqa", "wiki_qa")
_MEMBERS = {f"{count}tasks": PAPER_TASKS[:count] for count in (8, 14, 20)} | {
    "7nlp": _NLP_7,
    "8qa": _QA_8,
    "11nlp": tuple(dict.fromkeys(_NLP_7 + _QA_8)),
    "7glue": ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2"),
}
BENCHMARKS = {frozenset(tasks): name for name, tasks in _MEMBERS.items()}
"""Names of the paper's benchmarks in the tables here, by their tasks."""


def shipped(name: str) -> pd.DataFrame:
    with (files(__name__) / f"{name}.csv").open() as file:
        return pd.read_csv(file)


def paper_table(number: int) -> pd.DataFrame:
    """Table ``number`` of the paper; ``benchmark`` and ``method`` are named as in params.yaml."""
    return shipped(f"table{number}")


def paper_rows(model: str, tasks: Iterable[str], numbers: Iterable[int] = _PREFERRED_FIRST) -> pd.DataFrame | None:
    """The paper's results of ``model`` on exactly the set ``tasks``, one row per method; None if there are none.

    ``model``: a `reproduction.results.paper.published_name`, here and below; ``numbers``: the tables to search, the
    preferred one first.
    """
    benchmark = BENCHMARKS.get(frozenset(tasks))
    tables = [paper_table(number) for number in numbers]
    keys = ["model", "benchmark", "method", *({"finetuning"} & set(tables[0].columns))]
    table = pd.concat(tables, ignore_index=True).drop_duplicates(keys)
    rows = table[(table["model"] == model) & (table["benchmark"] == benchmark)]
    return None if rows.empty else rows.reset_index(drop=True)


def dtd_excess(model: str, tasks: Collection[str]) -> float:
    """By how many points the paper's mean over ``tasks`` is too high because its DTD model had seen its test images.

    The DTD accuracy of the first generation minus the second, divided by the number of tasks; 0 without DTD.
    """
    rows = shipped("single_task").query(
        "model == @model and task == 'dtd' and method == 'fine_tuned' and split == 'test'"
    )
    if rows.empty or "dtd" not in tasks:
        return 0.0
    accuracy = rows.set_index("generation")["accuracy"]
    return float(accuracy["first"] - accuracy["second"]) / len(tasks)


def _note(model: str, tasks: Collection[str], section: str, method: str) -> str:
    """Why our number of a method can differ from the paper's."""
    if model.startswith("t5_large"):
        return _language_note(model, tasks, method)
    notes = ["matrix products are in bfloat16 by default here, in float32 there"]
    notes += ["FER2013: the prompts of three classes are swapped there"] * ("fer2013" in tasks)
    excess = 0.0 if method == "zeroshot" else dtd_excess(model, tasks)
    if excess and section == "compression":
        notes.append(
            f"about {excess:.1f} points better than can be reached: the paper's DTD model had seen its test images and "
            "was replaced"
        )
    elif excess:
        notes.append("the paper merged a DTD model that had seen its test images")
    return f"{'; '.join(notes)} (docs/gpu.md)"


def _language_note(model: str, tasks: Collection[str], method: str) -> str:
    """Differences from r-three/mats at commit cb52c38, the paper's set-up for language models."""
    differences = ["QASC: tested on the 926 test rows here, on 500 validation rows there"] * ("qasc" in tasks)
    if method != "zeroshot":
        differences += ["one embedding table is frozen here, none there"] * (model == "t5_large")
        differences.append("every token of a batch has the same weight in the loss here, every example there")
    return f"{'; '.join(differences)} (docs/gpu.md)" if differences else ""


def beside_paper(summary: pd.DataFrame, paper: pd.DataFrame, model: str, tasks: Collection[str]) -> pd.DataFrame:
    """Our numbers, the paper's, the difference (ours minus the paper's) and a note, for the methods that both report.

    ``summary``: a `summary_table`; ``paper``: the `paper_rows` of the model and the tasks.
    """
    numbers = ["accuracy", "normalized_accuracy", "formula_gbit"]
    joined = summary[["section", "method", *numbers]].merge(
        paper[["method", "source", *numbers]], on="method", suffixes=("", "_paper")
    )
    columns = ["method"]
    for name in numbers:
        joined[f"{name}_difference"] = (joined[name] - joined[f"{name}_paper"]).round(4)
        columns += [name, f"{name}_paper", f"{name}_difference"]
    rows = zip(joined["section"], joined["method"], strict=True)
    joined["note"] = [_note(model, tasks, section, method) for section, method in rows]
    return joined[[*columns, "source", "note"]]


PUBLISHED = ["accuracy_published", "accuracy_difference", "source", "generation"]
"""The columns that `beside_published` adds."""


def beside_published(ours: pd.DataFrame, model: str) -> pd.DataFrame:
    """Our test accuracies of single models next to the published ones: one row per publication, or one without.

    ``ours``: `task`, `method`, `accuracy` in percent, and any other columns.
    """
    published = shipped("single_task").query("model == @model and split == 'test'").drop(columns=["model", "split"])
    published = published.rename(columns={"accuracy": "accuracy_published"})
    joined = ours.merge(published, on=["task", "method"], how="left")
    joined["accuracy_difference"] = (joined["accuracy"] - joined["accuracy_published"]).round(4)
    return joined[[*ours.columns, *PUBLISHED]]


OWN = "own"
_OF_PUBLISHERS = {"published": "C2", "fusionbench": "FB"}
_NUMBERS = ("accuracy", "normalized_accuracy")


def family_of(sources: Iterable[str | None]) -> str:
    """The family of a benchmark's checkpoints, from the source of each; "own" if they are of several or other sources.

    ``sources``: None for a checkpoint that was fine-tuned here.
    """
    families = {_OF_PUBLISHERS.get(str(source), OWN) for source in sources}
    return families.pop() if len(families) == 1 else OWN


def published_numbers(model: str, tasks: Sequence[str]) -> pd.DataFrame:
    """Published results of a model on exactly these tasks: ``method``, ``family``, ``accuracy``, ``source`` and
    ``normalized_accuracy``, which is empty if it was not printed.  Accuracies are in percent."""
    later, paper = shipped("later"), paper_rows(model, tasks)
    later = later[(later["model"] == model) & (later["benchmark"] == BENCHMARKS.get(frozenset(tasks)))]
    parts = [later, *([] if paper is None else [paper.assign(family="C1")]), _second_generation(model, set(tasks))]
    columns = ["method", "family", *_NUMBERS, "source"]
    return pd.concat([part.reindex(columns=columns) for part in parts if len(part)] or [pd.DataFrame(columns=columns)])


def _second_generation(model: str, tasks: set[str]) -> pd.DataFrame:
    """Means over the tasks, of methods whose accuracy was published for every task."""
    rows = shipped("single_task").query(
        "model == @model and split == 'test' and generation == 'second' and task in @tasks"
    )
    groups = rows.groupby(["method", "source"])["accuracy"].agg(["mean", "size"]).reset_index()
    complete = groups[groups["size"] == len(tasks)]
    source = complete["source"] + ", mean over the tasks"
    return complete.assign(family="C2", accuracy=complete["mean"].round(4), source=source)


def beside_families(ours: pd.DataFrame, model: str, tasks: Sequence[str], family: str) -> pd.DataFrame:
    """Our numbers, the published ones and the difference (ours minus theirs): one row per method and publication.

    ``ours``: ``method``, ``accuracy`` and ``normalized_accuracy`` in percent; ``family``: that of our checkpoints.
    For "own" only normalised accuracies are compared.
    """
    published = published_numbers(model, tasks).rename(columns={name: f"{name}_published" for name in _NUMBERS})
    if family == OWN:
        published = published.query("normalized_accuracy_published.notna() and method != 'fine_tuned'")
    else:
        published = published.query("family == @family")
    joined = ours[["method", *_NUMBERS]].merge(published, on="method").assign(checkpoints=family)
    if family == OWN:
        joined[["accuracy", "accuracy_published"]] = None
    columns = ["method", "checkpoints", "family"]
    for name in _NUMBERS:
        pair = joined[[name, f"{name}_published"]].astype(float)
        joined[f"{name}_difference"] = (pair[name] - pair[f"{name}_published"]).round(4)
        columns += [name, f"{name}_published", f"{name}_difference"]
    return joined[[*columns, "source"]]
