"""Read the files that `network.characterise` needs: topologies, placements, messages of a job."""

from __future__ import annotations

import argparse
import glob
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc import config, messages
from mpicoloc.core.network import EXAMPLE, Levelled, Traffic, is_notation, shown, slimmed
from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, UsageError
from mpicoloc.measure import processor
from mpicoloc.network import routing
from mpicoloc.network.characterise import AS_RUN, JobInput, NetworkInput, PlacementChoice, TimedTrace
from mpicoloc.network.topology import readers
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.network.topology.readers import Wiring
from mpicoloc.trace import times

LINK_RATE = str(config.BY_KEY["network.link_rate"].default)
_HEAD = re.compile(r"Unicast lids .* guid (0x[0-9a-fA-F]+) \((.*)\):")
_ENTRY = re.compile(r"0x[0-9a-fA-F]+\s+([0-9]{3})\s*[:#]\s*\(?(.*?) portguid (0x[0-9a-fA-F]+):? '([^']*)'\)?")
_ADAPTER = "Channel Adapter"


def parse(text: str, source: str, fabric: Fabric, wiring: Wiring) -> NDArray[Any]:
    """The next node from each switch towards each host, according to forwarding tables.

    Shapes: result (n_switches, n_hosts). Result: numbers of nodes, counted from the hosts through the
    switches of level 1, 2, ...; -1 for hosts that do not exist. Raises `DataError` if a switch, host or port
    is not in the fabric, or if a switch has no entry for a host.
    """
    names = (*fabric.host_names, *(name for row in fabric.switch_names for name in row))
    number = {name: i for i, name in enumerate(names) if name}
    n_hosts = fabric.topology.n_hosts
    table = np.full((len(names) - n_hosts, n_hosts), -1)
    switch = None
    for i_line, line in enumerate(text.split("\n"), 1):
        if head := _HEAD.match(line):
            switch = wiring.name(head[2].strip("'"), head[1])
            if number.get(switch, -1) < n_hosts:
                raise _unknown(source, i_line, "switch", head[2])
        elif (entry := _ENTRY.match(line)) and entry[2] == _ADAPTER and switch is not None:
            host = number.get(wiring.name(entry[4], entry[3]), n_hosts)
            if host >= n_hosts:
                raise _unknown(source, i_line, "host", entry[4])
            neighbour = wiring.neighbours.get((switch, int(entry[1])), "")
            if neighbour not in number:
                raise _unknown(source, i_line, f"link at port {int(entry[1])} of switch", switch)
            table[number[switch] - n_hosts, host] = number[neighbour]
    _check_all_routed(table, source, fabric, names)
    return table


def _unknown(source: str, i_line: int, what: str, name: str) -> DataError:
    return DataError(
        f"{source}, line {i_line}: the topology has no {what} {shown(name)}: give forwarding tables and "
        "ibnetdiscover output from the same fabric at the same time"
    )


def _check_all_routed(table: NDArray[Any], source: str, fabric: Fabric, names: tuple[str, ...]) -> None:
    hosts = fabric.hosts()
    lacking = np.argwhere(table[:, hosts] < 0)
    if len(lacking):
        row, column = lacking[0]
        raise DataError(
            f"{source}: switch {shown(names[fabric.topology.n_hosts + row])} has no entry for host "
            f"{shown(names[hosts[column]])}: give the complete output of dump_fts, or opensm-lfts.dump"
        )


_LINE = re.compile(r"([EISR])\t(\d{1,9})\t(\d{1,9})\t(\d{1,18}) bytes\t(\d{1,18}) msgs")
"""A row of the file. E: messages of the program. I: messages of the library. S: one-sided puts to the other
rank. R: one-sided gets from the other rank."""


def read(files: Iterable[tuple[str, str]], n_ranks: int) -> Traffic:
    """Traffic of a job from the files that Open MPI's monitoring wrote on its ranks.

    Raises `DataError` if a file has another format, or names a rank that the job does not have.
    """
    rows = [row for name, content in files for row in _rows(name, content)]
    last = max((max(row[:2]) for row in rows), default=0)
    if last > n_ranks:
        raise DataError(
            f"the monitoring files have a rank {last}, but the job has {n_ranks} ranks: start the job with "
            "LD_PRELOAD, so that mpicoloc adds no ranks of its own"
        )
    inside = np.array([row for row in rows if max(row[:2]) < n_ranks], dtype=np.int64).reshape(-1, 4)
    return Traffic.of(n_ranks, *inside.T)


