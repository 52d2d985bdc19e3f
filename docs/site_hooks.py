"""What mkdocs does for the site beyond Markdown: pages and links outside of docs/, and nothing from the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")} | {"README.md": "index.md"}
"""Files of the project's folder, and their pages in the site."""
NOTEBOOK = "notebook.ipynb"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_INLINE = re.compile(r"(?<!</span>)<code>.*?</code>", re.DOTALL)
_OPTION = re.compile(r"(?<=[\s>\[])--?[a-zA-Z][\w-]*")
_SIZE = re.compile(r"(<pre.*?</pre>)|(?<=\d) (?=(?:[kMGT]i?B|Gb|%)(?!\w))", re.DOTALL)
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]*\bsrc=\"(?:https?:)?//|<link[^>]*\bhref=\"(?:https?:)?//")


def on_config(config: Any) -> Any:
    """A link to the source in the footer: where this clone is from, if a browser can open it without a password."""
    origin = subprocess.run(["git", "config", "remote.origin.url"], cwd=ROOT, capture_output=True, text=True).stdout
    if re.match("https://[^@]*$", origin):  # `repo_url` would ask the network for stars
        config.extra["social"] = [{"icon": "material/source-repository", "link": origin.strip(), "name": "The source"}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the project's folder, and the notebook as a page."""
    for name, page in PAGES.items():
        text = re.sub(r"^\[!\[.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)  # badges come from the network
        files.append(File.generated(config, page, content=text.replace("](docs/", "](")))
    notebook = json.loads((Path(config.docs_dir) / NOTEBOOK).read_text())
    page = "\n\n".join(_cell(cell) for cell in notebook["cells"])
    files.append(File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=page))
    return files


def _cell(cell: Any) -> str:
    """A cell of a notebook as Markdown, with what it printed."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    printed = (f"```text\n{''.join(output['text']).rstrip()}\n```" for output in cell["outputs"])
    return "\n\n".join([f"```python\n{source}\n```", *printed])


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to files outside of docs/ become pages of the site, or plain text: the site has no source code."""
    here = (ROOT if page.file.src_uri in PAGES.values() else Path(config.docs_dir)) / Path(page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path or path in files.src_uris:
            return match[0]
        if path == NOTEBOOK:
            return f"[{text}](notebook.md)"
        target = Path(os.path.normpath(here / path))
        if target.is_relative_to(config.docs_dir) and target.suffix in (".md", ".png", ".svg", ".csv", ".txt"):
            return match[0]
        if target.name in PAGES and target.parent == ROOT:
            up = os.path.relpath(PAGES[target.name], Path(page.file.src_uri).parent)
            return f"[{text}]({up}{anchor})"
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: {path} is not there")
        return text

    return _LINK.sub(link, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Options in sentences, and a number with its unit, stay on one line; browsers would break options at a hyphen."""
    html = _SIZE.sub(lambda found: found[1] or "\N{NO-BREAK SPACE}", html)
    return _INLINE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """A page that loads something from the network is refused: readers without one would see half of it."""
    if loaded := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri}: {loaded[0]}...: load nothing from the network")
    return output
