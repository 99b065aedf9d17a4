"""Steps of a spool that a ledger has not settled, by the names of their files; no file is opened."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from mpicoloc.bill import spool
from mpicoloc.bill.ledger import Ledger
from mpicoloc.core.step_record import SCRIPTS
from mpicoloc.errors import EnvironmentFault

PROFILE, RECORD = ".h5", ".json"
_OF_PLUGIN = re.compile(rf"\d+\.\d+(\.(\d+|{'|'.join(SCRIPTS)}))?")
"""Names that the plugin gives; a record of another name counts only beside a profile."""


@dataclass(frozen=True)
class Step:
    """A step by the name of its files; `is_charged`: in full, before there was a profile."""

    folder: str
    stem: str
    has_profile: bool
    has_record: bool
    is_charged: bool

    @property
    def profile(self) -> str:
        """Where its profile is or would be."""
        return os.path.join(self.folder, self.stem + PROFILE)

    @property
    def record(self) -> str:
        """Where Slurm's record of it is or would be."""
        return os.path.join(self.folder, self.stem + RECORD)

    @property
    def file(self) -> str:
        """The file that stands for the step in messages."""
        return self.profile if self.has_profile else self.record

    @property
    def job(self) -> str:
        """Job and step, as Slurm writes them."""
        parts = self.stem.split(".")
        return f"{parts[0]}.{parts[-1]}"

    @property
    def start(self) -> str:
        """The start of its job, with which the names of all its steps begin."""
        return ".".join(self.stem.split(".")[:2])

    @property
    def is_script(self) -> bool:
        """Whether it is the job itself, by its name."""
        return self.stem.rpartition(".")[2] in SCRIPTS


@dataclass(frozen=True)
class Spool:
    """Number of settled steps, and all others: scripts last, because they pay for what their steps do not."""

    n_settled: int
    steps: list[Step]


def scan(folder: str, ledger: Ledger) -> Spool:
    """List the steps in a spool.

    Raises `EnvironmentFault` if it cannot be read.
    """
    profiles, records = _stems(folder)
    stems = list(profiles | records)
    paid = spool.settled(ledger, [stem + PROFILE for stem in stems])
    rest = [stem for stem in stems if stem + PROFILE not in paid]
    in_full = spool.settled(ledger, [stem + RECORD for stem in rest if stem in records])
    steps = [
        Step(folder, stem, stem in profiles, stem in records, stem + RECORD in in_full)
        for stem in rest
        # What was charged in full is settled, unless a profile came after all.
        if stem in profiles or stem + RECORD not in in_full
    ]
    return Spool(len(stems) - len(steps), sorted(steps, key=lambda step: (step.is_script, step.stem)))


def _stems(folder: str) -> tuple[set[str], set[str]]:
    """Names of profiles and of records, without their ends."""
    try:
        names = [name for name in os.listdir(folder) if name[0] != "."]
    except OSError as error:
        raise EnvironmentFault(
            f"cannot read the spool {folder}: {error.strerror}; give the folder that plugstack.conf names "
            "with spool=, where Slurm's plugin puts signed profiles and records of steps"
        ) from error
    profiles, records = (
        {name[: -len(end)] for name in names if name.endswith(end)} for end in (PROFILE, RECORD)
    )
    return profiles, {stem for stem in records if stem in profiles or _OF_PLUGIN.fullmatch(stem)}
