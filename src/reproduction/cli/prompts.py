"""Print the data and the prompts of the text tasks.

    tallmasks prompts
    tallmasks prompts paws ropes

Prints for each task where the data are, the published rows of each split, and the prompts with their numbers for
`templates` in params.yaml. For a named task, the first prompt is also shown filled with a made-up row.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator

from reproduction.tasks.task import SPLITS
from reproduction.tasks.text.text_catalogue import example
from reproduction.tasks.text.text_tasks import TASKS, TextTask
from reproduction.tasks.texts import PAIR
from tallmasks.errors import OptionError, nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)} (default: all)")


def run(arguments: argparse.Namespace) -> int:
    for name in arguments.tasks:
        if name not in TASKS:
            raise OptionError(f"unknown text task {name!r}{nearest(name, TASKS)}; expected {', '.join(TASKS)}")
    shown = [TASKS[name] for name in arguments.tasks or TASKS]
    print("\n\n".join("\n".join(described(task, bool(arguments.tasks))) for task in shown))
    return 0


def described(task: TextTask, filled: bool) -> Iterator[str]:
    prompts = task.prompt_file
    rows = ", ".join(f"{split} {task.rows(split):,}" for split in SPLITS)
    yield f"{task.name} ({task.title}): {task.description}"
    where = f"on request: {task.ask}" if task.ask else f"huggingface.co/datasets/{task.source.hub}"
    yield f"  data     {where}" + (f" at {task.source.revision}" if task.source.revision else "")
    yield f"           {' and '.join(task.source.files.values())}"
    yield f"  rows     {rows}, as published"
    yield f"           train and validation from {task.published['train']}, test from {task.published['test']}"
    yield f"  prompts  {len(prompts.prompts)} of {prompts.published}; {prompts.origin} ({prompts.licence})"
    yield f"           {task.rows('train') * len(prompts.prompts):,} training examples: every row with every prompt"
    for number, prompt in enumerate(prompts.prompts):
        yield f"      {number:2} {prompt.name}"
    if filled:
        text = example(task, prompts.prompts[0], task.row)
        lines = text.input.replace(PAIR, "\n")
        yield f"  prompt 0 with a made-up row\n{textwrap.indent(lines, '    | ', lambda line: True)}"
        yield "  accepted answers" if task.right is None else "  choices"
        for index, answer in enumerate(text.answers):
            yield f"    {'>' if index == max(text.answer, 0) else ' '} {answer}"
