"""The command line: `tallmasks <command> ...`; doctor, gc, why, verify and storage are for the project's folder."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import Any, TextIO, cast

from tallmasks import __version__
from tallmasks.errors import TallmasksError, TallmasksWarning, needed_for, user_errors

COMMANDS = {
    "example": "write a small base and four fine-tuned models, to try the other commands on",
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
    "storage": "print what methods store: of a model of any size, or for each model and benchmark of params.yaml",
}
"""Every command and what it does."""
_OTHER_NAMES = {"methods": "method_list"}
"""Modules that have another name than their command, since a package has it."""


_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_NO_CHARACTERS = range(0xD800, 0xE000)
_WRITTEN = {code: ascii(chr(code))[1:-1] for code in (*_CONTROLS, *_DIRECTIONS, *_NO_CHARACTERS)}


def harmless(text: str) -> str:
    """A text with its control characters spelled out, as in ``\\x1b``, but for newlines and tabs."""
    return text.translate(_WRITTEN)


@contextmanager
def in_plain_lines() -> Iterator[None]:
    """Print harmless text alone on stdout, and of warnings only the package's own, a line each on stderr."""
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(cast(TextIO, _Harmless(sys.stdout))), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TallmasksWarning)
            warnings.showwarning = lambda text, *rest, **more: print(f"warning: {harmless(str(text))}", file=sys.stderr)
            yield
    finally:
        logging.disable(logging.NOTSET)


class _Harmless:
    """A stream to another one, as which it passes in all the rest."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def write(self, text: str) -> int:
        return self._to.write(harmless(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


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
        parsed = parser.parse_args(arguments or ["--help"])
        with user_errors(), needed_for(f"tallmasks {parsed.command}"):
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
