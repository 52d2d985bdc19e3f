"""The style of all figures: sizes, fonts, and a colour, marker and dash pattern per method.

Colours are Okabe and Ito's, safe for colour blindness.  Markers, dashes and hatching also differ, for greyscale.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display is needed, here or on a cluster

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox, ScaledTranslation
from scipy.optimize import isotonic_regression

from reproduction.tasks.titles import benchmark_title, title
from tallmasks import methods

COLUMN, BOTH_COLUMNS = 3.35, 6.69  # inches: 8.5 and 17 cm, as in a two-column paper
SCREEN = 4.4  # inches: at 400 pixels, on a phone, letters are as high as on a page

SETTINGS: dict[str, Any] = {
    "font.family": "STIXGeneral",  # comes with matplotlib, so figures are the same everywhere
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "svg.hashsalt": "tallmasks",  # equal figures give equal bytes
    "pdf.fonttype": 42,
}

NARROW: dict[str, Any] = {
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "lines.markersize": 3.5,
}
"""Smaller sizes for figures of one column."""

BLACK, GREY, LIGHT, OLIVE = "#000000", "#7f7f7f", "#d9d9d9", "#8c7a00"
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
LINE = 16.0
"""Height of a line of text beside points, in pixels."""
SEQUENTIAL = "cividis"  # safe for colour blindness
INTENSITY = "Blues"  # for magnitudes: 0 is white


@dataclass(frozen=True)
class Look:
    color: str
    marker: str
    dashes: str | tuple[int, tuple[int, ...]] = "-"

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments for `Axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


LOOKS = {
    "zeroshot": Look(GREY, "x", ":"),
    "weight_averaging": Look(GREY, "+", "--"),
    "task_arithmetic": Look(ORANGE, "o", "--"),
    "ties": Look(PURPLE, "^", "-."),
    "consensus_task_arithmetic": Look(BLUE, "s"),
    "consensus_task_arithmetic_k1": Look(SKY, "D", (0, (5, 1))),
    "consensus_ties": Look(GREEN, "v"),
    "consensus_ties_k1": Look(GREEN, "d", (0, (5, 1))),
    "fine_tuned": Look(BLACK, "*"),
    "magnitude_pruning": Look(GREY, "1", (0, (1, 1))),
    "magnitude_masking": Look(OLIVE, "<", (0, (3, 1, 1, 1))),
    "tall_mask_task_arithmetic": Look(VERMILION, "P"),
    "tall_mask_ties": Look(VERMILION, "X", (0, (3, 1, 1, 1, 1, 1))),
    "iso_c": Look(BLACK, ">", (0, (2, 1))),
    "emr": Look(GREEN, "p", (0, (2, 1))),
    "stochastic_rounding": Look(BLUE, "h", (0, (4, 1, 1, 1))),
}
_OTHERS = tuple(
    Look(color, "hs^Dvo<>"[(index + turn) % 8], (0, dashes))
    for turn, dashes in enumerate(((4, 1, 1, 1), (1, 3), (2, 1), (6, 2), (8, 1), (1, 1, 4, 1), (2, 2), (6, 1, 2, 1)))
    for index, color in enumerate((BLUE, ORANGE, GREEN, PURPLE, VERMILION, OLIVE, BLACK, SKY))
)
_TAKEN = {pair for look in LOOKS.values() for pair in ((look.color, look.marker), (look.marker, look.dashes))}
_SPARE = tuple(look for look in _OTHERS if not _TAKEN & {(look.color, look.marker), (look.marker, look.dashes)})
"""For methods without an entry in ``LOOKS``, in the order of the table."""
_MARKERS = ("2", "3", "4", "H", "8", "|")  # for methods with options

SERIES = (
    Look(BLUE, "o"),
    Look(VERMILION, "s", "--"),
    Look(GREEN, "D", "-."),
    Look(ORANGE, "^", ":"),
    Look(PURPLE, "v", (0, (5, 1))),
    Look(BLACK, "P", (0, (3, 1, 1, 1))),
    Look(SKY, "X", (0, (1, 1))),
)
"""For series that are not methods."""

KINDS = {"fine-tuned": Look(BLACK, "*"), "every model back": Look(VERMILION, "o"), "one model": Look(BLUE, "s")}
"""For figures whose colours say what a method gives."""


def look_of(method: str) -> Look:
    """The look of a method, the same in every figure.  Methods with options have the colour of the method and another
    marker."""
    name, _, chosen = method.partition(":")
    if chosen:
        return Look(look_of(name).color, _MARKERS[zlib.crc32(chosen.encode()) % len(_MARKERS)], (0, (2, 1)))
    if method in LOOKS:
        return LOOKS[method]
    added = [name for name in methods.names() if name not in LOOKS]
    return _SPARE[added.index(method) % len(_SPARE)]


def kind_of(method: str) -> str:
    """The key in ``KINDS``."""
    merges = methods.get(method).section == "merging"
    return "fine-tuned" if method == "fine_tuned" else "one model" if merges else "every model back"


def title_of(method: str) -> str:
    return methods.get(method).title


def empty_panels(
    count: int, columns: int, height: float, width: float = BOTH_COLUMNS, **settings: Any
) -> tuple[Figure, list[Axes]]:
    """A figure ``width`` inches wide with ``count`` panels in rows of ``columns``, each ``height`` inches high."""
    plt.rcdefaults()
    plt.rcParams.update(SETTINGS | (NARROW if width == COLUMN else {}))  # type: ignore[arg-type]
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(width, height * rows), squeeze=False, layout="constrained", **settings
    )
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def panels(
    data: pd.DataFrame,
    by: Sequence[str],
    columns: int,
    height: float,
    xlabel: str = "",
    ylabel: str = "",
    **settings: Any,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure with one panel for each value of the columns ``by``, and each panel with its rows of the data.

    Titles show the method and the benchmark if these are in ``by``; only the outer panels have axis labels.
    """
    parts = [part for _, part in data.groupby(list(by), sort=False)]
    figure, axes = empty_panels(len(parts), columns, height, **settings)
    for panel in axes[::columns]:
        panel.set_ylabel(ylabel)
    for panel in axes[-columns:]:
        panel.set_xlabel(xlabel)
    for panel, part in zip(axes, parts, strict=True):
        names = [title_of(part["method"].iloc[0])] if "method" in by else []
        if "benchmark" in by:
            tasks = part["tasks"].iloc[0] if "tasks" in part else part["task"].nunique()
            names.append(benchmark_title(part["benchmark"].iloc[0], int(tasks)))
        panel.set_title(("\n" if figure.get_figwidth() == COLUMN else ", ").join(names))
    return figure, list(zip(axes, parts, strict=True))


