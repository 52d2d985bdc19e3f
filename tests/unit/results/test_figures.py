"""Figures: what is drawn is what the CSV beside it says, and people can read it."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import shutil
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from result_files import write_results
from tallmasks import methods
from tallmasks.results import figures
from tallmasks.results.figures import FIGURES, ResultFiles, mask_overlap, pareto, style
from tallmasks.store.errors import TallmasksError

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultFiles:
    return write_results(tmp_path_factory.mktemp("results"))


def shown(results: ResultFiles, name: str) -> ResultFiles:
    """What a figure of the workflow is given."""
    return dataclasses.replace(results, benchmarks=figures.in_scope(FIGURES[name].scope, results.benchmarks))


def drawn(results: ResultFiles, name: str) -> tuple[pd.DataFrame, Figure]:
    """A figure, drawn from its CSV as it would be read again."""
    module = figures.load(name)
    path = results.folder / f"{name}.csv"
    module.data(shown(results, name)).to_csv(path, index=False)
    data = pd.read_csv(path)
    return data, module.draw(data)


def lines(panel: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """The labelled lines of a panel; a label that comes again is not there twice."""
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in reversed(panel.get_lines())
        if not str(line.get_label()).startswith("_")
    }


def heights(panel: Axes) -> list[float]:
    return [bar.get_height() for container in panel.containers for bar in container]


def test_mask_percentage(results: ResultFiles) -> None:
    data, figure = drawn(results, "mask_percentage")
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=True):
        assert heights(panel) == part["mask_percentage"].tolist()
        accuracies = {label.replace("\n", " "): values for label, (_, values) in lines(panel).items()}
        assert accuracies == {
            "normalised accuracy, task arithmetic": part["task_arithmetic_normalized_accuracy"].tolist(),
            "normalised accuracy, masked (TALL Mask + TA)": part["masked_normalized_accuracy"].tolist(),
        }
        assert {line.get_linestyle() for line in panel.get_lines()} == {"None"}, "tasks have no order"
        assert [label.get_text() for label in panel.get_xticklabels()][:2] == ["Cars", "DTD"]


def test_mask_agreement(results: ResultFiles) -> None:
    data, figure = drawn(results, "mask_agreement")
    groups = data.groupby(["benchmark", "method"], sort=False)
    for panel, (_, part) in zip(figure.axes, groups, strict=True):
        assert sorted(heights(panel)) == sorted(part["percentage"])
        assert set(part["kind"]) == {"catastrophic", "selfish", "general", "universal", "merged_zero"}
        assert part["percentage"].sum() == pytest.approx(100, abs=0.01)


def test_radar(results: ResultFiles) -> None:
    data, figure = drawn(results, "radar")
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=False):
        found = lines(panel)
        assert list(found) == [style.title_of(name) for name in reversed(list(dict.fromkeys(part["method"])))]
        for method, rows in part.groupby("method"):
            values = found[style.title_of(str(method))][1]
            assert values[:-1] == rows["accuracy"].tolist() and values[-1] == values[0]


def test_task_count(results: ResultFiles) -> None:
    data, figure = drawn(results, "task_count")
    accuracy, bits = figure.axes
    for method, rows in data.groupby("method"):
        label = style.title_of(str(method))
        assert lines(accuracy)[label] == (rows["n"].tolist(), rows["normalized_accuracy_mean"].tolist())
        assert lines(bits)[label] == (rows["n"].tolist(), rows["storage_gb"].tolist())
    bands = [band.get_paths()[0].get_extents().intervaly for band in accuracy.collections]
    assert len(bands) == 2
    for band, method in zip(bands, ("task_arithmetic", "tall_mask_task_arithmetic"), strict=True):
        rows = data[data["method"] == method]
        mean, spread = rows["normalized_accuracy_mean"], rows["normalized_accuracy_std"]
        np.testing.assert_allclose(band, ((mean - spread).min(), (mean + spread).max()), atol=1e-6)


def test_task_count_is_the_mean_over_the_orders(results: ResultFiles) -> None:
    """A spread over something else would pass for the spread over task combinations."""
    source = pd.read_csv(results.folder / "20tasks" / "subsets" / "accuracy.csv")
    five = source.query("method == 'task_arithmetic' and n == 5")["normalized_accuracy"]
    row = drawn(results, "task_count")[0].query("method == 'task_arithmetic' and n == 5").iloc[0]
    assert (row.orders, row.normalized_accuracy_mean) == (3, pytest.approx(five.mean(), abs=1e-4))
    assert row.normalized_accuracy_std == pytest.approx(five.std(), abs=1e-4)


def test_threshold(results: ResultFiles) -> None:
    data, figure = drawn(results, "threshold")
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=True):
        for method, rows in part.groupby("method"):
            assert lines(panel)[style.title_of(str(method))] == (
                rows["k"].tolist(),
                rows["normalized_accuracy"].tolist(),
            )
            assert rows["k"].tolist() == list(range(rows["tasks"].iloc[0] + 2))


def test_validation_alpha(results: ResultFiles) -> None:
    """A curve would be missing, or be squeezed by the wider grid of another method."""
    data, figure = drawn(results, "validation_alpha")
    panels = iter(figure.axes)
    for _, part in data.groupby("benchmark", sort=False):
        wide = part["method"] == "iso_c"
        for column, panel in zip((part[~wide], part[wide]), panels, strict=False):
            expected = {
                style.title_of(str(method)): (
                    rows["scaling_coefficient"].tolist(),
                    rows["normalized_accuracy"].tolist(),
                )
                for method, rows in column.groupby("method")
            }
            assert lines(panel) == expected
            rings = [line for line in panel.get_lines() if line.get_markersize() == 9]
            assert [ring.get_xdata()[0] for ring in rings] == [0.3] * column["method"].nunique()


def test_validation_alpha_leaves_out_what_tunes_something_else(results: ResultFiles, tmp_path: Path) -> None:
    """LiNeS' betas would stand on the axis of alphas."""
    copied = dataclasses.replace(results, folder=Path(shutil.copytree(results.folder, tmp_path / "results")))
    (benchmark, *_) = copied.benchmarks
    file = copied.path(benchmark, "selection.json")
    selection = json.loads(file.read_text())
    file.write_text(json.dumps(selection | {"lines": selection["task_arithmetic"]}))
    before = figures.load("validation_alpha").data(results)
    pd.testing.assert_frame_equal(figures.load("validation_alpha").data(copied), before)


