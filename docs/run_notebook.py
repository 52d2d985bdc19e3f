"""Run docs/notebook.ipynb from its first cell to its last, and keep what it prints in it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells of code, which run in one namespace.  An error in a cell goes on."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = outputs(compile("".join(cell["source"]), f"cell {count}", "exec"), names)
    return notebook


def outputs(code: Any, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    lines = printed.getvalue().splitlines(keepends=True)
    return [{"output_type": "stream", "name": "stdout", "text": lines}] if lines else []


def main() -> None:
    notebook = executed(json.loads(NOTEBOOK.read_text()))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
