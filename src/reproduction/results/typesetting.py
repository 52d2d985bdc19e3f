"""Table layouts, and how they become Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Cell:
    """One cell; the ``best`` ones are bold."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class TableLayout:
    """A table as people read it.

    Attributes:
        groups: headings above the column headings, and how many columns each spans; they start at the second column.
        columns: column headings; the first is above the names of the rows.
        sections: titles and rows; the first cell of a row is its name.
    """

    title: str
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[Cell]]]]
    note: str


def byte_unit(gigabits: Iterable[float]) -> tuple[str, float]:
    """The unit in which tables and figures show these sizes, and the factor to it from 1e9 bits.

    GB if every size is at least 1 GB, otherwise MB.  ``gigabits``: sizes in 1e9 bits, as in the CSV files.
    """
    return ("GB", 1 / 8) if min(gigabits) >= 8 else ("MB", 1000 / 8)


def markdown(table: TableLayout, table_per_section: bool = False) -> str:
    """GitHub Markdown.  The heading of a column starts with the heading of its group."""
    groups = ["", *(name for name, span in table.groups or [("", len(table.columns) - 1)] for _ in range(span))]
    heads = [f"{group} {name}".strip() for group, name in zip(groups, table.columns, strict=True)]
    rule = "|---|" + "---:|" * (len(heads) - 1)
    lines = [f"# {table.title}"]
    if not table_per_section:
        lines += ["", _row(heads), rule]
    for name, rows in table.sections:
        if table_per_section:
            lines += ["", _row([name, *heads[1:]]), rule]
        elif len(table.sections) > 1:
            lines.append(_row([f"*{name}*", *[""] * (len(heads) - 1)]))
        lines += [_row(f"**{cell.text}**" if cell.best else cell.text for cell in row) for row in rows]
    return "\n".join([*lines, "", table.note, ""])


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(table: TableLayout, label: str) -> str:
    """A `table*` environment; needs the booktabs package."""
    width = len(table.columns)
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}. {_escaped(table.note)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{@{{}}l{'r' * (width - 1)}@{{}}}}",
        r"\toprule",
    ]
    if table.groups:
        last = list(accumulate((span for _, span in table.groups), initial=1))
        heads = [rf" & \multicolumn{{{span}}}{{c}}{{{_escaped(name)}}}" for name, span in table.groups]
        lines.append("".join(heads) + r" \\")
        lines.append(" ".join(rf"\cmidrule(lr){{{before + 1}-{end}}}" for before, end in pairwise(last)))
    lines.append(_latex_row(map(_escaped, table.columns)))
    for name, rows in table.sections:
        lines.append(r"\midrule")
        if len(table.sections) > 1:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_escaped(name)}}}}} \\")
        for row in rows:
            texts = [(_escaped(cell.text), cell.best) for cell in row]
            lines.append(_latex_row(rf"\textbf{{{text}}}" if best else text for text, best in texts))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "α": r"$\alpha$", "λ": r"$\lambda$", "τ": r"$\tau$", "−": "$-$", "†": r"$\dagger$",
})  # fmt: skip


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


_STYLE = """body {font-family: sans-serif; margin: 1.5em; color: #111; background: #fff}
table {border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid}
th, td {padding: .25em .8em; text-align: right; white-space: nowrap}
th:first-child, td:first-child {text-align: left}
thead tr:last-child th {border-bottom: 1px solid}
th[colspan] {text-align: center; border-bottom: 1px solid #999}
tr.section td {border-top: 1px solid; font-style: italic; text-align: left; color: #555}
p {max-width: 60em}"""


def html_page(table: TableLayout) -> str:
    groups = "".join(f'<th colspan="{span}">{html.escape(name)}</th>' for name, span in table.groups)
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = []
    for name, rows in table.sections:
        if len(table.sections) > 1:
            body.append(f'<tr class="section"><td colspan="{len(table.columns)}">{html.escape(name)}</td></tr>')
        for row in rows:
            texts = [(html.escape(cell.text), cell.best) for cell in row]
            cells = [f"<td><b>{text}</b></td>" if best else f"<td>{text}</td>" for text, best in texts]
            body.append(f"<tr>{''.join(cells)}</tr>")
    lines = "\n".join(body)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(table.title)}</title>
<style>{_STYLE}</style></head><body>
<h2>{html.escape(table.title)}</h2>
<table><thead>{f"<tr><th></th>{groups}</tr>" if groups else ""}<tr>{heads}</tr></thead><tbody>
{lines}
</tbody></table><p>{html.escape(table.note)}</p></body></html>
"""
