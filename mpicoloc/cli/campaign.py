"""Run programs alone and in pairs, and tell how much each slows down beside each other one.

What the slowdown models learn from. FILE is TOML: a table for each program, with the command, and the ranks
that `mpicoloc run` is to give it; without n_ranks the command starts the job itself, with mpicoloc in it.

  rounds = 3
  places = [[0], [1]]             # processors of the first and the second job
  [programs.heat2d]
  command = "./heat2d 400 2000"
  n_ranks = 1
  [programs.lammps]
  command = "lmp -in in.lj"
  n_ranks = 1
  folder = "lj"                   # copied into each run's working directory

Of two programs the one that ends first is started again until the other has ended too. A campaign that was
interrupted goes on where it stopped.

  mpicoloc campaign programs.toml --out campaign
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from mpicoloc.core import messages
from mpicoloc.errors import MpicolocError

if TYPE_CHECKING:
    from mpicoloc.campaign.campaign import Done
    from mpicoloc.campaign.campaign_file import Campaign, Experiment

_WHY_UNKNOWN = (
    "needs runs alone that ended, one program run twice, and runs that last long beside their start and end"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="the programs, as TOML")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="for profiles and what was measured")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these programs only")
    parser.add_argument("--pairs", metavar="N", help="so many pairs only, chosen at random")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the random order (default 0)")
    parser.add_argument(
        "--meter", default="none", help="meter of the jobs; none, the default, pauses no job for shutters"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be run")
    parser.add_argument(
        "--json", action="store_true", help="print the slowdowns, or what would be run, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    """Make what is missing and print all slowdowns; 1 if an experiment failed."""
    import numpy as np

    from mpicoloc import config
    from mpicoloc.campaign import campaign, campaign_file

    env = config.flags_to_env({"meter": args.meter})
    seed, n_pairs = (
        config.parse_whole("--seed", args.seed, 0),
        args.pairs and config.parse_whole("--pairs", args.pairs),
    )
    plan = campaign_file.read(args.file)
    names = args.only or list(plan.programs)
    wanted = campaign_file.experiments(plan, names, n_pairs or None, np.random.default_rng(seed))
    if args.dry_run:
        done = campaign.read(args.out)
        _show_plan(campaign.missing(plan, wanted, done, env), done, is_json=args.json)
        return 0
    with _ended_in_order(), campaign.alone_in(args.out) as ended:
        if ended is None:
            messages.trouble(
                f"the file system of {args.out} has no file locks: make sure that no other campaign runs "
                "there; what a killed one left running is not ended"
            )
        elif ended:
            messages.trouble(
                f"a campaign was killed here; what it had left running was ended ({len(ended)} processes)"
            )
        done = campaign.read(args.out)
        todo = campaign.missing(plan, wanted, done, env)
        watch = _Watch(todo, done)
        watch.tell_plan(plan, len(wanted), campaign.supposed(done))
        n_failed = campaign.make(plan, todo, args.out, env, watch.tell)
        done = campaign.read(args.out)
    _show(done, names, campaign.kinds(args.out, done) if args.json else None)
    return 1 if n_failed else 0


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Signals that end this process end what it has started, too."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    # Whoever starts a command with nohup wants it to go on.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_plan(todo: Sequence[Experiment], done: Sequence[Done], *, is_json: bool) -> None:
    from mpicoloc.campaign import campaign

    if not is_json:
        for each in todo:
            print(f"{each.i_round} {each.kind} {' '.join(each.names)}")
        return
    rows = [
        {"round": each.i_round, "names": each.names, "expected_s": campaign.expected_s([each], done)}
        for each in todo
    ]
    print(json.dumps({"experiments": rows}, indent=2, allow_nan=False))


def _show(done: Sequence[Done], names: Sequence[str], kinds: Mapping[str, str] | None) -> None:
    """Print the slowdowns; with the kinds of the programs as JSON."""
    from mpicoloc.report.terminal import campaign as report

    found = report.slowdowns(done, names)
    for text in report.unknown(done, found, names):
        messages.note(f"{text}: {_WHY_UNKNOWN}")
    if kinds is not None:
        print(json.dumps(report.as_json(found, kinds), indent=2, allow_nan=False))
    else:
        report.show(found, names)


class _Watch:
    """Tells how far a campaign has come."""

    def __init__(self, todo: Sequence[Experiment], done: Sequence[Done]) -> None:
        self.left, self.done = list(todo), list(done)

    def tell_plan(self, plan: Campaign, n_wanted: int, supposed: Sequence[str]) -> None:
        """What is to be done."""
        places = " and ".join(",".join(map(str, place)) for place in plan.places)
        messages.note(
            f"{len(self.left)} of {n_wanted} experiments to make, on processors {places}{self._time()}"
        )
        if supposed:
            messages.note(
                f"runs of {', '.join(supposed)} were noted by an earlier version, which did not look at the "
                "programs' files: they are supposed to be the same ones"
            )

    def tell(self, experiment: Experiment, found: Done | MpicolocError) -> None:
        """One experiment was made, or failed."""
        what = f"round {experiment.i_round}, {' + '.join(experiment.names)}"
        self.left.remove(experiment)
        if isinstance(found, MpicolocError):
            messages.trouble(f"{what}: {found}")
            return
        self.done.append(found)
        times = ", ".join(f"{run.program} {run.wall_s:.2f} s" for run in found.runs if run.is_whole)
        messages.note(f"{what}: {times}; {len(self.left)} left{self._time()}")

    def _time(self) -> str:
        from mpicoloc.campaign import campaign

        left_s = campaign.expected_s(self.left, self.done) if self.left else None
        return "" if left_s is None else f", about {_about(left_s)}"


def _about(time_s: float) -> str:
    if time_s < 100:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 6000 else f"{time_s / 3600:.1f} h"
