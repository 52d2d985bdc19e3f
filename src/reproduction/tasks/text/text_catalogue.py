"""The catalogue of text tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.task import Split, Task, published_part
from reproduction.tasks.text.own_texts import examples_of, own_text_tasks
from reproduction.tasks.text.prompt_files import Prompt, digest
from reproduction.tasks.text.rendering import LONGEST, RENDERING, Row, render
from reproduction.tasks.text.text_files import SHUFFLED, Rows, locate_texts, missing_texts, read_rows
from reproduction.tasks.text.text_tasks import TASKS, TextTask, text_task_of
from reproduction.tasks.texts import FREE, Text, joined, write_texts
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import named_path


class TextDatasets:
    """Renders dataset rows into prompts; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = False

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return {**TASKS, **own_text_tasks(params)}

    def check(self, params: Params) -> None:
        if taken := TASKS.keys() & own_text_tasks(params):
            raise TallmasksError(f"params.yaml: data: {min(taken)!r} is a built-in task; choose another name")

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """Takes the data from the hub or from `data.<task>.path`, and all prompts or the model's `templates`."""
        if task not in TASKS:
            own, limit = own_text_tasks(params)[task], model.get("examples", {}).get(split)
            return ExamplesRecipe(
                {"task": task, "split": split, "own": own.settings, "rows": limit}, {"data": root / own.file}
            )
        entry, source = params.get("data", {}).get(task, {}), TASKS[task].source
        data: dict[str, Any] = {"held_out": TASKS[task].held_out}
        if TASKS[task].texts:
            data["shuffled"] = SHUFFLED
        chosen = _templates(task, model)
        recipe: dict[str, Any] = {
            "task": task,
            "split": split,
            "templates": chosen,
            "prompts": digest([TASKS[task].prompt_file.prompts[index] for index in chosen]),
            "rendering": "whole texts" if TASKS[task].texts else RENDERING,
        }
        if (limit := model.get("examples", {}).get(split)) is not None:
            recipe["rows"] = limit
        if "path" in entry:
            return ExamplesRecipe({**recipe, "data": data}, {"data": named_path(root, entry["path"])})
        data |= {"hub": source.hub, "files": dict(source.files), "revision": entry.get("revision", source.revision)}
        return ExamplesRecipe({**recipe, "data": data})

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        if "own" in recipe:
            texts = examples_of(recipe["task"], sources["data"], recipe["own"], recipe["split"], recipe["rows"])
            count = write_texts(out.path, texts, out.metadata, recipe["own"]["classes"])
            out.say(f"{recipe['task']} {recipe['split']}: {count} texts")
            return
        task, split, folder = text_task_of(recipe), recipe["split"], sources.get("data")
        files = locate_texts(task, split, folder)
        rows = read_rows(task, split, files, recipe.get("rows"))
        for note in rows.notes:
            out.say(f"warning: {task.name}: {note}")
        prompts = [task.prompt_file.prompts[index] for index in recipe["templates"]]
        origin = {
            "source": files.origin if folder is None else "a local folder",  # without its path
            "revision": files.revision,
            "rows": len(rows),
            "prompts": [prompt.name for prompt in prompts],
            "warnings": list(rows.notes),
        }
        metadata = {**out.metadata, "origin": json.dumps(origin)}
        count = write_texts(out.path, prompted_examples(task, split, rows, prompts), metadata)
        out.say(f"{task.name} {split}: {len(rows)} rows, {len(prompts)} prompts, {count} examples")

    def missing(self, recipe: Params) -> str | None:
        return None if "own" in recipe else missing_texts(text_task_of(recipe))


def _templates(task: str, model: Params) -> list[int]:
    """The indices of the prompts that a model uses.  Raises TallmasksError for an index out of range."""
    count, chosen = len(TASKS[task].prompt_file.prompts), model.get("templates", "all")
    if chosen == "all":
        return list(range(count))
    if wrong := [index for index in chosen if index >= count]:
        raise TallmasksError(
            f"params.yaml: templates: found {wrong[0]}, but {task} has the prompts 0 to {count - 1}; "
            f"they stand in this order in templates/{task}.yaml"
        )
    return list(chosen)


def prompted_examples(task: TextTask, split: Split, rows: Rows, prompts: Sequence[Prompt]) -> Iterator[Text]:
    """The examples of a split.  Training renders every row with every prompt, other splits row i with prompt i mod n.

    Raises TallmasksError for a row that cannot be rendered.
    """
    for index, row in enumerate(rows):
        for prompt in prompts if split == "train" else [prompts[index % len(prompts)]]:
            try:
                yield example(task, prompt, row)
            except TallmasksError as error:
                part = task.published[published_part(split)]
                raise TallmasksError(f"{task.name}: row {rows.number(index)} of {part}: {error}") from None


def example(task: TextTask, prompt: Prompt, row: Row) -> Text:
    """Render one row.  Raises TallmasksError if the row has no label, or the prompt's answer is not the label's."""
    question, choices, target = render(prompt, row)
    if task.texts:  # a prompt's values are cut, and their white space is left out
        question = joined(*(row[column] for column in task.texts))
    if task.right is None or choices is None:
        accepted = tuple(dict.fromkeys(map(str.strip, row["answers"]["text"])))
        return Text(question, accepted, FREE)
    try:
        right = task.right(row)
    except ValueError:
        right = FREE
    if not 0 <= right < len(choices):
        raise TallmasksError(f"the label is not one of the {len(choices)} choices; use labelled data of {task.title}")
    if choices[right] != target and len(choices[right]) <= LONGEST:  # longer answers are cut
        raise TallmasksError(
            f"the prompt {prompt.name!r} gives the answer {target[:60]!r}, but the label is {choices[right][:60]!r}"
        )
    return Text(question, choices, right)


CATALOGUE = TextDatasets()
