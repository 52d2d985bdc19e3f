"""Figures show what the CSV next to them contains, and are legible."""

import dataclasses
import re
import runpy
import shutil
from itertools import chain, combinations
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from reproduction.results import figures
from reproduction.results.figures import FIGURES, ResultFiles, pareto, style
from reproduction.tasks.titles import title
from result_files import write_results
from tallmasks import methods as registered

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultFiles:
    return write_results(tmp_path_factory.mktemp("results"))


def shown(results: ResultFiles, name: str) -> ResultFiles:
    """The results files that the workflow gives to a figure."""
    return dataclasses.replace(results, benchmarks=figures.in_scope(FIGURES[name].scope, results.benchmarks))


def drawn(results: ResultFiles, name: str) -> tuple[pd.DataFrame, Figure]:
    """A figure, drawn from its CSV as it would be read again."""
    module = figures.figure_module(name)
    path = results.folder / f"{name}.csv"
    module.data(shown(results, name)).to_csv(path, index=False)
    data = pd.read_csv(path)
    return data, module.draw(data)


def lines(panel: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """The lines of a panel by label; of equal labels the first line."""
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in reversed(panel.get_lines())
        if not str(line.get_label()).startswith("_")
    }


PANELS = {
    "per_task": ("benchmark", "accuracy", ""),
    "threshold": ("benchmark", "k", "normalized_accuracy"),
    "field_task_count": ("section", "tasks", "normalized_accuracy"),
}
"""Figures with a line or a marker for each method: the columns of the panels, of x and of y."""


@pytest.mark.parametrize("name", PANELS)
def test_a_line_is_the_rows_of_its_method(results: ResultFiles, name: str) -> None:
    """A method would be drawn with another one's numbers, or in another panel."""
    data, figure = drawn(results, name)
    by, x, y = PANELS[name]
    for panel, (_, part) in zip(figure.axes, data.groupby(by, sort=False), strict=False):
        for method, rows in part.groupby("method"):
            across, up = lines(panel)[style.title_of(str(method))]
            assert across == rows[x].tolist() and (not y or up == rows[y].tolist())


@pytest.mark.parametrize("name", ["pareto", "field_pareto"])
def test_a_point_has_the_name_of_its_method(results: ResultFiles, name: str) -> None:
    """A method would be missing or have another one's name, a size another unit, or the overview's title be wrong."""
    data, figure = drawn(results, name)
    data["size"] = data["formula_gbit"] * 125  # MB
    assert "(MB)" in figure.axes[-1].get_xlabel()
    for panel, (_, part) in zip(figure.axes, data.groupby("benchmark", sort=False), strict=False):
        points = {label: list(zip(*at, strict=True)) for label, at in lines(panel).items()}
        part = part.assign(point=list(zip(part["size"], part["normalized_accuracy"], strict=True)))
        assert sorted(points.pop("Pareto front")) == sorted(part[part["on_front"]]["point"])
        assert sorted(chain(*points.values())) == sorted(part["point"])
        names = {text.get_text().removesuffix(" (or more)"): text.xy for text in panel.texts}
        titles = part.set_index(part["method"].map(style.title_of))
        assert names == titles["point"][[*names]].to_dict()
        assert {*titles.index[titles["on_front"]]} <= {*names} and 5 <= len(names) <= 8
        assert sorted(names.values()) == sorted(chain(*(points[kind] for kind in style.KINDS)))
    data, figure = drawn(results, "overview")
    last = data[data["tasks"] == 20].set_index("method")
    models, masks = last.loc["fine_tuned"], last.loc["tall_mask_ties"]
    saved, kept = models["formula_gbit"] / masks["formula_gbit"], masks["normalized_accuracy"]
    assert figure.get_suptitle() == f"TALL-masks, 20 tasks: {saved:.1f} times less space, {kept:.1f} % of the accuracy"


def test_mask_percentage(results: ResultFiles) -> None:
    """A task would stand beside another task's mask or accuracy."""
    data, figure = drawn(results, "mask_percentage")
    groups = data.groupby("benchmark", sort=False)
    for left, right, (_, part) in zip(figure.axes[::2], figure.axes[1::2], groups, strict=True):
        part = part.sort_values("task_arithmetic_normalized_accuracy")
        assert [bar.get_width() for bar in left.patches] == part["mask_percentage"].tolist()
        assert lines(right)["Task arithmetic"][0] == part["task_arithmetic_normalized_accuracy"].tolist()
        assert lines(right)["TALL Mask + TA"][0] == part["masked_normalized_accuracy"].tolist()
        assert [label.get_text() for label in left.get_yticklabels()] == part["task"].map(title).tolist()


