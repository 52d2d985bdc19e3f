"""The paper's tables as the workflow knows them before it writes them, which `results.paper_tables` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        title: for people.
        numbers: the paper's tables that have these rows.
        views: the results folder of a benchmark that it is written from.
        scope: the benchmarks that it shows: "every" declared one, or the "smallest".
        methods: its rows in their order; every method that was run if there is none.
        storage: whether it says what each method stores.
    """

    title: str
    numbers: tuple[int, ...]
    views: tuple[str, ...] = ("tables",)
    scope: str = "every"
    methods: tuple[str, ...] = ()
    storage: bool = False

    @property
    def paper(self) -> str:
        return f"Table{'s' * (len(self.numbers) > 1)} {', '.join(map(str, self.numbers))}"


TABLES = {
    "controlled": PaperTable("Standard and controlled fine-tuning", (1,), views=("controlled",), scope="smallest"),
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

PUBLISHED: Mapping[Any, str] = {
    ("clip", "ViT-B-32", None): "vit_b32",
    ("clip", "ViT-B-16", None): "vit_b16",
    ("clip", "ViT-L-14", None): "vit_l14",
    ("t5", "t5-large-lm-adapt", None): "t5_large",
    ("t5", "t5-large-lm-adapt", "ia3"): "t5_large_ia3",
}
"""The names that `tallmasks.results.reference` has for models, by family, architecture and adapter."""


def published_name(spec: Mapping[str, Any]) -> str:
    """The name that published numbers have for a model, whatever params.yaml calls it; "" where there are none.

    ``spec``: the model's entry in params.yaml, or what a recipe has of it.
    """
    architecture = spec.get("architecture")
    if isinstance(architecture, Mapping) and architecture.keys() <= {"name", "frozen_table"}:
        architecture = architecture.get("name")  # the paper does not say which table it froze
    name = str(architecture).removeprefix("google/").removesuffix("-quickgelu")
    return PUBLISHED.get((spec.get("family"), name, spec.get("adapter")), "")
