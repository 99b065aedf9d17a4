"""Make the experiments that a campaign lacks, alone in its folder, and report how far it has come."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import NoReturn

from mpicoloc.campaign import campaign
from mpicoloc.campaign.campaign import Done
from mpicoloc.campaign.campaign_file import Campaign, Experiment
from mpicoloc.core import messages
from mpicoloc.errors import MpicolocError


def complete(
    plan: Campaign, wanted: Sequence[Experiment], folder: str, env: Mapping[str, str]
) -> tuple[list[Done], int]:
    """Make what is missing of `wanted`.

    Returns
    -------
    done : list of Done
        All experiments of the folder.
    n_failed : int
        How many of those made now failed.
    """
    with _ended_by_signals(), campaign.alone_in(folder) as ended:
        if ended is None:
            messages.trouble(
                f"the file system of {folder} has no file locks: make sure that no other campaign runs "
                "there; what a killed one left running is not ended"
            )
        elif ended:
            messages.trouble(
                f"a campaign was killed here; what it had left running was ended ({len(ended)} processes)"
            )
        done = campaign.read(folder)
        todo = campaign.missing(plan, wanted, done, env)
        progress = _Progress(todo, done)
        progress.begin(plan, len(wanted), campaign.supposed(done))
        n_failed = campaign.make(plan, todo, folder, env, progress.add)
        return campaign.read(folder), n_failed


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
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


class _Progress:
    """Reports how far a campaign has come."""

    def __init__(self, todo: Sequence[Experiment], done: Sequence[Done]) -> None:
        self.left, self.done = list(todo), list(done)

    def begin(self, plan: Campaign, n_wanted: int, supposed: Sequence[str]) -> None:
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

    def add(self, experiment: Experiment, found: Done | MpicolocError) -> None:
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
        left_s = campaign.expected_s(self.left, self.done) if self.left else None
        return "" if left_s is None else f", about {_about(left_s)}"


def _about(time_s: float) -> str:
    if time_s < 100:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 6000 else f"{time_s / 3600:.1f} h"
