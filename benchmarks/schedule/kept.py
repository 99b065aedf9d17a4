"""What examples/slurm-model has of this machine, out of a campaign and a spool.

    python benchmarks/schedule/campaign.py --layout shared --out CAMPAIGN --seconds 4 --programs ...
    python benchmarks/schedule/slurm_queue.py --programs lmp:2,... --ways pairs --seconds 5 --first \\
        --keep SPOOL
    python benchmarks/schedule/kept.py CAMPAIGN/runs SPOOL --without heat2d --out measured

Makes OUT/campaign.npz of the campaign's slowdowns without one program, OUT/PROGRAM.npz of that program's, and
OUT/NAME.h5 of the last profile of each name in the queue.
"""

import argparse
import dataclasses
import shlex
from pathlib import Path

import numpy as np

from mpicoloc.core.tables import text
from mpicoloc.core.training import TrainingSet, merged
from mpicoloc.pairing import training_sets
from mpicoloc.pairing import training_sets as campaigns
from mpicoloc.profile import hdf5


def keep(spool, folder):
    """Put every profile below `spool` into `folder`, under its name, unsigned."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in Path(spool).rglob("*.h5"):
        hdf5.write(plain(hdf5.read(path)), Path(folder) / path.name)


def plain(profile):
    """A profile whose program and loaded objects have names, but no folders: those are of one machine."""
    program, *words = shlex.split(profile.job.command)
    job = dataclasses.replace(profile.job, command=shlex.join([Path(program).name, *words]))
    modules = np.array(profile.tables["modules"])
    modules["path"] = [Path(text(path)).name.encode() for path in modules["path"]]
    return dataclasses.replace(profile, job=job, tables={**profile.tables, "modules": modules})


def last_of_names(spool):
    """Of the profiles below `spool` the last one of each name in the queue."""
    found = sorted(map(hdf5.read, Path(spool).rglob("*.h5")), key=lambda profile: profile.job.start_unix_s)
    return {profile.job.batch_name: profile for profile in found}


def parted(found, program):
    """Two training sets: what was measured without a program, and with it."""
    ends = np.stack([found.rows["target"], found.rows["co_runner"]])
    has = np.isin(ends, [i for i, job in enumerate(found.jobs) if job.program == program]).any(axis=0)
    return tuple(
        merged([TrainingSet(found.jobs, found.rows[rows].copy(), found.machine, found.layout)])
        for rows in (~has, has)
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign")
    parser.add_argument("spool")
    parser.add_argument("--without", required=True, help="the program that is to be unknown to the campaign")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    others, own = parted(campaigns.from_campaign(args.campaign), args.without)
    training_sets.write_file(others, args.out / "campaign.npz")
    training_sets.write_file(own, args.out / f"{args.without}.npz")
    for name, profile in last_of_names(args.spool).items():
        hdf5.write(plain(profile), args.out / f"{name}.h5")


if __name__ == "__main__":
    main()
