"""The command line: `tallmasks <command> ...`; doctor, gc, why, verify and storage are for the project's folder."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from tallmasks import __version__
from tallmasks.commands.plain_lines import harmless, in_plain_lines
from tallmasks.store.errors import TallmasksError, in_words, needed_for

COMMANDS = {
    "merge": "merge fine-tuned models of one base into one model",
    "compress": "compress fine-tuned models of one base into a bundle: one vector, and a bit mask per task",
    "export": "write one task's model from a bundle",
    "info": "say what a bundle or a checkpoint holds",
    "methods": "list the methods, or describe one: what it looks at, its options and its paper",
    "doctor": "say what this machine can run of params.yaml, before anybody spends an hour",
    "gc": "list what no declared recipe names in the store, and remove it on confirmation",
    "why": "say why a result or an artifact would be rebuilt, or that it would not",
    "verify": "check the content of artifacts and results files, all of it",
    "prompts": "print the data and the prompts of the text tasks, of all or of those named",
    "storage": "print what every method stores, for each model and benchmark of params.yaml, as CSV",
}
"""Every command and what it does."""
_OTHER_NAMES = {"methods": "method_list"}
"""Modules that have another name than their command, since a package has it."""


@in_plain_lines()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; an error that a user can put right is one line, no traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="tallmasks", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    try:
        if odd := next((word for word in arguments if re.search(r"[\ud800-\udfff]", word)), None):
            raise TallmasksError(f"{odd}: this argument is no UTF-8; expected text. Rename what it stands for")
        for name, summary in COMMANDS.items():
            command = commands.add_parser(name, help=summary)
            if arguments[:1] == [name]:  # the others need not be imported
                with needed_for(f"tallmasks {name}"):
                    module = module_of(name)
                command.description = module.__doc__
                command.formatter_class = argparse.RawDescriptionHelpFormatter
                module.add_arguments(command)
                command.set_defaults(run=module.run)
        parsed = parser.parse_args(arguments)
        with in_words(), needed_for(f"tallmasks {parsed.command}"):
            status = int(parsed.run(parsed))
        sys.stdout.flush()
        return status
    except TallmasksError as error:
        in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        print("\033[31merror:\033[0m" if in_colour else "error:", harmless(str(error)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may Python's last flush complain
        return 128 + signal.SIGPIPE


def module_of(command: str) -> ModuleType:
    """The module of a command, which has `add_arguments(parser)` and `run(arguments)`."""
    return importlib.import_module(f"tallmasks.commands.{_OTHER_NAMES.get(command, command)}")


if __name__ == "__main__":
    sys.exit(main())
