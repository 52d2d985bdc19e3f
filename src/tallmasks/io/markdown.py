"""Somebody's text in a Markdown file of ours, as text and nothing else."""

from __future__ import annotations

_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#&$"})


def plain_markdown(text: str) -> str:
    """A text within a line or a cell of a table."""
    visible = "".join(character if character.isprintable() else " " for character in text)
    return visible.translate(_ESCAPED)


def code_span(text: str) -> str:
    """A path or a name in backticks; without them where it holds what ends a span, a cell or a line."""
    return plain_markdown(text) if set(text) & set("`|") or not text.isprintable() else f"`{text}`"


def code_block(text: str, language: str) -> str:
    """Lines of text between fences that are longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{fence}"