def test_mask_agreement(results: ResultFiles) -> None:
    """The shares of weights that n tasks agree on would be wrong, or leave out merged zeros."""
    data, figure = drawn(results, "mask_agreement")
    groups = data.groupby(["benchmark", "method"], sort=False)
    for panel, (_, part) in zip(figure.axes, groups, strict=True):
        zeros = panel.containers[-1]
        tops = [bar.get_y() + bar.get_height() for bar in zeros]
        assert tops == pytest.approx(part["percentage"].tolist()), "n is the paper's, merged zeros among it"
        assert [bar.get_height() for bar in zeros] == pytest.approx(part["merged_zero_percentage"].tolist())
        assert set(part["kind"]) == {"catastrophic", "selfish", "general", "universal"}
        assert part["percentage"].sum() == pytest.approx(100, abs=0.01)


def test_task_count(results: ResultFiles) -> None:
    """A mean, spread or size would be that of another method or number of tasks, or in another unit."""
    data, figure = drawn(results, "task_count")
    accuracy, size = figure.axes
    assert "(MB)" in size.get_ylabel()
    for method, rows in data.groupby("method"):
        label = style.title_of(str(method))
        assert lines(accuracy)[label] == (rows["n"].tolist(), rows["normalized_accuracy_mean"].tolist())
        assert lines(size)[label] == (rows["n"].tolist(), (125 * rows["formula_gbit"]).tolist())
    bands = [band.get_paths()[0].get_extents().intervaly for band in accuracy.collections]
    assert len(bands) == 2
    for band, method in zip(bands, ("task_arithmetic", "tall_mask_task_arithmetic"), strict=True):
        rows = data[data["method"] == method]
        mean, spread = rows["normalized_accuracy_mean"], rows["normalized_accuracy_std"]
        np.testing.assert_allclose(band, ((mean - spread).min(), (mean + spread).max()), atol=1e-6)
    # a spread over the orders, and over nothing else
    source = pd.read_csv(results.folder / "20tasks" / "subsets" / "accuracy.csv")
    five = source.query("method == 'task_arithmetic' and n == 5")["normalized_accuracy"]
    row = data.query("method == 'task_arithmetic' and n == 5").iloc[0]
    assert (row.orders, row.normalized_accuracy_mean) == (3, pytest.approx(five.mean(), abs=1e-4))
    assert row.normalized_accuracy_std == pytest.approx(five.std(), abs=1e-4)


def test_validation_alpha(results: ResultFiles) -> None:
    """A curve would be missing, or be squeezed by the wider grid of another method."""
    data, figure = drawn(results, "validation_alpha")
    panels = iter(figure.axes)
    for _, part in data.groupby("benchmark", sort=False):
        wide = part["method"] == "iso_c"
        for column, panel in zip((part[~wide], part[wide]), panels, strict=False):
            curves = column.set_index("scaling_coefficient").groupby("method")["normalized_accuracy"]
            expected = {style.title_of(str(name)): (rows.index.tolist(), rows.tolist()) for name, rows in curves}
            assert lines(panel) == expected, "and no betas of LiNeS"
            rings = [line for line in panel.get_lines() if line.get_markersize() == 9]
            assert [ring.get_xdata()[0] for ring in rings] == [0.3] * column["method"].nunique()


def test_mask_density(results: ResultFiles) -> None:
    """A layer's density would be another layer's, or a small bias count like a large matrix."""
    data, figure = drawn(results, "mask_density")
    wanted = [(method, by) for by in ("layer", "kind") for method in data["method"].unique()]
    for panel, (method, by) in zip(figure.axes, wanted, strict=True):
        part = data[(data["method"] == method) & (data["by"] == by)]
        for tasks, rows in part.groupby("tasks"):
            assert lines(panel)[f"{tasks} tasks"][1] == rows["percentage"].tolist()
    layers = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert layers == ["input", "block 1", "block 2", "decoder 1", "output"]
    # a bias of 200 weights counts less than a matrix of 100,000
    chosen = "benchmark == '8tasks' and method == 'tall_mask_ties'"
    source = results.each("mask_statistics/tensors.csv").query(f"{chosen} and layer == '1'")
    expected = 100 * np.average(source["density"], weights=source["weights"])
    row = data.query(f"{chosen} and by == 'layer' and value == '1'")
    assert row["percentage"].item() == pytest.approx(expected, abs=1e-4)


