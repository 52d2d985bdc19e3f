"""Select the prompts of the text tasks from a copy of promptsource, and write them to `templates/`.

    python -m tallmasks.tasks.text.selection <promptsource's folder `templates`> [<folder to write to>]

Kept are those that ask for the dataset's original task and are scored by nothing but accuracy (ROPES: by SQuAD's
scores), in the order of promptsource's file, as `r-three/mats` does; of Social IQa not the one that asks about an
answer drawn at random.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tallmasks.store.atomic_files import atomic_write_text
from tallmasks.tasks.text.prompt_files import FOLDER

ORIGIN = "promptsource 0.2.3"
SOURCES: Mapping[str, str] = {
    "qasc": "qasc",
    "quartz": "quartz",
    "paws": "paws/labeled_final",
    "story_cloze": "story_cloze/2016",
    "wiki_qa": "wiki_qa",
    "winogrande": "winogrande/winogrande_xl",
    "wsc": "super_glue/wsc.fixed",
    "cosmos_qa": "cosmos_qa",
    "quail": "quail",
    "ropes": "ropes",
    "social_iqa": "social_i_qa",
}
"""The folder of a task's prompts in promptsource, by task."""
METRICS = {"ropes": {"Squad"}}
DROPPED = {"social_iqa": {"Check if a random answer is valid or not"}}


class _Templates(yaml.SafeLoader):
    """Reads promptsource's objects as plain mappings."""


_Templates.add_multi_constructor("!", lambda loader, _, node: loader.construct_mapping(node, deep=True))


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as blocks, where YAML can do that without a change."""


_Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def selected(task: str, published: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of one of promptsource's files, as `prompt_files` reads it."""
    templates = list(published["templates"].values())
    kept = [
        {key: template[key] for key in ("name", "answer_choices", "jinja")}
        for template in templates
        if template["metadata"]["original_task"]
        and set(template["metadata"]["metrics"]) <= METRICS.get(task, {"Accuracy"})
        and template["name"] not in DROPPED.get(task, ())
    ]
    origin = f"{ORIGIN}, promptsource/templates/{SOURCES[task]}/templates.yaml"
    return {"origin": origin, "licence": "Apache-2.0", "published": len(templates), "prompts": kept}


def main(promptsource: Path, output: Path = FOLDER) -> None:
    """Write the prompts of every task."""
    for task, source in SOURCES.items():
        published = yaml.load((promptsource / source / "templates.yaml").read_text(encoding="utf-8"), _Templates)
        prompts = selected(task, published)
        text = yaml.dump(prompts, Dumper=_Readable, sort_keys=False, allow_unicode=True, width=10**6)
        atomic_write_text(output / f"{task}.yaml", text, read_only=False)
        print(f"{task}: {len(prompts['prompts'])} of {prompts['published']} prompts")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
