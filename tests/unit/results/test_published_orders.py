"""Which published orders of methods hold among ours."""

import pandas as pd

from tallmasks.results.reference import PAPER_TASKS
from tallmasks.results.reference.published_orders import beside_orders, laid_out_orders, published_orders
from tallmasks.results.typesetting import markdown


def test_orders_are_those_of_one_publication_and_one_family() -> None:
    """Two points between families of checkpoints would be read as an order of methods."""
    found = published_orders("vit_b32", PAPER_TASKS[:8])
    iso = found.query("source == 'Marczak et al. 2025'")[["lower", "higher", "published"]].values.tolist()
    assert iso == [
        ["task_arithmetic", "consensus_task_arithmetic", 4.2],
        ["consensus_task_arithmetic", "tsv_m", 10.9],
        ["tsv_m", "iso_cts", 0.3],
        ["iso_cts", "iso_c", 0.1],
    ]
    assert ["fisher", "regmean"] in found.query("family == 'C0'")[["lower", "higher"]].values.tolist()
    assert (found["published"] > 0).all() and not {"fine_tuned", "adamerging"} & {*found["lower"], *found["higher"]}
    assert published_orders("tiny", PAPER_TASKS[:8]).empty


def test_an_order_is_looked_at_within_each_seed() -> None:
    """The spread of fine-tuning, which both methods share, would hide an order that every seed shows."""
    orders = pd.DataFrame(
        [("a", "C0", "fisher", "regmean", 3.5), ("a", "C0", "regmean", "emr", 1.0), ("a", "C0", "emr", "pcb", 1.0)],
        columns=["source", "family", "lower", "higher", "published"],
    )
    scores = {"fisher": (50.0, 60.0, 70.0), "regmean": (51.0, 62.0, 73.0), "emr": (52.0, 61.0, 73.0)}
    ours = pd.DataFrame(
        [(seed, name, value) for name, values in scores.items() for seed, value in enumerate(values)],
        columns=["seed", "method", "accuracy"],
    )
    found = beside_orders(orders, ours)
    assert found[["lower", "gain_mean", "gain_std", "holding", "seeds"]].values.tolist() == [
        ["fisher", 2.0, 1.0, 3, 3],
        ["regmean", 0.0, 1.0, 1, 3],
    ]
    text = markdown(laid_out_orders(found, "t"))
    assert "| RegMean above Fisher merging | a (C0) | +3.5 | +2.0 ± 1.0 | 3 of 3 |" in text
    alone = markdown(laid_out_orders(beside_orders(orders, ours[ours["seed"] == 0]), "t"))
    assert "| +1.0 | 1 of 1 |" in alone
