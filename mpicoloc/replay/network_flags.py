"""Flags of the simulated network, its packets and lanes."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from mpicoloc.cli import numbers
from mpicoloc.core import units
from mpicoloc.errors import UsageError
from mpicoloc.network.flags import LINK_RATE, add_links, add_topology

if TYPE_CHECKING:
    from mpicoloc.core.topology import Topology
    from mpicoloc.network.topology.fabric import Fabric
    from mpicoloc.replay.fabrics import Hardware
    from mpicoloc.replay.network import Lanes, SimulatedNetwork
    from mpicoloc.replay.simulate import Settings

_MAX_MTU_BYTES, _MAX_BUFFER_BYTES, _MAX_EAGER_BYTES = 1 << 20, (1 << 31) - 1, 1 << 62


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of topology, links, switches and messages."""
    _add_routes(parser)
    _add_hardware(parser)
    _add_lanes(parser)
    parser.add_argument(
        "--random-state", metavar="N", default="0", help="of random routes, placements and patterns (0)"
    )


def _add_routes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_topology(parser, is_required=False)  # --sweep topology names several
    add("--slimming", metavar="S", help="links up from each switch, not the topology's")
    add_links(parser)
    add(
        "--routing",
        metavar="NAME",
        default="d-mod-k",
        help="d-mod-k, s-mod-k, random (each packet), random-flow (each pair of hosts) or adaptive (d-mod-k)",
    )
    add(
        "--tables",
        metavar="FILE",
        help="not --routing: forwarding tables of opensm, as dump_fts prints, of a topology by ibnetdiscover",
    )
    add("--failed", metavar="LEVEL:LINK,..", help="links that carry nothing, by their numbers on each level")


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--mtu", metavar="BYTES", default="2048", help="bytes of a packet (2048)")
    add("--eager", metavar="BYTES", default="16384", help="longer messages wait for their receive (16384)")
    add("--mpi-latency-s", metavar="S", default="1e-6", help="from a send to the adapter (1e-6)")
    add(
        "--cable-latency-s",
        metavar="S",
        default="25e-9",
        help="of each link, or of each level with commas, hosts' links first (25e-9)",
    )
    add("--switch-latency-s", metavar="S", default="100e-9", help="of each switch (100e-9)")
    add(
        "--input-speedup",
        metavar="X",
        help="input ports of switches are X times as fast as links (inf)",
    )
    add(
        "--flit",
        metavar="BYTES",
        default="256",
        help="of a packet that a switch waits for before it sends it on; --mtu: store and forward (256)",
    )
    add("--buffer", metavar="BYTES", default="65536", help="of each port, at each end, all lanes (65536)")
    add("--voq", action="store_true", help="packets wait for their own output only, not in one queue a lane")
    add("--local-rate", metavar="RATE", default="40Gbit/s", help="between ranks of one host (40Gbit/s)")


def _add_lanes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--lanes", metavar="N", help="virtual lanes of each link (one for each lane that is named, else 1)")
    add("--weights", metavar="W,W,..", help="packets that each lane may send in its turn (1 each)")
    add("--weight-unit", metavar="UNIT", default="packets", help="packets, or 64: weights count 64 bytes")
    add("--lane", metavar="L,L,..", help="lane of each job (0)")
    add("--high", metavar="L,L,..", help="lanes of high priority")
    add(
        "--high-limit",
        metavar="N",
        help="units of 4096 bytes that they may send before a packet of the others (255: no limit)",
    )


def fabric_of(args: argparse.Namespace) -> Fabric:
    """The network as the flags describe it."""
    from mpicoloc.errors import DataError
    from mpicoloc.network import files
    from mpicoloc.network.topology.xgft import slimmed

    if args.topology is None:
        raise UsageError("--topology is missing: give one like 'XGFT(2;16,8;1,4)', or a file of one")
    fabric = files.fabric_of(args.topology, args.link_rate or LINK_RATE, args.up_links)
    if args.slimming is None:
        return fabric
    try:
        tree = slimmed(fabric.topology, numbers.parse("--slimming", args.slimming, numbers.count))
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    # Names of switches are those of the tree that is there.
    return replace(fabric, topology=tree, switch_names=())


def hardware_of(args: argparse.Namespace, n_jobs: int) -> Hardware:
    """What the topology does not say."""
    from mpicoloc.replay.fabrics import Hardware

    cables = tuple(_latency_s("--cable-latency-s", word) for word in args.cable_latency_s.split(","))
    return Hardware(
        cable_latency_s=cables[0] if len(cables) == 1 else cables,
        switch_latency_s=_latency_s("--switch-latency-s", args.switch_latency_s),
        flit_bytes=units.parse_bytes("--flit", args.flit, 1, _MAX_MTU_BYTES),
        lanes=_lanes(args, n_jobs),
        input_speedup=_speedup(args.input_speedup),
        is_voq=args.voq,
    )


def _speedup(text: str | None) -> float:
    speedup = math.inf if text is None else numbers.parse("--input-speedup", text, numbers.positive)
    if speedup < 1:
        raise UsageError(f"--input-speedup must be at least 1, the rate of a link, got {text}")
    return speedup


