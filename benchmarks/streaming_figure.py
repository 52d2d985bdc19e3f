"""The figure of benchmarks/streaming.py, from its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FormatStrFormatter, LogLocator

from tallmasks.results.figures import style

TIME = "ns per parameter and task"


def draw(table: Path, out: Path) -> None:
    """Processor time of commands by model, their memory, and processor time by size."""
    rows = pd.read_csv(table)
    commands = rows[rows["what"].str.startswith(("merge", "compress", "mergekit"))]
    models = commands[~commands["shape"].isin(["arrays", "grid"])]
    shapes = models["shape"].str.replace(" (", "\n(")
    models = models.assign(model=shapes + "\n" + models["tasks"].astype(str) + " tasks")
    labels = list(dict.fromkeys(models["model"]))
    grid = commands[(commands["shape"] == "grid") & ~commands["what"].str.startswith("mergekit")]
    grid = grid.assign(series=grid["what"] + ", " + grid["tasks"].astype(str) + " tasks").sort_values("parameters")

    figure, (time, memory, size) = style.empty_panels(3, columns=1, height=2.4)
    for index, (what, part) in enumerate(style.groups(models, "what")):
        places = part["model"].map(labels.index)
        look = series(index) | {"linestyle": "none"}
        time.plot(places, part["ns_per_parameter_task"], label=what, **look)
        memory.plot(places, part["anon_mib"], **look)
    for index, (what, part) in enumerate(style.groups(grid, "series")):
        size.plot(part["parameters"], part["ns_per_parameter_task"], label=what, **series(index))
    for panel in (time, memory):
        panel.set_xticks(range(len(labels)), labels)
    time.set(title="Processor time on files", ylabel=TIME)
    memory.axhline(512, color=style.GREY, linestyle=":", linewidth=1)
    memory.set(title="Anonymous memory (dotted: 0.5 GiB)", ylabel="MiB")
    size.set(title="Processor time by size, in a warm process", xlabel="parameters", ylabel=TIME, xscale="log")
    for panel in (time, memory, size):
        in_powers(panel)
    for panel in (time, size):
        if panel.get_legend_handles_labels()[0]:
            panel.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    out.write_bytes(style.rendered(figure, "svg"))


def series(index: int) -> dict[str, Any]:
    """The look of the index-th series; those after the first seven have hollow markers."""
    return style.series(index).line | {"fillstyle": "full" if index < len(style.SERIES) else "none"}


def in_powers(panel: Axes) -> None:
    """A logarithmic axis with plain numbers."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    panel.minorticks_off()
