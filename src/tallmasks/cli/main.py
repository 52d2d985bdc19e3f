"""Merge and compress fine-tuned models of one base.

    tallmasks merge --base ./base --task cars=./cars --task dtd=./dtd --method ties -o ./merged
    tallmasks compress --base ./base --task cars=./cars --task dtd=./dtd -o ./bundle
    tallmasks methods ties

`tallmasks COMMAND --help` shows the options of a command.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from tallmasks import __version__
from tallmasks.cli.options import Parser
from tallmasks.errors import OptionError, TallmasksError, TallmasksWarning, nearest, needed_for, one_line, user_errors

OF_A_CLONE = "a clone of the project, in its folder (params.yaml, store/, results/)"
GROUPS = {
    "checkpoints of your own": {
        "example": "write a small base and four fine-tuned models, to try the other commands on",
        "merge": "merge fine-tuned models of one base into one model",
        "compress": "compress fine-tuned models of one base into a bundle, which restores any of them",
        "export": "write the model of one task of a bundle, or the models of all",
        "info": "show what a bundle or a checkpoint contains",
        "verify": "verify the checksums of bundles, and of the project's artifacts and results",
    },
    OF_A_CLONE: {
        "doctor": "check whether this machine can run the models of params.yaml",
        "gc": "list stored files that params.yaml no longer needs, and remove them on confirmation",
        "why": "explain why a result or an artifact would be rebuilt, or that it would not",
        "compare": "write the settings for a table of methods on your own text classifiers",
        "evaluate": "print the accuracy of text classifiers: one model, a merged model, or a bundle",
    },
    "reference": {
        "methods": "list the methods, or describe one: options, required data, paper",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

_IN_REPRODUCTION = {path.stem for path in (Path(__file__).parents[2] / "reproduction" / "cli").glob("*.py")}
"""The commands of the package `reproduction`, which lies beside this one in a clone."""


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Print only the package's own warnings, one line each on stderr."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TallmasksWarning)
            warnings.showwarning = lambda text, *rest, **more: print(f"warning: {one_line(text)}", file=sys.stderr)
            yield
    finally:
        logging.disable(logging.NOTSET)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Errors that a user can fix are one line without a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        with _own_warnings():
            status = _run(arguments)
        sys.stdout.flush()
        return status
    except TallmasksError as error:
        in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        message = "\n".join(map(one_line, error.args))
        print("\033[31merror:\033[0m" if in_colour else "error:", message, file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail
        return 128 + signal.SIGPIPE


def _run(arguments: list[str]) -> int:
    if arguments[0] == "help":
        arguments = [*arguments[1:2], "--help"]
    command = arguments[0]
    if command.startswith("-"):
        _top_parser().parse_args(arguments)
    if command not in COMMANDS:
        raise OptionError(
            f"unknown command {command!r}{nearest(command, [*COMMANDS, '--version'])}; see `tallmasks --help`"
        )
    install = "make install" if command in _IN_REPRODUCTION else None
    with user_errors(), needed_for(f"tallmasks {command}", install):
        parsed = command_parser(command).parse_args(arguments[1:])
        return int(parsed.run(parsed))


def _top_parser() -> Parser:
    parser = Parser("tallmasks", __doc__ or "")
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("-V", "--version", action="version", version=__version__, help="show the version")
    for title, group in GROUPS.items():
        lines = [f"{title}:", *(f"  {name:10}{summary}" for name, summary in group.items())]
        parser.description = "\n".join([f"{parser.description}\n", *lines])
    return parser


def command_parser(command: str) -> Parser:
    module = module_of(command)
    parser = Parser(f"tallmasks {command}", module.__doc__ or "")
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def module_of(command: str) -> ModuleType:
    """The module of a command, which defines `add_arguments(parser)` and `run(arguments)`.

    In a clone of the project, commands of the reproduction come first: its `verify` extends the one here.
    Raises TallmasksError for a command of the reproduction where that is not installed.
    """
    if command in _IN_REPRODUCTION:
        return importlib.import_module(f"reproduction.cli.{command}")
    if command not in GROUPS[OF_A_CLONE]:
        return importlib.import_module(f"tallmasks.cli.{command}")
    raise TallmasksError(
        f"tallmasks {command} belongs to the reproduction of the paper, which this installation lacks; run it in the"
        " folder of a clone of the project, after `make install`"
    )


if __name__ == "__main__":
    sys.exit(main())
