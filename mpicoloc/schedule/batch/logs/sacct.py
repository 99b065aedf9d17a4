"""What Slurm's ``sacct --parsable2`` prints: a header that names the columns, and a line for each job."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoloc.errors import DataError
from mpicoloc.schedule.batch.logs import slurm_jobs
from mpicoloc.schedule.batch.logs.job_log import JobLog

_COLUMNS = {
    "number": ("jobidraw", "jobid"),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "start": ("start",),
    "end": ("end",),
    "nodes": ("nnodes", "allocnodes"),
    "processors": ("ncpus", "alloccpus"),
    "limit": ("timelimit", "timelimitraw"),
    "user": ("user", "uid"),
    "partition": ("partition",),
    "queue": ("qos",),
    "name": ("jobname",),
}
"""What each column of `slurm_jobs` is called by `sacct`; the first that is there counts."""
_NEEDED = {"number": "JobIDRaw", "submit": "Submit", "start": "Start", "end": "End"}


def is_header(line: str) -> bool:
    """Whether a line is the header of `sacct`."""
    return not {"jobid", "jobidraw"}.isdisjoint(_names(line))


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log, without the steps of jobs.

    Lines that are there twice count once: files of several months may tell of one job each.

    Parameters
    ----------
    lines : sequence of str
        Of the file.
    source : str
        Its name, for messages.
    skip_damaged : bool
        Leave damaged lines out.

    Returns
    -------
    JobLog
        With the names of jobs as programs.
    tuple of int
        Numbers of the damaged lines that were left out, from 1.

    Raises
    ------
    DataError
        If the header lacks a column, or a line is damaged, with its number; if there is no job.
    """
    number, header = next((i, line.strip()) for i, line in enumerate(lines, 1) if line.strip())
    # --parsable writes the sign behind the last column as well; with --parsable2 that column is empty there.
    end = "|" if header.endswith("|") else ""
    header = header.removesuffix(end)
    places, n_words = _places(header, source)
    # Only in the last column does the sign between columns do no harm.
    n_splits = n_words - 1 if places.get("name") == n_words - 1 else -1
    split = [(i, line.split("|", n_splits)) for i, line in _once(lines[number:], number + 1, header, end)]
    damaged = [(i, len(words)) for i, words in split if len(words) != n_words]
    if damaged and not skip_damaged:
        i, n = damaged[0]
        raise DataError(
            f"{source}, line {i}: {n} words between |, its header has {n_words}: {slurm_jobs.REMEDY}"
        )
    rows = [(i, words) for i, words in split if len(words) == n_words and "." not in words[places["number"]]]
    words_of = {key: [words[place].strip() for _, words in rows] for key, place in places.items()}
    numbers = [i for i, _ in rows]
    log, wrong = slurm_jobs.log_of(words_of, numbers, source, skip_damaged=skip_damaged)
    return log, tuple(sorted((*(i for i, _ in damaged), *wrong)))


def _places(header: str, source: str) -> tuple[dict[str, int], int]:
    """Place of each column that is known, and the number of all."""
    names = _names(header)
    places = {
        key: names.index(found)
        for key, known in _COLUMNS.items()
        if (found := next((name for name in known if name in names), None)) is not None
    }
    missing = [name for key, name in _NEEDED.items() if key not in places]
    if "nodes" not in places and "processors" not in places:
        missing.append("NNodes")
    if missing:
        raise DataError(
            f"{source}: its header lacks {', '.join(missing)}: print the log with {slurm_jobs.COMMAND}"
        )
    return places, len(names)


def _names(header: str) -> list[str]:
    """Names of the columns in lower case."""
    # Slurm writes the width beside a name that was given one, as in JobName%30.
    return [word.partition("%")[0].strip() for word in header.lower().split("|")]


def _once(lines: Sequence[str], first: int, header: str, end: str) -> list[tuple[int, str]]:
    """Lines with their numbers: not those that are empty, repeat the header, or were there before."""
    seen = {header}
    found = []
    for number, line in enumerate(lines, first):
        text = _stripped(line, end)
        if text and text not in seen:
            seen.add(text)
            found.append((number, text))
    return found


def _stripped(line: str, end: str) -> str:
    """A line without blanks, and without the sign behind the last column if there is one."""
    return line.strip().removesuffix(end)
