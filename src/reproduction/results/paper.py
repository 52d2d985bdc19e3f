"""Declarations of the paper's tables; `results.paper_tables` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        numbers: the paper's tables with these rows.
        views: the results folders of a benchmark that are read.
        scope: the benchmarks shown: "every" or the "smallest".
        methods: the rows in order; empty for every method that was run.
        storage: whether there is a column of stored bits.
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
        "Consensus merging with k = 1 and k = 2",
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
    ("text_classifier", "gpt2", None): "gpt2_glue",
}
"""Names in `reproduction.results.reference`, by family, architecture and adapter."""


def published_name(spec: Mapping[str, Any]) -> str:
    """A model's name in the published numbers, from its entry in params.yaml; "" if it has none."""
    architecture = spec.get("architecture")
    if isinstance(architecture, Mapping) and architecture.keys() <= {"name", "frozen_table"}:
        architecture = architecture.get("name")  # the paper does not say which table it froze
    name = str(architecture).removeprefix("google/").removesuffix("-quickgelu")
    return PUBLISHED.get((spec.get("family"), name, spec.get("adapter")), "")
