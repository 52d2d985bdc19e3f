"""The paper's numbers (Wang et al. 2024, tables 1 to 7), and ours beside them.

``table<n>.csv`` holds the paper's table n, one line per number of its rows and columns, copied as printed: accuracies
in percent with one decimal, storage in 1e9 bits, ``lower_bound`` where the paper prints ">".  Its column ``source``
says that it is the paper's.  Table 1 names no model; its fine-tuned accuracy is that of ViT-B/32 in table 3.
"""

from collections.abc import Iterable
from importlib.resources import files

import pandas as pd

TABLES = range(1, 8)
_MAIN_TABLES = (2, 3, 7)  # with storage; tables 4 to 6 add rows, and differ from 7 in a rounding or two
_ADDED_TABLES = (4, 5)

PAPER_TASKS = (
    *("cars", "dtd", "eurosat", "gtsrb", "mnist", "resisc45", "sun397", "svhn"),
    *("cifar100", "stl10", "flowers102", "oxfordiiitpet", "pcam", "fer2013"),
    *("emnist", "cifar10", "food101", "fashionmnist", "renderedsst2", "kmnist"),
)
"""The vision tasks in the paper's order; its benchmarks are the first 8, the first 14 and all 20."""


def paper_table(number: int) -> pd.DataFrame:
    """Table ``number`` of the paper as it ships; ``benchmark`` and ``method`` are names of params.yaml."""
    with (files(__name__) / f"table{number}.csv").open() as file:
        return pd.read_csv(file)


def paper_rows(
    model: str, tasks: Iterable[str], numbers: Iterable[int] = (*_MAIN_TABLES, *_ADDED_TABLES)
) -> pd.DataFrame | None:
    """What the paper reports of ``model`` on exactly the set ``tasks``, one row per method; None if nothing.

    Args:
        numbers: the tables to look in; of two that give the same number the first counts.
    """
    members = set(tasks)
    names = {frozenset(PAPER_TASKS[:count]): f"{count}tasks" for count in (8, 14, 20)}
    benchmark = names.get(frozenset(members))
    tables = [paper_table(number) for number in numbers]
    keys = ["model", "benchmark", "method", *({"finetuning"} & set(tables[0].columns))]
    every = pd.concat(tables, ignore_index=True).drop_duplicates(keys)
    rows = every[(every["model"] == model) & (every["benchmark"] == benchmark)]
    return None if rows.empty else rows.reset_index(drop=True)


def beside_paper(summary: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Ours, the paper's and the difference (ours minus the paper's), for the methods that both report.

    Args:
        summary: `tallmasks.tables.summary_table`.
        paper: `paper_rows`.
    """
    numbers = ["accuracy", "normalized_accuracy", "storage_gb"]
    joined = summary[["method", *numbers]].merge(
        paper[["method", "source", *numbers]], on="method", suffixes=("", "_paper")
    )
    columns = ["method"]
    for name in numbers:
        joined[f"{name}_difference"] = (joined[name] - joined[f"{name}_paper"]).round(4)
        columns += [name, f"{name}_paper", f"{name}_difference"]
    return joined[[*columns, "source"]]
