"""Files that say what `network.load.characterise` needs: topologies, placements, messages of a job."""

from __future__ import annotations

import glob
from typing import Any

from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.traffic import Traffic
from mpicoloc.errors import UsageError
from mpicoloc.network.load.characterise import AS_RUN, JobInput, PlacementChoice, TimedTrace
from mpicoloc.network.topology import forwarding, infiniband, readers, xgft
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.network.traffic import monitoring
from mpicoloc.trace import times


def fabric_of(topology: str, link_rate: str, up_links: str | None) -> Fabric:
    """The network of a notation or a file.

    Parameters
    ----------
    topology : str
        Notation ``XGFT(h;m..;w..)``, or path of a file.
    link_rate : str
        Rate of links that have none there, for all or each level.
    up_links : str or None
        w1 to wh, if they are not there.
    """
    if xgft.is_notation(topology):
        return readers.fabric_of_text(topology, "--topology", link_rate, up_links)
    return readers.fabric_of_text(_contents(topology), topology, link_rate, up_links)


def next_nodes_of(tables: str, topology: str, fabric: Fabric) -> NDArray[Any]:
    """Nodes to which switches send, see `forwarding.parse`, by the forwarding tables in a file.

    Parameters
    ----------
    tables : str
        Path of what ``dump_fts`` printed.
    topology : str
        Path of the output of ``ibnetdiscover`` that the fabric was read from.
    fabric : Fabric

    Raises
    ------
    UsageError
        If the topology is no output of ``ibnetdiscover``.
    DataError
        If the tables are not those of this fabric.
    """
    text = "" if xgft.is_notation(topology) else _contents(topology)
    if not fabric.host_names or not infiniband.is_output(text):
        raise UsageError(
            f"--tables {tables} names ports of switches: give as --topology what ibnetdiscover printed"
        )
    return forwarding.parse(_contents(tables), tables, fabric, infiniband.wiring(text, topology))


def placements_of(names: str | None, fabric: Fabric) -> list[PlacementChoice]:
    """Placements by their names or files, with commas; None: where the job ran, if the fabric has names."""
    if names is None:
        return [PlacementChoice(AS_RUN if fabric.host_names else f"F{fabric.topology.m[0]}")]
    return [PlacementChoice(name, _contents_if_any(name)) for name in names.split(",")]


def job_input(
    file: str,
    profile: Profile,
    placements: list[PlacementChoice],
    duration_s: float | None,
    monitoring_prefix: str | None,
) -> JobInput:
    """A job to characterise.

    Parameters
    ----------
    file : str
        Where `profile` was read; its trace is read when it is needed.
    profile : Profile
    placements : list of PlacementChoice
    duration_s : float or None
        Time in which the job sent its bytes.
    monitoring_prefix : str or None
        Take the messages from the files that Open MPI's monitoring wrote, PREFIX.<rank>.prof.
    """
    trace = TimedTrace(
        lambda: times.timed_messages(file, profile),
        lambda by_call: times.collective_calls(file, profile, by_call),
    )
    sent = _monitored(monitoring_prefix, profile.job.n_ranks) if monitoring_prefix else None
    return JobInput(file, profile, placements, duration_s, sent, trace)


def _monitored(prefix: str, n_ranks: int) -> Traffic:
    names = sorted(glob.glob(f"{glob.escape(prefix)}.*.prof"))
    if not names:
        raise UsageError(f"--monitoring {prefix!r} needs files PREFIX.<rank>.prof")
    return monitoring.read(((name, _contents(name)) for name in names), n_ranks)


def _contents(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path!r} cannot be read ({reason}): give a file, or a notation of a topology"
        ) from None


def _contents_if_any(path: str) -> str | None:
    try:
        return _contents(path)
    except UsageError:
        return None
