"""One look for all figures: sizes, fonts, and a colour, a marker and a dash pattern for each method.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; methods also differ in marker and
dash pattern, and bars in hatching, so that a figure reads the same in greyscale.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib

matplotlib.use("Agg")  # no display is needed, here or on a cluster

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tallmasks import methods

WIDTH = 7.0
"""Inches: the text width of a two-column page."""

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "svg.hashsalt": "tallmasks",  # equal figures give equal bytes
    "pdf.fonttype": 42,
}

BLACK, GREY, LIGHT, OLIVE = "#000000", "#7f7f7f", "#d9d9d9", "#8c7a00"
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
SEQUENTIAL = "cividis"
"""A colour map whose lightness grows steadily, for any colour vision."""
INTENSITY = "Blues"
"""For magnitudes: white is 0."""


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    color: str
    marker: str
    dashes: str | tuple[int, tuple[int, ...]] = "-"

    @property
    def line(self) -> dict[str, Any]:
        """Keyword arguments of `Axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


LOOKS = {
    "zeroshot": Look(GREY, "x", ":"),
    "weight_averaging": Look(GREY, "+", "--"),
    "task_arithmetic": Look(ORANGE, "o", "--"),
    "ties": Look(PURPLE, "^", "-."),
    "consensus_task_arithmetic": Look(BLUE, "s"),
    "consensus_task_arithmetic_k1": Look(SKY, "s", (0, (5, 1))),
    "consensus_ties": Look(GREEN, "D"),
    "consensus_ties_k1": Look(GREEN, "d", (0, (5, 1))),
    "fine_tuned": Look(BLACK, "*"),
    "magnitude_pruning": Look(GREY, "p", (0, (1, 1))),
    "magnitude_masking": Look(OLIVE, "h", (0, (3, 1, 1, 1))),
    "tall_mask_task_arithmetic": Look(VERMILION, "P"),
    "tall_mask_ties": Look(VERMILION, "v", (0, (3, 1, 1, 1, 1, 1))),
    "iso_c": Look(ORANGE, ">", (0, (2, 1))),
    "emr": Look(GREEN, "8", (0, (2, 1))),
}
_SPARE = tuple(
    Look(color, marker, (0, dashes))
    for dashes in ((2, 1), (4, 1, 1, 1), (1, 3))
    for color, marker in zip((SKY, ORANGE, GREEN, PURPLE, BLUE, OLIVE, VERMILION, BLACK), "<>81234_", strict=True)
    if (marker, dashes) not in {(">", (2, 1)), ("8", (2, 1))}
)
"""Of methods that users added, in the order of the table."""
_MARKERS = ("1", "2", "3", "4", "H", "X")
"""Of methods with options."""

SERIES = (
    Look(BLUE, "o"),
    Look(VERMILION, "s", "--"),
    Look(GREEN, "D", "-."),
    Look(ORANGE, "^", ":"),
    Look(PURPLE, "v", (0, (5, 1))),
    Look(BLACK, "P", (0, (3, 1, 1, 1))),
    Look(SKY, "X", (0, (1, 1))),
)
"""For series that are not methods, in their order."""


def look(method: str) -> Look:
    """The look of a method, the same in every figure; one that users added gets a spare one, one with options its own
    colour and another marker."""
    name, _, chosen = method.partition(":")
    if chosen:
        return Look(look(name).color, _MARKERS[zlib.crc32(chosen.encode()) % len(_MARKERS)], (0, (2, 1)))
    if method in LOOKS:
        return LOOKS[method]
    added = [name for name in methods.names() if name not in LOOKS]
    return _SPARE[added.index(method) % len(_SPARE)]


def series(index: int) -> Look:
    """The look of the index-th series of a figure."""
    return SERIES[index % len(SERIES)]


def title_of(method: str) -> str:
    """A method's name for people."""
    return methods.get(method).title


def panels(count: int, columns: int, height: float, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure of full width with `count` panels in rows of `columns`, each `height` inches high.

    Room that is left in the last row is kept for the legend or the colour bar: see `spare`.
    """
    apply()
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(WIDTH, height * rows), squeeze=False, layout="constrained", **settings
    )
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    if count < len(axes):
        _spare[figure] = figure.add_subplot(axes[count].get_subplotspec())
        _spare[figure].set_axis_off()
    return figure, axes[:count]


_spare: WeakKeyDictionary[Figure, Axes] = WeakKeyDictionary()


def spare(figure: Figure) -> Axes | None:
    """The free place of a figure of `panels`, if its last row has one."""
    return _spare.get(figure)


def apply() -> None:
    """Put the settings in force."""
    plt.rcdefaults()
    plt.rcParams.update(SETTINGS)  # type: ignore[arg-type]


def legend(figure: Figure, source: Axes | Sequence[Axes], columns: int) -> None:
    """One legend for the whole figure with every label once: in its free place, or under the panels."""
    found: dict[str, Any] = {}
    for axes in [source] if isinstance(source, Axes) else source:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    place = spare(figure)
    if place is None:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=min(columns, len(found)))
    else:
        place.legend(list(found.values()), list(found), loc="center", fontsize=8, labelspacing=0.9)


def groups(data: Any, column: str) -> Iterator[tuple[str, Any]]:
    """The parts of a table by the values of a column, in the order in which they appear."""
    for value, part in data.groupby(column, sort=False):
        yield str(value), part


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of a "pdf", "svg" or "png" file, without the date: equal figures give equal bytes."""
    undated: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=undated[kind])
    return content.getvalue()