def test_validation_lambda(results: ResultFiles) -> None:
    data, figure = drawn(results, "validation_lambda")
    groups = data.groupby(["method", "benchmark"])
    assert len(figure.axes) == len(groups) == 6
    for (method, benchmark), part in groups:
        title = f"{style.title_of(method)}, {part['task'].nunique()} tasks"
        (panel,) = (axes for axes in figure.axes if axes.get_title() == title)
        found = lines(panel)
        np.testing.assert_allclose(
            found["mean over the tasks"][1], part.groupby("mask_lambda")["normalized_accuracy"].mean()
        )
        chosen = part[part["chosen"]]
        assert found["its mask lambda"] == (chosen["mask_lambda"].tolist(), chosen["normalized_accuracy"].tolist())
        assert len(chosen) == part["task"].nunique() == len(results.benchmarks[benchmark])


def test_mask_density(results: ResultFiles) -> None:
    data, figure = drawn(results, "mask_density")
    wanted = [(method, by) for by in ("layer", "kind") for method in data["method"].unique()]
    for panel, (method, by) in zip(figure.axes, wanted, strict=True):
        part = data[(data["method"] == method) & (data["by"] == by)]
        for tasks, rows in part.groupby("tasks"):
            assert lines(panel)[f"{tasks} tasks"][1] == rows["percentage"].tolist()
    layers = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert layers == ["input", "block 1", "block 2", "decoder 1", "output"]


def test_mask_density_is_weighted(results: ResultFiles) -> None:
    """A bias of 200 weights would count as much as a matrix of 100,000."""
    source = results.each("masks/tensors.csv").query(
        "benchmark == '8tasks' and layer == '1' and method == 'tall_mask_ties'"
    )
    expected = 100 * (source["density"] * source["weights"]).sum() / source["weights"].sum()
    query = "benchmark == '8tasks' and by == 'layer' and value == '1' and method == 'tall_mask_ties'"
    assert drawn(results, "mask_density")[0].query(query)["percentage"].item() == pytest.approx(expected, abs=1e-4)


def test_mask_overlap(results: ResultFiles) -> None:
    data, figure = drawn(results, "mask_overlap")
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=False):
        image = panel.get_images()[0].get_array()
        apart = (part["task"] != part["other"]).to_numpy()
        assert image.compressed().tolist() == part["jaccard"][apart].tolist()


