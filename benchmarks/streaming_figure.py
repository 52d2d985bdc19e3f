"""The figure of benchmarks/streaming.py, from its table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tallmasks.results.figures import style


def draw(table: Path, out: Path) -> None:
    """Processor time of commands by model, their memory, and processor time by size."""
    rows = pd.read_csv(table)
    figure, axes = style.empty_panels(3, columns=1, height=2.3)
    whole = rows[~rows["shape"].isin(["arrays", "grid"])]
    labels = list(
        dict.fromkeys(f"{shape}\n{tasks} tasks" for shape, tasks in zip(whole["shape"], whole["tasks"], strict=True))
    )
    chosen = whole[whole["what"].str.startswith(("merge", "compress", "mergekit"))]
    for index, (what, part) in enumerate(style.groups(chosen, "what")):
        places = [
            labels.index(f"{shape}\n{tasks} tasks") for shape, tasks in zip(part["shape"], part["tasks"], strict=True)
        ]
        line = {**style.series(index % len(style.SERIES)).line, "linestyle": "none"}
        axes[0].plot(
            places, part["ns_per_parameter_task"], label=what, fillstyle="full" if index < 7 else "none", **line
        )
        axes[1].plot(places, part["anon_mib"], fillstyle="full" if index < 7 else "none", **line)
    axes[1].axhline(512, color=style.GREY, linestyle=":", linewidth=1)
    for panel in axes[:2]:
        panel.set_xticks(range(len(labels)), labels, fontsize=6)
        panel.set_yscale("log")
    axes[0].set(title="Processor time on files", ylabel="ns per parameter and task")
    axes[1].set(title="Anonymous memory (dotted: 0.5 GiB)", ylabel="MiB")
    grid = rows[(rows["shape"] == "grid") & rows["what"].str.startswith(("merge", "compress"))]
    for index, (name, part) in enumerate(
        style.groups(grid.assign(series=grid["what"] + ", " + grid["tasks"].astype(str) + " tasks"), "series")
    ):
        part = part.sort_values("parameters")
        axes[2].plot(part["parameters"], part["ns_per_parameter_task"], label=name, **style.series(index).line)
    axes[2].set(
        title="Processor time by size, in a warm process", xlabel="parameters", ylabel="ns per parameter and task"
    )
    axes[2].set_xscale("log")
    axes[2].set_yscale("log")
    if len(grid):
        axes[2].legend(fontsize=6, ncols=3)
    if len(chosen):
        axes[0].legend(fontsize=6, ncols=3)
    out.write_bytes(style.rendered(figure, "svg"))
