"""Which of two methods was published as the better one, and whether ours come in that order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from tallmasks import methods
from tallmasks.methods.merges import LEARNED
from tallmasks.results.reference.checkpoint_families import published_numbers
from tallmasks.results.typesetting import Cell, TableLayout


def published_orders(model: str, tasks: Sequence[str]) -> pd.DataFrame:
    """Methods that are neighbours when those of one publication and section are sorted by accuracy: ``source``,
    ``family``, ``lower``, ``higher`` and ``published``, by how many points the one is above the other.

    Merges that learn are left out: those that were published learned from test images, ours do not.
    """
    merged = {*methods.names()} - {"fine_tuned", "zeroshot", *methods.needing(LEARNED)}
    published = published_numbers(model, tasks).dropna(subset="accuracy")
    published = published[published["method"].isin(merged)]
    published = published.assign(
        publication=[str(source).partition(",")[0] for source in published["source"]],
        section=[methods.get(str(name)).section for name in published["method"]],
    )
    rows = []
    for (family, publication, _), part in published.groupby(["family", "publication", "section"], sort=False):
        best = part.groupby("method", sort=False)["accuracy"].max().sort_values(kind="stable")
        for lower, higher in pairwise(best.index):
            if best[higher] > best[lower]:
                rows.append((publication, family, lower, higher, round(best[higher] - best[lower], 4)))
    return pd.DataFrame(rows, columns=["source", "family", "lower", "higher", "published"])


def beside_orders(orders: pd.DataFrame, per_seed: pd.DataFrame) -> pd.DataFrame:
    """`orders` of methods that are ours too, with the difference between ours of the same seed: ``gain_mean`` and
    ``gain_std`` over seeds, in points, ``holding`` of ``seeds`` with the one that was published as better above.

    ``per_seed``: ``seed``, ``method`` and ``accuracy`` in percent.
    """
    ours = per_seed.pivot(index="seed", columns="method", values="accuracy")
    orders = orders[orders["lower"].isin(ours.columns) & orders["higher"].isin(ours.columns)].reset_index(drop=True)
    gains = [ours[row.higher] - ours[row.lower] for row in orders.itertuples()]
    return orders.assign(
        gain_mean=[round(float(gain.mean()), 4) for gain in gains],
        gain_std=[round(float(gain.std(ddof=1)), 4) for gain in gains],
        holding=[int((gain > 0).sum()) for gain in gains],
        seeds=len(ours),
    )


def laid_out_orders(compared: pd.DataFrame, title: str) -> TableLayout:
    """`beside_orders` as people read it."""
    rows = []
    row: Any
    for row in compared.itertuples():
        order = f"{methods.get(row.higher).title} above {methods.get(row.lower).title}"
        spread = "" if pd.isna(row.gain_std) else f" ± {row.gain_std:.1f}"
        ours = f"{row.gain_mean:+.1f}{spread}", f"{row.holding} of {row.seeds}"
        texts = (order, f"{row.source} ({row.family})", f"+{row.published:.1f}", *ours)
        rows.append([Cell(text) for text in texts])
    return TableLayout(
        title,
        [],
        ["Published order", "By (checkpoints)", "Published, points", "Ours, points", "Holds in seeds"],
        [("", rows)],
        "Neighbours in accuracy among the methods of one publication. Ours: the difference on the same fine-tuned "
        "models, mean and sample standard deviation over fine-tuning seeds.",
    )