def test_the_front_holds_what_nothing_beats(tmp_path: Path) -> None:
    """A method that another one beats in both would be recommended, or the best one left out."""
    rows = [("task_arithmetic", 60, 1), ("ties", 70, 1), ("tall_mask_ties", 99, 2), ("magnitude_masking", 80, 2)]
    rows += [("fine_tuned", 100, 9), ("zeroshot", 70, 1)]
    (tmp_path / "x").mkdir()
    table = pd.DataFrame(rows, columns=["method", "normalized_accuracy", "formula_gbit"])
    table.to_csv(tmp_path / "x" / "table.csv")
    found = pareto.data(ResultFiles(tmp_path, {"x": ("a", "b")}))
    assert set(found[found["on_front"]]["method"]) == {"ties", "zeroshot", "tall_mask_ties", "fine_tuned"}


@pytest.mark.parametrize("name", FIGURES)
def test_people_can_read_it(results: ResultFiles, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label would be cut off at the edge, lie on another one, or a panel would be empty."""
    figure = drawn(results, name)[1]
    texts: list[Text] = []
    draw = Text.draw
    monkeypatch.setattr(Text, "draw", lambda text, renderer: (texts.append(text), draw(text, renderer)))
    figure.canvas.draw()
    written = {id(text): text for text in texts if text.get_visible() and text.get_text()}.values()
    boxes = [(text.get_text(), Text.get_window_extent(text), text.get_rotation()) for text in written]
    assert boxes
    for text, box, _ in boxes:
        assert figure.bbox.padded(0.5).count_contains([box.min, box.max]) == 2, f"{text!r} is cut off"
    upright = [(text, box.padded(-0.7)) for text, box, rotation in boxes if rotation in (0, 90)]
    for (one, first), (other, second) in combinations(upright, 2):  # the box of a slanted text is mostly empty
        assert not first.overlaps(second), f"{one!r} lies on {other!r}"
    for panel in figure.axes:
        assert panel.has_data() or not panel.axison


@pytest.mark.parametrize(
    ("name", "kind", "start"),
    [*((name, "svg", b"<?xml") for name in FIGURES), ("pareto", "pdf", b"%PDF"), ("pareto", "png", b"\x89PNG")],
)
def test_equal_data_give_equal_files(results: ResultFiles, name: str, kind: str, start: bytes) -> None:
    """git would show a change in every figure after every run, or a file would have the wrong format."""
    one, other = (style.rendered(drawn(results, name)[1], kind) for _ in range(2))
    assert one == other and one.startswith(start)


def test_the_documents_example_is_a_figure(results: ResultFiles, tmp_path: Path) -> None:
    """A reader who copies the example would get no figure, or one without its numbers."""
    *_, source = re.findall(r"^```python\n(.*?)^```$", (DOCS.parent / "CONTRIBUTING.md").read_text(), re.M | re.S)
    (tmp_path / "bars.py").write_text(source)
    package = shutil.copy(figures.__file__, tmp_path)
    assert runpy.run_path(package)["FIGURES"]["bars"].views == ("tables",)  # as the workflow knows it
    module = runpy.run_path(str(tmp_path / "bars.py"))
    data = module["data"](results)
    for panel, (_, part) in zip(module["draw"](data).axes, data.groupby("benchmark", sort=False), strict=True):
        assert [bar.get_width() for bar in panel.patches] == part["accuracy"].tolist()


@pytest.fixture(autouse=True)
def close_figures():
    """Matplotlib keeps every figure until it is closed."""
    yield
    matplotlib.pyplot.close("all")


def test_pareto_names_eight_methods_by_kind() -> None:
    """Twenty names would cover each other on a phone; or a merged model would have the colour of a bundle."""
    part = pd.DataFrame({"method": [*registered.names("paper")][:12], "on_front": True, "at_least": False})
    assert (pareto._named(part)["name"] != "").sum() == pareto.MOST
    kinds = {name: style.kind_of(name) for name in ("ties", "tall_mask_ties", "fine_tuned")}
    assert kinds == {"ties": "one model", "tall_mask_ties": "every model back", "fine_tuned": "fine-tuned"}