def _lanes(args: argparse.Namespace, n_jobs: int) -> Lanes:
    from mpicoloc.replay import native
    from mpicoloc.replay.network import equal_lanes

    used, high = lanes_of_jobs(args, n_jobs), _numbers("--high", args.high)
    weights = _numbers("--weights", args.weights, 1)
    n = max([*used, *high, len(weights) - 1]) + 1
    if args.lanes is not None:
        n = numbers.parse("--lanes", args.lanes, numbers.whole(most=native.RP_MAX_VL))
    for flag, named in (("--lane", used), ("--high", high)):
        if max(named, default=0) >= n:
            raise UsageError(
                f"{flag} {','.join(map(str, named))}: with {n} lanes give lanes 0 to {n - 1}, or more --lanes"
            )
    if n > native.RP_MAX_VL:
        raise UsageError(f"{n} lanes by --lane and --weights: give at most {native.RP_MAX_VL}")
    if weights and len(weights) != n:
        raise UsageError(f"--weights {args.weights}: {len(weights)} weights for {n} lanes: give one for each")
    unit_bytes = {"packets": 0, "64": 64}
    if args.weight_unit not in unit_bytes:
        raise UsageError(f"--weight-unit must be packets or 64, got {args.weight_unit!r}")
    buffer_bytes = units.parse_bytes("--buffer", args.buffer, most=_MAX_BUFFER_BYTES)
    lanes = equal_lanes(n, buffer_bytes, weights)
    return replace(_with_high(args, lanes, high), weight_unit_bytes=unit_bytes[args.weight_unit])


def _with_high(args: argparse.Namespace, lanes: Lanes, high: tuple[int, ...]) -> Lanes:
    """Some lanes in the table of high priority, with the weights that they have."""
    if args.high_limit is not None and not high:
        raise UsageError(
            f"--high-limit {args.high_limit} is of lanes of high priority: give --high LANES too"
        )
    limit = (
        255
        if args.high_limit is None
        else numbers.parse("--high-limit", args.high_limit, numbers.whole(0, 255))
    )
    rows = [tuple(row for row in lanes.low if (row[0] in high) == is_high) for is_high in (True, False)]
    return replace(lanes, high=rows[0], low=rows[1], high_limit=limit if high else 0)


def lanes_of_jobs(args: argparse.Namespace, n_jobs: int) -> tuple[int, ...]:
    """Lane, and service level, of each job."""
    lanes = _numbers("--lane", args.lane) or (0,) * n_jobs
    if len(lanes) != n_jobs:
        raise UsageError(f"--lane {args.lane}: {len(lanes)} lanes for {n_jobs} jobs: give one for each")
    return lanes


def _numbers(flag: str, text: str | None, least: int = 0) -> tuple[int, ...]:
    words = () if text is None else text.split(",")
    return tuple(numbers.parse(flag, word.strip(), numbers.whole(least, 255)) for word in words)


def _latency_s(flag: str, text: str) -> float:
    latency_s = numbers.parse(flag, text, numbers.seconds)
    if latency_s > 1:
        raise UsageError(f"{flag} must be at most 1 s, got {text}")
    return latency_s


def settings_of(args: argparse.Namespace) -> Settings:
    """How messages become packets."""
    from mpicoloc.network.topology import readers
    from mpicoloc.replay.simulate import Settings

    mtu_bytes = units.parse_bytes("--mtu", args.mtu, 1, _MAX_MTU_BYTES)
    return Settings(
        mtu_bytes=mtu_bytes,
        control_bytes=min(64, mtu_bytes),
        eager_bytes=units.parse_bytes("--eager", args.eager, most=_MAX_EAGER_BYTES),
        mpi_latency_s=_latency_s("--mpi-latency-s", args.mpi_latency_s),
        local_bps=readers.rate_bps(args.local_rate),
        seed=numbers.parse("--random-state", args.random_state, numbers.whole(0)),
    )


def network_of(args: argparse.Namespace, fabric: Fabric, hardware: Hardware) -> SimulatedNetwork:
    """The network as the simulator takes it."""
    from mpicoloc.replay import fabrics

    if args.tables is None:
        return fabrics.of_fabric(fabric, args.routing, hardware, _failed(args.failed, fabric.topology))
    from mpicoloc.network import files

    for flag, value in (
        ("routing", args.routing != "d-mod-k"),
        ("failed", args.failed),
        ("slimming", args.slimming),
    ):
        if value:
            raise UsageError(f"--{flag} changes the routes, which --tables tells: leave one of both out")
    next_nodes = files.next_nodes_of(args.tables, args.topology, fabric)
    return fabrics.with_next_nodes(fabrics.of_fabric(fabric, args.routing, hardware), next_nodes)


def _failed(text: str | None, tree: Topology) -> list[tuple[int, int]]:
    failed = []
    for word in () if text is None else text.split(","):
        level, colon, link = word.strip().partition(":")
        if not colon:
            raise UsageError(f"--failed {word}: give it as LEVEL:LINK, like 1:0")
        number = (
            numbers.parse("--failed", level, numbers.whole(0)),
            numbers.parse("--failed", link, numbers.whole(0)),
        )
        if number[0] >= tree.height:
            raise UsageError(f"--failed {word}: {tree} has links on levels 0 to {tree.height - 1}")
        if number[1] >= (n_links := tree.n_links(number[0])):
            raise UsageError(f"--failed {word}: {tree} has links 0 to {n_links - 1:,} on level {level}")
        failed.append(number)
    return failed
