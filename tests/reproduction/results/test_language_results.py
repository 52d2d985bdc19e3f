"""Results of language models: the paper's numbers, titles, and figure 1."""

import numpy as np
import pandas as pd
import pytest

from reproduction.results.illustrated_block import SIDE, illustrated_block
from reproduction.results.paper_tables import laid_out, side_by_side
from reproduction.results.reference import BENCHMARKS, paper_table
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector

TASKS = {name: sorted(tasks) for tasks, name in BENCHMARKS.items() if not name.endswith("tasks")}


@pytest.mark.parametrize(
    ("name", "model", "note"),
    [
        ("methods", "t5_large", "table 2"),
        ("methods", "t5_large_ia3", "t5_large_ia3"),
        ("consensus", "t5_large_ia3", "table 6"),
        ("consensus", "tiny_t5", "tiny_t5"),
    ],
)
def test_the_papers_tables_are_those_of_the_model(name: str, model: str, note: str) -> None:
    """A reader would look for T5 in the tables of ViTs."""
    found = {}
    for benchmark in TASKS:
        table = pd.concat([paper_table(number) for number in (2, 6)]).query("benchmark == @benchmark")
        found[benchmark] = table.drop_duplicates("method").drop(columns=["source", "model", "benchmark"])
    layout = laid_out(name, model, side_by_side(name, model, found, TASKS), TASKS, model)
    assert [title for title, _ in layout.groups] == ["7 NLP tasks", "8 QA tasks", "11 NLP tasks"]
    assert note in layout.note and ("paper" in layout.columns) == note.startswith("table")


@pytest.mark.parametrize("shape", [(1024, 1), (1, 2816), (1, 40), (3, 1), (40, 30)])
def test_figure_1_shows_vectors_too(shape: tuple[int, int]) -> None:
    """Figure 1 of (IA)^3, which has no matrix, would be a line of pixels."""
    layout = Layout(("a", "b"), (shape, (2,)))
    draw = np.random.default_rng(0)
    vectors = {name: TaskVector(draw.normal(size=layout.size).astype(np.float32), layout, {}) for name in "pq"}
    table = illustrated_block(vectors, 0.4).query("row == 'vector' and block == 'p'")
    side = min(SIDE, *shape) if 1 not in shape else min(SIDE, max(1, max(shape) // SIDE))
    assert table["y"].max() + 1 == (side if max(shape) > 3 else 3)
    expected = layout.split(vectors["p"].flat)["a"]
    flat = expected[:SIDE, :SIDE] if 1 not in shape else expected.reshape(-1)[: len(table)]
    np.testing.assert_array_equal(table["value"].to_numpy(np.float32), flat.reshape(-1))
