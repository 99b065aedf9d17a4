"""What the same queue of jobs took in several ways: makespan, turnaround, slowdown, price.

    python makespans.py SPOOL WAY.txt [WAY.txt ...]

SPOOL has the jobs' signed profiles, each WAY.txt the numbers of one way's jobs. Start and end are of Slurm's
list of ended jobs (JobCompType=jobcomp/filetxt), in whole seconds. The slowdown of a job is the time in its
profile, from MPI_Init to MPI_Finalize, over the mean of the same program's jobs in the first way.
"""

import re
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import mpicoloc
from mpicoloc.profile import history

COLUMNS = {
    "jobs": ("n_jobs", "d"),
    "ended well": ("n_completed", "d"),
    "first runs": ("n_first", "d"),
    "shared": ("n_shared", "d"),
    "makespan, s": ("makespan_s", ".0f"),
    "of first": ("makespan_frac", ".2f"),
    "turnaround, s": ("turnaround_s", ".1f"),
    "slowdown": ("slowdown", ".2f"),
    "by time, SU": ("runtime_su", ".5f"),
    "fair, SU": ("fair_su", ".5f"),
}
"""Of the table: key of a row, and how it is written. Turnaround and slowdown are means over jobs; first runs
began before any job of their program had ended."""


@dataclass(frozen=True)
class Ended:
    """One job that has ended; times in s since 1970."""

    id: int
    name: str
    state: str
    node: str
    submit_s: float
    start_s: float
    end_s: float


def ended():
    """All jobs that have ended, each as often as it ran."""
    told = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    lines = Path(re.search(r"^JobCompLoc\s*=\s*(\S+)", told, re.M)[1]).read_text().splitlines()
    found = []
    for line in lines:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        times = (
            time.mktime(time.strptime(words[f"{name}Time"], "%Y-%m-%dT%H:%M:%S"))
            for name in ("Submit", "Start", "End")
        )
        facts = (words[name] for name in ("Name", "JobState", "NodeList"))
        found.append(Ended(int(words["JobId"]), *facts, *times))
    return found


def profiles(spool):
    """Facts of the jobs' profiles by number of the job; each job here is one step."""
    return {
        int(row["job"]): row for row in history.records(mpicoloc.history(spool)) if row["trouble"] is None
    }


def compared(ways, jobs, told):
    """A row for each way, compared with the first.

    `ways` has the numbers of each way's jobs by its name, `jobs` is of `ended`, `told` of `profiles`.
    """
    of_ways = {way: [job for job in jobs if job.id in numbers] for way, numbers in ways.items()}
    alone_s = defaultdict(list)
    for job in next(iter(of_ways.values())):
        if job.id in told:
            alone_s[job.name].append(told[job.id]["wall_s"])
    rows = [
        {"way": way, "n_jobs": len(ways[way]), **_row(found, told, alone_s)} for way, found in of_ways.items()
    ]
    for row in rows:
        row["makespan_frac"] = row["makespan_s"] / rows[0]["makespan_s"]
    return rows


def _row(jobs, told, alone_s):
    known = [told[job.id] for job in jobs if job.id in told]
    stretches = [told[job.id]["wall_s"] / mean(alone_s[job.name])
                 for job in jobs if job.id in told and job.name in alone_s]  # fmt: skip
    return {
        "n_completed": sum(job.state == "COMPLETED" for job in jobs),
        "n_profiles": len(known),
        "n_first": sum(not any(_told_of(job, other) for other in jobs) for job in jobs),
        "n_shared": sum(any(met(job, other) for other in jobs) for job in jobs),
        "makespan_s": max(job.end_s for job in jobs) - min(job.start_s for job in jobs),
        "turnaround_s": mean(job.end_s - job.submit_s for job in jobs),
        "slowdown": mean(stretches) if stretches else None,
        "runtime_su": sum(row["runtime_su"] or 0.0 for row in known),
        "fair_su": sum(row["fair_su"] or 0.0 for row in known),
    }


def met(job, other):
    """Whether two jobs were on one node at one time."""
    return (
        job is not other
        and job.node == other.node
        and job.start_s < other.end_s
        and other.start_s < job.end_s
    )


def _told_of(job, other):
    return other.name == job.name and other.end_s <= job.start_s


def table(rows):
    """The rows as text."""
    lines = ["way".ljust(10) + "".join(title.rjust(len(title) + 2) for title in COLUMNS)]
    for row in rows:
        cells = (
            ("-" if row[key] is None else format(row[key], form)).rjust(len(title) + 2)
            for title, (key, form) in COLUMNS.items()
        )
        lines.append(row["way"].ljust(10) + "".join(cells))
    return "\n".join(lines)


def main(spool, *files):
    ways = {Path(file).stem: {int(word) for word in Path(file).read_text().split()} for file in files}
    print(table(compared(ways, ended(), profiles(spool))))


if __name__ == "__main__":
    main(*sys.argv[1:])
