"""`mpicoloc batch --sweep`: logs, orders, allocations, sharing policies and seeds, each with each other."""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpicoloc.batch import sharing
from mpicoloc.errors import UsageError
from mpicoloc.job import sweep_flags

if TYPE_CHECKING:
    from mpicoloc.job.sweep import Case

LOG = "log"
"""What a sweep of several logs calls them."""
_ONE_RUN = ("page",)
_NOT_SWEPT = ("out", "page", "sweep", "processes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of sweeps."""
    sweep_flags.add_arguments(
        parser,
        "simulate with each of these values of a flag, as --sweep order fcfs easy; several: every "
        "combination, with each LOG. Rows are noted in --out, and what is noted is not run again. On all "
        "cores, or by the ranks of mpirun",
    )


def is_sweep(args: argparse.Namespace) -> bool:
    """Whether there is more than one simulation to be made."""
    return args.sweep is not None or len(args.logs) > 1


def run(
    args: argparse.Namespace,
    add_flags: Callable[[argparse.ArgumentParser], None],
    check: Callable[[argparse.Namespace], None],
    row: Callable[[argparse.Namespace], dict[str, Any]],
) -> int:
    """Simulate what is missing, and print all rows; 1 if some failed, the code of the first if all did."""
    from mpicoloc.batch import tables
    from mpicoloc.batch import terminal as report

    sweep_flags.check_flags(args, "simulation", _ONE_RUN, "--sweep" if args.sweep else "more than one LOG")
    found = sweep_flags.complete(args, lambda: _cases(args, add_flags, check), row, tables.write_sweep)
    if found is None:
        return 0
    rows, code = found
    if rows and args.json:
        print(json.dumps(rows, indent=2, allow_nan=False))
    elif rows:
        report.show_sweep(rows)
    sys.stdout.flush()
    return code


def _cases(
    args: argparse.Namespace,
    add_flags: Callable[[argparse.ArgumentParser], None],
    check: Callable[[argparse.Namespace], None],
) -> list[Case]:
    """Every combination of the values, as arguments of a simulation of its own."""
    from mpicoloc.job import sweep

    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    flags = {name: flag for name, flag in sweep_flags.flags_of(parser).items() if name not in _NOT_SWEPT}
    valued = {name: flag for name, flag in flags.items() if flag.nargs != 0}
    # A log stays the same for long, since processes keep the one that they have read.
    axes = ({LOG: args.logs} if len(args.logs) > 1 else {}) | sweep_flags.axes(args, valued, {})
    _check_logs(args.logs)
    digest = functools.cache(lambda word: sweep_flags.digest_of([word]) if os.path.isfile(word) else word)
    cases = []
    for settings in sweep.grid(axes):
        own = copy.copy(args)
        del own.run, own.sweep, own.logs
        own.out, own.log = None, settings.get(LOG, args.logs[0])
        for name, value in settings.items():
            if name != LOG:
                sweep_flags.set_flag(own, valued[name], value)
        if "sharing" in axes and sharing.names_of(own) == ["none"]:
            sharing.unset(own)
        flag_values = {flag.dest: getattr(own, flag.dest) for name, flag in flags.items() if name != "json"}
        # What a flag names may be a file, and then its contents count.
        words = [
            word for value in flag_values.values() for word in (value if isinstance(value, list) else [value])
        ]
        files = [digest(word) for word in (own.log, *words) if isinstance(word, str)]
        cases.append(
            sweep.Case(settings, sweep_flags.key(flag_values, os.path.basename(own.log), files), own)
        )
    sweep_flags.check_each(cases, check, sharing.parse_seed, "seed")
    return cases


def _check_logs(logs: list[str]) -> None:
    for log in logs:
        if logs.count(log) > 1:
            raise UsageError(f"log {log} is there twice: give it once")
