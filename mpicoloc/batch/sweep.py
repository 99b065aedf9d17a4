"""`mpicoloc batch --sweep`: logs, orders, allocations, sharing policies and seeds, each with each other."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any

from mpicoloc import messages
from mpicoloc.batch import study, tables
from mpicoloc.errors import UsageError
from mpicoloc.job import sweep

LOG = "log"
"""What a sweep of several logs calls them."""
_NOT_SWEPT = ("out", "page", "sweep", "processes")


def run(args: argparse.Namespace, add_flags: Callable[[argparse.ArgumentParser], None]) -> int:
    """Simulate what is missing, and print all rows; 1 if some failed, the code of the first if all did."""
    several = "--sweep" if args.sweep else "more than one LOG"
    _, code = sweep.run(
        args,
        "simulation",
        ("page",),
        lambda: _cases(args, add_flags),
        row,
        tables.write_sweep,
        tables.show_sweep,
        several,
    )
    return code


def row(args: argparse.Namespace) -> dict[str, Any]:
    """One simulation, in a process of a sweep: what ``--json`` prints of it, and its notes."""
    notes: list[str] = []
    with messages.at_level(messages.NORMAL, lambda line: notes.append(line.removeprefix("mpicoloc: "))):
        found = study.simulate(study.of(args), keeps_places=False)
    return {"notes": notes, **found.as_json()}


def _check(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files, before anything is simulated."""
    with messages.at_level(messages.QUIET):
        study.of(args)


def _cases(
    args: argparse.Namespace, add_flags: Callable[[argparse.ArgumentParser], None]
) -> list[sweep.Case]:
    """Every combination of the values, as arguments of a simulation of its own."""
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    flags = {name: flag for name, flag in sweep.flags_of(parser).items() if name not in _NOT_SWEPT}
    valued = {name: flag for name, flag in flags.items() if flag.nargs != 0}
    # A log stays the same for long, since processes keep the one that they have read.
    axes = ({LOG: args.logs} if len(args.logs) > 1 else {}) | sweep.axes(args, valued, {})
    if twice := [log for log in args.logs if args.logs.count(log) > 1]:
        raise UsageError(f"log {twice[0]} is there twice: give it once")
    digest = functools.cache(lambda word: sweep.digest_of([word]) if os.path.isfile(word) else word)
    cases = []
    for settings, own in sweep.variants(args, axes, valued):
        del own.logs
        own.log = settings.get(LOG, args.logs[0])
        if "sharing" in axes and study.names_of(own) == ["none"]:
            study.unset_sharing(own)
        values = {flag.dest: getattr(own, flag.dest) for name, flag in flags.items() if name != "json"}
        # What a flag names may be a file, and then its contents count.
        words = [
            word for value in values.values() for word in (value if isinstance(value, list) else [value])
        ]
        files = [digest(word) for word in (own.log, *words) if isinstance(word, str)]
        cases.append(sweep.Case(settings, sweep.key(values, os.path.basename(own.log), files), own))
    sweep.check_each(cases, _check, "seed")
    return cases
