"""What ran, when, whose it was and where: what stands at the top of all that is shown of a profile."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from mpicoloc.core.profile import Job, Profile
from mpicoloc.core.tables import printable
from mpicoloc.core.units import counted
from mpicoloc.profile.signature import Signature
from mpicoloc.show.blocks import hosts

N_HOSTS = 8
"""Hosts that are named where there are more."""
_VERSION = re.compile(r"(.+?)(?:\s+version\s*:\s*|\s+v(?=\d))([^\s,]+)(?:, package:.*)?(.*)", re.IGNORECASE)


def facts(profile: Profile, n_hosts: int | None = N_HOSTS) -> list[tuple[str, str]]:
    """Names and words; `n_hosts` None: all of them."""
    job = profile.job
    return [
        ("command", job.command),
        ("began", began(job)),
        ("user", job.user or "not known"),
        ("hosts", _hosts(profile, n_hosts)),
        ("size", f"{counted(job.n_ranks, 'rank')} on {counted(job.n_nodes, 'node')}, "
                 f"{counted(job.n_cores, 'core')}"),
        ("library", library(job.mpi_library)),
    ]  # fmt: skip


def line(profile: Profile, n_hosts: int | None = 3) -> str:
    """When the job began, for whom and where, as far as it is known."""
    job = profile.job
    known = [began(job) if job.start_unix_s > 0 else "", f"user {job.user}" if job.user else ""]
    names = _hosts(profile, n_hosts)
    return ", ".join(filter(None, [*known, f"on {names}" if hosts(profile) else ""]))


def began(job: Job) -> str:
    """When the job began, in the time zone of the reader."""
    if job.start_unix_s <= 0:
        return "not known"
    try:
        return datetime.fromtimestamp(job.start_unix_s).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):  # of a stranger's profile
        return "?"


def _hosts(profile: Profile, n_hosts: int | None) -> str:
    names = list(dict.fromkeys(hosts(profile).values()))
    more = "" if n_hosts is None or len(names) <= n_hosts else f" and {len(names) - n_hosts:,} more"
    return ", ".join(names[:n_hosts]) + more if names else "not known"


def library(name: str) -> str:
    """An MPI library by name and version, of which MPICH makes a table, and Open MPI tells its packager."""
    match = _VERSION.fullmatch(name.strip())
    return " ".join((f"{match[1]} {match[2]}{match[3]}" if match else name).split())


def signed(signature: Signature) -> str:
    """What a profile says of its signature; only the holder of the key can check it."""
    when = datetime.fromtimestamp(signature.signed_unix_s, UTC).isoformat(" ", "seconds")
    return f"signed with key {printable(signature.key_id)}, {when} (to check: mpicoloc verify)"
