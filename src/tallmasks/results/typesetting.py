"""One laid-out table as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """The text of a cell; the best of its column is set in bold."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class TableLayout:
    """A table as people read it.

    Attributes:
        title: what it shows.
        groups: the headings over the columns, and how many columns each spans; the first column has none.
        columns: the headings of the columns, that of the rows' names first.
        sections: the rows in sections, each row with its name first.
        note: what a reader must know.
    """

    title: str
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]
    sections: Sequence[tuple[str, Sequence[Sequence[Cell]]]]
    note: str


def markdown(table: TableLayout) -> str:
    """GitHub's Markdown; a group's heading stands in each of its columns."""
    groups = table.groups or [("", len(table.columns) - 1)]
    spread = ["", *(name for name, span in groups for _ in range(span))]
    heads = [" ".join(part for part in pair if part) for pair in zip(spread, table.columns, strict=True)]
    lines = [f"# {table.title}", "", _row(heads), "|---|" + "---:|" * (len(heads) - 1)]
    for name, rows in table.sections:
        if len(table.sections) > 1:
            lines.append(_row([f"*{name}*", *[""] * (len(heads) - 1)]))
        lines += [_row([f"**{cell.text}**" if cell.best else cell.text for cell in row]) for row in rows]
    return "\n".join([*lines, "", table.note, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(table: TableLayout, label: str) -> str:
    """A `table*` environment for the booktabs package."""
    heads, spans, first = [""], [], 2
    for name, span in table.groups:
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{_escaped(name)}}}")
        spans.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        first += span
    body = []
    for index, (name, rows) in enumerate(table.sections):
        body += [r"\midrule"] if index else []
        if len(table.sections) > 1:
            body.append(rf"\multicolumn{{{len(table.columns)}}}{{l}}{{\textit{{{_escaped(name)}}}}} \\")
        for row in rows:
            cells = [rf"\textbf{{{_escaped(cell.text)}}}" if cell.best else _escaped(cell.text) for cell in row]
            body.append(" & ".join(cells) + r" \\")
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{_escaped(table.title)}. {_escaped(table.note)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{@{{}}l{'r' * (len(table.columns) - 1)}@{{}}}}",
        r"\toprule",
        *([" & ".join(heads) + r" \\", " ".join(spans)] if table.groups else []),
        " & ".join(_escaped(name) for name in table.columns) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "α": r"$\alpha$", "λ": r"$\lambda$", "τ": r"$\tau$", "−": "$-$",
}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


_STYLE = """body {font-family: sans-serif; margin: 1.5em; color: #111; background: #fff}
table {border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid}
th, td {padding: .25em .8em; text-align: right; white-space: nowrap}
th:first-child, td:first-child {text-align: left}
thead tr:last-child th {border-bottom: 1px solid}
th[colspan] {text-align: center; border-bottom: 1px solid #999}
tr.section td {border-top: 1px solid; font-style: italic; text-align: left; color: #555}
p {max-width: 60em}"""


def html_page(table: TableLayout) -> str:
    """A page of its own, which needs nothing from elsewhere."""
    groups = "".join(f'<th colspan="{span}">{html.escape(name)}</th>' for name, span in table.groups)
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = []
    for name, rows in table.sections:
        if len(table.sections) > 1:
            body.append(f'<tr class="section"><td colspan="{len(table.columns)}">{html.escape(name)}</td></tr>')
        for row in rows:
            cells = [html.escape(cell.text) for cell in row]
            marked = [f"<b>{text}</b>" if cell.best else text for text, cell in zip(cells, row, strict=True)]
            body.append("<tr>" + "".join(f"<td>{text}</td>" for text in marked) + "</tr>")
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(table.title)}</title>',
            f"<style>{_STYLE}</style></head><body>",
            f"<h2>{html.escape(table.title)}</h2>",
            f"<table><thead>{f'<tr><th></th>{groups}</tr>' if groups else ''}<tr>{heads}</tr></thead><tbody>",
            *body,
            f"</tbody></table><p>{html.escape(table.note)}</p></body></html>",
            "",
        ]
    )
