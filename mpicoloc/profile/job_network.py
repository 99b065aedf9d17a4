"""Load of a job on its network, for the profile."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import replace

from mpicoloc import config
from mpicoloc.core.network import Topology
from mpicoloc.core.profile import Network, Profile
from mpicoloc.errors import MpicolocError, UsageError
from mpicoloc.network import utilisation
from mpicoloc.network.topology.fabric import Fabric, placement_of
from mpicoloc.network.traffic.job_traffic import hostnames, job_traffic
from mpicoloc.pmpi import elf

TRAFFIC = "messages, one-sided and collectives"


def on_network(profile: Profile) -> Profile:
    """Add `network` to the profile if the option ``network.topology`` is set; a failure becomes a note."""
    if config.get("network.topology") is None:
        return profile
    try:
        network, notes = _network(profile, fabric())
    except MpicolocError as error:
        return replace(profile, notes=(*profile.notes, f"network not derived: {error}"))
    return replace(profile, network=network, notes=(*profile.notes, *(f"network: {note}" for note in notes)))


def _network(profile: Profile, machine: Fabric) -> tuple[Network, list[str]]:
    placement = placement_of(machine, hostnames(profile))
    duration_s = profile.time_alone_s if profile.job.wall_s > 0 else None
    job = profile.job
    told = job_traffic(profile.tables, job.n_ranks, job.mpi_library, placement.hosts)
    levels = utilisation.utilisation(machine.topology, placement, told.traffic, duration_s)
    demand_class = utilisation.demand_class(levels)
    rate = config.BY_KEY["network.link_rate"]
    notes = [*machine.notes, *told.notes]
    if machine.assumed_levels and rate.env not in os.environ:
        notes.append(
            f"links of {rate.default} are assumed, as the topology does not give their rate (set {rate.flag})"
        )
    if machine.assumes_up_links:
        remedy = ": give --up-links" if isinstance(machine.topology, Topology) else ""
        notes.append(f"one uplink per switch is assumed, as in {machine.topology}{remedy}")
    return Network(str(machine.topology), demand_class, TRAFFIC, len(levels), levels, duration_s), notes


def fabric(env: Mapping[str, str] | None = None) -> Fabric:
    """The fabric in the file of the option ``network.topology``, which must be set.

    Raises `MpicolocError` if it cannot be read or understood.
    """
    from mpicoloc.network.topology import readers

    path = str(config.get("network.topology", env))
    try:
        with io.TextIOWrapper(elf.open_regular(path), encoding="utf-8-sig", errors="replace") as file:
            contents = file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"topology {path!r} cannot be read: {reason}") from None
    up_links = config.get("network.up_links", env)
    return readers.fabric_of_text(
        contents, path, str(config.get("network.link_rate", env)), None if up_links is None else str(up_links)
    )