def test_clusters_stand_together() -> None:
    """A heat map in any order would hide which tasks share their weights."""
    names = ["a1", "b1", "a2", "b2", "a3"]
    alike = [[1.0 if x == y else 0.9 if x[0] == y[0] else 0.1 for x in names] for y in names]
    order = mask_overlap.clustered(pd.DataFrame(alike, names, names))
    assert sum(x[0] != y[0] for x, y in pairwise(order)) == 1
    assert mask_overlap.clustered(pd.DataFrame(np.ones((2, 2)), ["a", "b"], ["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("name", ["pareto", "field_pareto"])
def test_pareto(results: ResultFiles, name: str) -> None:
    data, figure = drawn(results, name)
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=False):
        found = lines(panel)
        for row in part.itertuples():
            label = style.title_of(str(row.method)) + (" (stores more)" if row.at_least else "")
            assert found[label] == ([row.storage_gb], [row.normalized_accuracy])
        front = part[part["on_front"]].sort_values("storage_gb")
        assert found["Pareto front"] == (front["storage_gb"].tolist(), front["normalized_accuracy"].tolist())


@pytest.mark.parametrize("name", ["pareto", "field_pareto"])
def test_no_marker_hides_another(results: ResultFiles, name: str) -> None:
    """Methods of equal bits and nearly equal accuracy would be one marker."""
    figure = drawn(results, name)[1]
    figure.canvas.draw()
    for panel in figure.axes:
        markers = [line for line in panel.get_lines() if line.get_linestyle() == "None"]
        places = [marker.get_transform().transform(marker.get_xydata()[0]) for marker in markers]
        for one, other in combinations(places, 2):
            assert np.hypot(*(one - other)) * 72 / figure.dpi > 4


def test_stored(results: ResultFiles) -> None:
    """A bundle's dtypes would be joined in the wrong order, or a method with files be missing."""
    data, figure = drawn(results, "stored")
    (panel,) = figure.axes
    bundles = data[data["method"] == "tall_mask_ties"].sort_values("stored_gb")
    joined = [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.get_lines()]
    assert (bundles["stored_gb"].tolist(), bundles["normalized_accuracy"].tolist()) in joined
    labels = set(lines(panel))
    assert f"{style.title_of('tall_mask_ties')}\n(int8, 16, bf16, 32)" in labels
    assert len(labels) == data["method"].nunique() > 8
    assert "magnitude_pruning" not in set(data["method"])


def test_every_method_is_in_the_figures_of_all(results: ResultFiles) -> None:
    """A later method would be missing from the one figure that is there to show it, or get into the paper's."""
    later = {name for name in methods.names() if methods.get(name).group == "later"}
    assert set(drawn(results, "field_pareto")[0]["method"]) == set(methods.names())
    assert later and not later & set(drawn(results, "pareto")[0]["method"])


def test_field_task_count(results: ResultFiles) -> None:
    """A worse method would be drawn in the place of a better one, or a point at the wrong number of tasks."""
    data, figure = drawn(results, "field_task_count")
    table = results.each("field.csv").query("method != 'fine_tuned'")
    for panel, (section, part) in zip(figure.axes, data.groupby("section", sort=False), strict=False):
        means = table[table["section"] == section].groupby("method")["normalized_accuracy"].mean()
        best = means.sort_values(ascending=False).index[:6].tolist()
        assert list(dict.fromkeys(part["method"])) == best
        for method, rows in part.groupby("method"):
            expected = rows["tasks"].tolist(), rows["normalized_accuracy"].tolist()
            assert lines(panel)[style.title_of(str(method))] == expected
            assert rows["tasks"].tolist() == [8, 14, 20]


def test_the_front_holds_what_nothing_beats(tmp_path: Path) -> None:
    """A method that another one beats in both would be recommended, or the best one left out."""
    rows = [("task_arithmetic", 60, 1), ("ties", 70, 1), ("tall_mask_ties", 99, 2), ("magnitude_masking", 80, 2)]
    rows += [("fine_tuned", 100, 9), ("zeroshot", 70, 1)]
    (tmp_path / "x").mkdir()
    table = pd.DataFrame(rows, columns=["method", "normalized_accuracy", "storage_gb"])
    table.to_csv(tmp_path / "x" / "table.csv")
    found = pareto.data(ResultFiles(tmp_path, {"x": ("a", "b")}))
    assert set(found[found["on_front"]]["method"]) == {"ties", "zeroshot", "tall_mask_ties", "fine_tuned"}


def test_illustration(results: ResultFiles) -> None:
    data, figure = drawn(results, "illustration")
    assert len(figure.axes) == 15
    masks = [panel.get_images()[0].get_array() for panel in figure.axes[5:10]]
    for name, image in zip(dict.fromkeys(data["block"]), masks, strict=True):
        block = data[(data["row"] == "mask") & (data["block"] == name)]
        assert image.ravel().tolist() == block["value"].tolist()
    image = figure.axes[4].get_images()[0].get_array()
    merged = data.query("row == 'vector' and block == 'merged'")["value"].to_numpy().reshape(16, 16)
    largest = data.query("row != 'mask'")["value"].abs().max()
    np.testing.assert_allclose(image**2 * largest, np.abs(merged), rtol=1e-6)


@pytest.mark.parametrize("name", FIGURES)
def test_people_can_read_it(results: ResultFiles, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label would be cut off at the edge, lie on another one, or a panel would be empty."""
    figure = drawn(results, name)[1]
    texts: list[Text] = []
    draw = Text.draw
    monkeypatch.setattr(Text, "draw", lambda text, renderer: (texts.append(text), draw(text, renderer)))
    figure.canvas.draw()
    written = {id(text): text for text in texts if text.get_visible() and text.get_text()}.values()
    boxes = [(text.get_text(), text.get_window_extent(), text.get_rotation()) for text in written]
    assert boxes
    for text, box, _ in boxes:
        assert figure.bbox.padded(0.5).count_contains([box.min, box.max]) == 2, f"{text!r} is cut off"
    upright = [(text, box.padded(-0.7)) for text, box, rotation in boxes if rotation in (0, 90)]
    for (one, first), (other, second) in combinations(upright, 2):  # the box of a slanted text is mostly empty
        assert not first.overlaps(second), f"{one!r} lies on {other!r}"
    for panel in figure.axes:
        assert panel.has_data() or not panel.axison


def test_the_figure_of_every_method_has_room_for_more(results: ResultFiles) -> None:
    """The next method that somebody adds would push the panels out of the figure."""
    data, _ = drawn(results, "field_pareto")
    added = [data[data["method"] == "ties"].assign(method=f"ties:keep=0.{number}") for number in range(25, 45)]
    figure = figures.load("field_pareto").draw(pd.concat([data, *added], ignore_index=True))
    figure.canvas.draw()
    labels = [panel.xaxis.label.get_window_extent() for panel in figure.axes if panel.get_xlabel()]
    assert labels and all(figure.bbox.count_contains([box.min, box.max]) == 2 for box in labels)


@pytest.mark.parametrize("name", FIGURES)
def test_equal_data_give_equal_files(results: ResultFiles, name: str) -> None:
    """git would show a change in every figure after every run."""
    one, other = (style.rendered(drawn(results, name)[1], "svg") for _ in range(2))
    assert one == other


@pytest.mark.parametrize(("kind", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_formats(results: ResultFiles, kind: str, start: bytes) -> None:
    """A file would not be what its name says."""
    figure = drawn(results, "pareto")[1]
    first, second = style.rendered(figure, kind), style.rendered(figure, kind)
    assert first.startswith(start) and first == second


def test_methods_differ_without_colour() -> None:
    """On a greyscale print two methods would be one."""
    names = methods.names()
    looks = [style.look_of(name) for name in names]
    assert len({(look.marker, look.dashes) for look in looks}) == len(names)
    assert len({(look.marker, look.color) for look in looks}) == len(names), "where no line is drawn"


@pytest.mark.parametrize("count", [1, 2])
def test_small_projects(tmp_path: Path, count: int) -> None:
    """A user with one benchmark, or two, would get no figure."""
    few = write_results(tmp_path, (2, 5)[:count])
    for name in FIGURES:
        module = figures.load(name)
        assert module.draw(module.data(shown(few, name))).axes


def test_the_documents_example_is_a_figure(
    results: ResultFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copied it would get no figure, or one without its numbers."""
    (source,) = re.findall(r"^```python\n(.*?)^```$", (DOCS / "figures.md").read_text(), re.M | re.S)
    (tmp_path / "bars.py").write_text(source)
    monkeypatch.setattr(figures, "__file__", str(tmp_path / "__init__.py"))
    assert list(figures._declared()) == ["bars"]
    module = runpy.run_path(str(tmp_path / "bars.py"))
    data = module["data"](results)
    for panel, (_, part) in zip(module["draw"](data).axes, data.groupby("benchmark", sort=False), strict=True):
        assert heights(panel) == part["accuracy"].tolist()


def test_an_unknown_figure_names_the_nearest() -> None:
    with pytest.raises(TallmasksError, match="did you mean 'radar'"):
        figures.load("rader")


@pytest.fixture(autouse=True)
def close_figures():
    """Matplotlib keeps every figure until it is closed."""
    yield
    matplotlib.pyplot.close("all")
