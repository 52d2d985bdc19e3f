"""The paper's tables as the workflow knows them before it writes them, which `results.paper_tables` does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        title: for people.
        numbers: the paper's tables that have these rows.
        view: the results folder of a benchmark that it is written from.
        scope: the benchmarks that it shows: "every" declared one, or the "smallest".
        methods: its rows in their order; every method that was run if there is none.
        storage: whether it says what each method stores.
    """

    title: str
    numbers: tuple[int, ...]
    view: str = "benchmark"
    scope: str = "every"
    methods: tuple[str, ...] = ()
    storage: bool = False


TABLES = {
    "controlled": PaperTable("Standard and controlled fine-tuning", (1,), view="controlled", scope="smallest"),
    "methods": PaperTable("Model merging and compression", (3, 7, 2), storage=True),
    "consensus": PaperTable(
        "Consensus merging that keeps what one or two tasks need",
        (4, 5, 6),
        methods=(
            "task_arithmetic",
            "consensus_task_arithmetic_k1",
            "consensus_task_arithmetic",
            "ties",
            "consensus_ties_k1",
            "consensus_ties",
        ),
    ),
}
"""The tables of results/<model>/tables/, by file name."""