def legend(figure: Figure) -> None:
    """Add one legend with every label once: below the panels of a narrow figure; otherwise in a free cell of the grid,
    or to the right."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = list(handles.values()), list(handles)
    if figure.get_figwidth() < BOTH_COLUMNS:
        columns = 3 if len(handles) == 3 else 2
        figure.set_figheight(figure.get_figheight() + 0.3 * -(-len(handles) // columns))
        figure.legend(*shown, loc="outside lower center", ncols=columns)
    elif (space := free_cell(figure)) is None:
        figure.legend(*shown, loc="outside right center")
    else:
        space.legend(*shown, loc="center")


def legend_of_kinds(figure: Figure) -> None:
    for name, look in KINDS.items():
        figure.axes[0].plot([], [], color=look.color, linewidth=6, label=name)
    legend(figure)


def free_cell(figure: Figure) -> Axes | None:
    """Empty axes in the first cell of the grid without a panel; None if every cell has one."""
    grid = figure.axes[0].get_gridspec()
    if grid is None or len(figure.axes) == grid.nrows * grid.ncols:
        return None
    space = figure.add_subplot(grid[len(figure.axes)])
    space.set_axis_off()
    return space


def task_rows(panel: Axes, tasks: Sequence[str]) -> None:
    """One row per task, from bottom to top, with its name at the left."""
    panel.set_yticks(range(len(tasks)), [title(task) for task in tasks])
    panel.set_ylim(-0.7, len(tasks) - 0.3)


def line_per_method(panel: Axes, data: pd.DataFrame, x: str, y: str) -> None:
    for method, rows in groups(data, "method"):
        panel.plot(rows[x], rows[y], label=title_of(method), **look_of(method).line)


def label_points(panel: Axes, data: pd.DataFrame, x: str, y: str, name: str) -> None:
    """Write the name of each point to the right of all points, spaced so that names do not overlap.

    ``x``, ``y`` and ``name`` are columns of the data.
    """
    data = data.sort_values(y, kind="stable")
    scale = panel.yaxis.get_transform()
    line = LINE / panel.get_window_extent().height * np.ptp(scale.transform(panel.get_ylim()))
    steps = line * np.arange(len(data))
    heights = isotonic_regression(scale.transform(data[y].to_numpy(float)) - steps).x + steps
    heights = scale.inverted().transform(heights)
    beside = panel.transData + ScaledTranslation(9 / 72, 0, panel.figure.dpi_scale_trans)
    for point, height in zip(data.to_dict("records"), heights, strict=True):
        panel.annotate(
            point[name], (point[x], point[y]), (data[x].max(), height), textcoords=beside, ha="left", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": GREY, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip


def label_near(figure: Figure, panel: Axes, data: pd.DataFrame, x: str, y: str, name: str) -> None:
    """Write the names of points beside them, where they cover neither a point nor another name.

    The axes have their scales and limits.  ``x``, ``y`` and ``name`` are columns of the data; a name can be empty.
    """
    figure.draw_without_rendering()  # now the panel has its place
    points = [Bbox([at - 7, at + 7]) for at in panel.transData.transform(data[[x, y]])]
    names, lines = list[Bbox](), list[Path]()
    for point in data[data[name] != ""].sort_values(y, ascending=False, kind="stable").to_dict("records"):
        text = panel.annotate(
            point[name], (point[x], point[y]), (0, 0), textcoords="offset points", va="center", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2, "alpha": 0.8}, in_layout=False,
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": GREY, "shrinkA": 1, "shrinkB": 5},
        )  # fmt: skip
        at = panel.transData.transform(text.xy)
        for distance, angle in product(range(8, 200, 4), np.radians([0, 180, -30, 30, -150, 150, -60, 60, -120, 120])):
            across, up = distance * np.cos(angle), distance * np.sin(angle)
            text.set(position=(across, up), horizontalalignment="left" if across > 0 else "right")
            text.update_positions(None)  # type: ignore[arg-type]  # it uses no renderer
            box = Text.get_window_extent(text)
            line = Path(np.array([at, box.get_points().mean(axis=0)]))
            inside = panel.bbox.count_contains([box.min, box.max]) == 2
            crossed = any(map(line.intersects_bbox, names)) or any(other.intersects_bbox(box) for other in lines)
            if inside and not crossed and not box.count_overlaps(points + names):
                names.append(box)
                lines.append(line)
                break
        else:
            text.remove()


def groups(data: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The parts of a table by the values of a column, in order of appearance."""
    for value, part in data.groupby(column, sort=False):
        yield str(value), part


def rendered(figure: Figure, kind: str) -> bytes:
    """The bytes of a "pdf", "svg" or "png" file; equal figures give equal bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # a second layout would shift it slightly
    undated: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=undated[kind])
    return content.getvalue()
