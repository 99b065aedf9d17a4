"""Entry point of ``mpicoloc``. Each verb is a module with ``add_arguments(parser)`` and ``run(args) -> int``.

A call imports only the module of its own verb.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn, TextIO

import mpicoloc
from mpicoloc import errors, messages
from mpicoloc.cli import arguments, verbosity
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "measure": {
        "run": ("job.run", "run an MPI program with its coordinators and write a profile"),
        "preload": ("job.preload", "print the path of the library to preload (LD_PRELOAD)"),
        "bubble": (
            "bubble.verb",
            "measure a program's sensitivity to memory pressure, and the pressure it causes",
        ),
        "check": ("job.check", "check what works on this machine, and say how to fix the rest"),
        "recover": (
            "job.recover_verb",
            "write a partial profile from the checkpoints of a job whose node died",
        ),
    },
    "read": {
        "show": ("profile.show", "show a profile"),
        "report": ("profile.report", "write a profile as an HTML page, or its figures as files"),
        "compare": ("profile.compare", "compare runs: solo against co-run, before against after"),
        "history": ("profile.history_verb", "list the profiles below a folder"),
        "top": ("job.top", "show the jobs on this node while they run"),
        "network": ("network.verb", "show the load of a job on each level of a fat-tree"),
        "export": ("trace.export.verb", "convert a profile to the format of another tool"),
    },
    "decide": {
        "campaign": ("pairing.campaign_verb", "run programs alone and in pairs, and measure their slowdowns"),
        "fit": ("pairing.fit", "fit a model of how much jobs slow each other down"),
        "predict": ("pairing.predict", "predict how much jobs slow each other down"),
        "pair": ("pairing.pair", "choose which waiting jobs share a node"),
        "place": ("place.verb", "choose nodes for jobs that share nodes"),
        "batch": ("batch.verb", "simulate a machine's batch system on a job log"),
        "replay": ("replay.verb", "replay jobs on a fat-tree packet by packet, alone and together"),
        "qos": ("replay.qos.verb", "choose lanes and weights for jobs that share an InfiniBand network"),
    },
    "bill": {
        "price": ("bill.price_verb", "price a job: by run time, at the fair price, and by its true slowdown"),
        "ledger": ("bill.ledger_verb", "keep accounts of service units, and charge profiles to them"),
        "sign": ("bill.sign", "sign a profile with a key that only the site has"),
        "verify": ("bill.verify", "check whether a profile was changed after signing"),
    },
    "site": {
        "slurm": ("slurm.verb", "run a small Slurm cluster on this machine, and build the Slurm plugin"),
        "lab": ("lab.verb", "emulate a fat-tree cluster on this machine, and run jobs in it"),
        "exporter": ("job.exporter", "serve metrics of this node's running jobs to Prometheus"),
        "build": ("job.build", "build the preloaded library for your own MPI"),
        "completion": ("cli.completion", "print a completion script for your shell"),
    },
}
"""Verbs by purpose, in the order of the help; for each its module below ``mpicoloc``, and its summary."""
MODULES: dict[str, str] = {verb: row[0] for group in GROUPS.values() for verb, row in group.items()}
VERBS: dict[str, str] = {verb: row[1] for group in GROUPS.values() for verb, row in group.items()}
EXAMPLES = """\
  mpicoloc run -n 8 ./app           # run a job and write its profile
  mpicoloc show mpicoloc-1234.h5    # look at it
  mpicoloc show --help              # every verb has examples"""


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `UsageError` for a wrong call, with a message of one line and a hint."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", arguments.Formatter)
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Raise the error, which `main` prints. In `argparse`, this method prints the whole usage first."""
        wrong_number = re.fullmatch(r"argument (\S+): (must be .*)", message, re.DOTALL)
        if wrong_number is not None:
            raise UsageError(" ".join(wrong_number.groups()))
        raise UsageError(f"{message}{self._hint(message)}; see `{self.prog} --help`")

    def _hint(self, message: str) -> str:
        if not message.startswith("unrecognized arguments: "):
            return ""
        wrong = message.split(": ", 1)[1].split()[0].split("=")[0]
        import difflib

        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        known = [flag for action in shown for flag in action.option_strings]
        close = difflib.get_close_matches(wrong, known, n=1)
        return f" (did you mean {close[0]}?)" if close else ""


def build_parser(*called: str | None) -> tuple[Parser, Parser]:
    """The command's parser, and the parser of the last verb in `called`.

    A verb that is not in `called` gets only a name and a summary, so its module is not imported.
    """
    parser = Parser(prog="mpicoloc")
    arguments.describe(parser, f"{mpicoloc.__doc__}\n\n{EXAMPLES}")
    parser.add_argument("--version", action="version", version=f"mpicoloc {mpicoloc.__version__}")
    verbosity.add_flags(parser)
    verbs: Any = parser.add_subparsers(
        dest="verb", metavar="VERB", parser_class=Parser, title="verbs", action=arguments.GroupedWords
    )
    verbs.groups = GROUPS
    last = parser
    for name, help_text in VERBS.items():
        if name in called:
            last = _add_verb(verbs, name)
        else:
            verbs.add_parser(name, help=help_text, add_help=False)
    return parser, last


def _add_verb(verbs: Any, name: str) -> Parser:
    module = load_verb(name)
    parser: Parser = verbs.add_parser(name, help=VERBS[name])
    arguments.describe(parser, module.__doc__ or "")
    module.add_arguments(parser)
    verbosity.add_flags(parser)
    parser.set_defaults(run=module.run)
    return parser


def load_verb(name: str) -> ModuleType:
    """The module of a verb: ``add_arguments(parser)`` and ``run(args) -> int``."""
    return importlib.import_module(f"mpicoloc.{MODULES[name]}")


def dispatch(argv: Sequence[str]) -> int:
    """Run the verb that `argv` names."""
    level, argv = verbosity.leading(argv)
    verb = argv[0] if argv and not argv[0].startswith("-") else None
    if verb is not None and verb not in VERBS:
        import difflib

        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"unknown verb {verb!r}{hint}; the verbs are {', '.join(VERBS)}")
    parser, called = build_parser(verb)
    prepare = getattr(load_verb(verb), "prepare_argv", None) if verb else None
    args, unknown = parser.parse_known_args([argv[0], *prepare(argv[1:])] if prepare else argv)
    if unknown:
        arguments.innermost_parser(called, args).error(f"unrecognized arguments: {' '.join(unknown)}")
    if args.verb is None:
        parser.print_help()
        return 0
    with verbosity.at(getattr(args, "level", level), args.verb):
        if args.verb != "check":  # `check` reports these variables itself
            _warn_of_variables()
        return _run_verb(args)


def _run_verb(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except ModuleNotFoundError as error:
        fault = errors.missing_extra(error, args.verb)
        if fault is None:
            raise
        raise fault from error


def _warn_of_variables() -> None:
    """Warn about misspelt MPICOLOC_ variables, which have no effect."""
    if any(name.startswith("MPICOLOC_") for name in os.environ):
        from mpicoloc import config

        for line in config.variable_warnings():
            messages.note(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Errors become messages here and nowhere else."""
    _open_streams()
    try:
        code = _run(argv)
    except BrokenPipeError:
        code = 0  # not an error: the reader, such as `head`, has closed the pipe
    lost = _finish(sys.stdout)
    if lost is not None and code == 0:
        code = _refused(lost)
    _finish(sys.stderr)
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        return dispatch(sys.argv[1:] if argv is None else argv)
    except SystemExit as done:  # argparse raises it after --help
        return int(done.code or 0)
    except MpicolocError as error:
        for line in (str(error), *getattr(error, "__notes__", ())):
            messages.trouble(line.expandtabs())
        return error.exit_code
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _refused(error)


def _refused(error: OSError) -> int:
    where = f" for {error.filename}" if error.filename else ""
    messages.trouble(f"the operating system reported an error{where}: {error.strerror or error}")
    return EnvironmentFault.exit_code


def _finish(stream: TextIO) -> OSError | None:
    """Flush a stream. Returns the error if flushing fails, but None if that is because the reader is gone.

    After a failure the stream is redirected to /dev/null, because the interpreter flushes it again at exit
    and would complain.
    """
    try:
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return None if isinstance(error, BrokenPipeError) else error
    return None


def _open_streams() -> None:
    """Open missing standard streams on /dev/null.

    Daemons such as slurmctld start programs without standard streams. The next files that such a program
    opens would take the place of these streams.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (until the end)


if __name__ == "__main__":
    sys.exit(main())
