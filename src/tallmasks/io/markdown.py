"""Escape text from users for Markdown files."""

from __future__ import annotations

_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#&$"})


def plain_markdown(text: str) -> str:
    """Escape text for a line or a table cell."""
    visible = "".join(character if character.isprintable() else " " for character in text)
    return visible.translate(_ESCAPED)


def code_span(text: str) -> str:
    """Text in backticks, or escaped if it contains characters that would end the span, cell or line."""
    return plain_markdown(text) if set(text) & set("`|") or not text.isprintable() else f"`{text}`"


def code_block(text: str, language: str) -> str:
    """Text in a fence that is longer than any fence inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}{fence}"