def _rows(name: str, content: str) -> Iterable[tuple[int, int, int, int]]:
    if not content.startswith("# POINT TO POINT"):
        raise DataError(
            f"{name} was not written by Open MPI's monitoring: such a file begins with '# POINT TO POINT'"
        )
    for i, line in enumerate(content.splitlines(), 1):
        if line[:2] not in ("E\t", "I\t", "S\t", "R\t"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise DataError(
                f"{name}, line {i}: expected 'E <rank> <rank> <n> bytes <n> msgs', got {line[:60]!r}"
            )
        src, dst, n_bytes, n = (int(word) for word in match.groups()[1:])
        yield (dst, src, n_bytes, n) if match.group(1) == "R" else (src, dst, n_bytes, n)


def network_of(args: argparse.Namespace) -> NetworkInput:
    """The network from the flags of `network.flags`."""
    fabric = fabric_of(args.topology, args.link_rate, args.up_links)
    return NetworkInput(
        fabric,
        _trees(args, fabric.topology),
        args.routing,
        args.ranks_per_host,
        args.seed,
        args.window_s,
        () if args.link_rate else fabric.assumed_levels,
        fabric.assumes_up_links and not args.slimming,
    )


def _trees(args: argparse.Namespace, topology: Levelled) -> list[Levelled]:
    """The topology under each slimming; raises an error if one of these trees has too many links."""
    slimmings = readers.whole_numbers("--slimming", args.slimming) if args.slimming else []
    try:
        trees: list[Levelled] = [slimmed(topology, slimming) for slimming in slimmings] or [topology]
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    for tree in trees:
        routing.check_links(tree)
    return trees


def tell_run_delay(profiles: Iterable[Profile]) -> None:
    """Print a note for each job that often waited for processors and would otherwise send faster."""
    for profile in profiles:
        if (note := processor.delay_note(profile)) is not None:
            messages.note(
                f"job {profile.job.id}: {note}; without these waits, its network load would be higher"
            )


def job_of(args: argparse.Namespace, fabric: Fabric, i: int, file: str, profile: Profile) -> JobInput:
    """Profile `i` with its placements, duration and messages from the flags."""
    given, n = args.placement or [], len(args.files)
    if n > 1 and len(given) not in (0, 1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} profiles, got {len(given)}"
        )
    if args.monitoring and n > 1:
        raise UsageError(f"--monitoring {args.monitoring!r} applies to a single profile, got {n}")
    names = (given[i] if len(given) == n > 1 else ",".join(given)) if given else None
    duration_s, by = args.duration_s, "given by --duration-s"
    if duration_s is None:
        duration_s, by = profile.time_alone_s or None, profile.time_alone_by
    trace = TimedTrace(
        lambda: times.timed_messages(file, profile),
        lambda by_call: times.collective_calls(file, profile, by_call),
    )
    sent = _monitored(args.monitoring, profile.job.n_ranks) if args.monitoring else None
    return JobInput(file, profile, placements_of(names, fabric), duration_s, by, sent, trace)


def fabric_of(topology: str | None, link_rate: str | None, up_links: str | None) -> Fabric:
    """The network from a notation or a file.

    Raises `UsageError` or `DataError` if the notation or file is missing or malformed.
    """
    if topology is None:
        raise UsageError(f"--topology is missing: give a notation like '{EXAMPLE}', or a topology file")
    text, source = (topology, "--topology") if is_notation(topology) else (_contents(topology), topology)
    fabric = readers.fabric_of_text(text, source, link_rate or LINK_RATE, up_links)
    if link_rate is None or len(fabric.assumed_levels) == fabric.topology.height:
        return fabric
    unused = "the rates of links in the file count, not --link-rate: edit the file to try others"
    return replace(fabric, file_notes=(*fabric.file_notes, unused))


def next_nodes_of(tables: str, topology: str, fabric: Fabric) -> NDArray[Any]:
    """Next nodes from switches, by the forwarding tables in a file; see `parse`.

    Raises `UsageError` if the topology is not output of ``ibnetdiscover``. Raises `DataError` if the tables
    belong to another fabric.
    """
    text = "" if is_notation(topology) else _contents(topology)
    if not fabric.host_names or not readers.is_ibnetdiscover(text):
        raise UsageError(
            f"--tables {tables} refers to switch ports: give the output of ibnetdiscover as --topology"
        )
    return parse(_contents(tables), tables, fabric, readers.wiring(text, topology))


def placements_of(names: str | None, fabric: Fabric) -> list[PlacementChoice]:
    """Placements from a list of names and files, separated by commas.

    Without a list: the hosts on which the job ran if the fabric has names, else Fk on whole switches.
    """
    if names is None:
        return [PlacementChoice(AS_RUN if fabric.host_names else f"F{fabric.topology.leaf_hosts}")]
    return [PlacementChoice(name, _contents_if_any(name)) for name in names.split(",")]


def _monitored(prefix: str, n_ranks: int) -> Traffic:
    names = sorted(glob.glob(f"{glob.escape(prefix)}.*.prof"))
    if not names:
        raise UsageError(f"--monitoring {prefix!r}: no file is named PREFIX.<rank>.prof")
    return read(((name, _contents(name)) for name in names), n_ranks)


def _contents(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{path!r} cannot be read ({reason}): give a topology file, or the notation of a topology"
        ) from None


def _contents_if_any(path: str) -> str | None:
    try:
        return _contents(path)
    except UsageError:
        return None
