"""Flags of `mpicoloc replay`: jobs, their placements, and the network."""

from __future__ import annotations

import argparse
import math

from mpicoloc.cli import arguments
from mpicoloc.network.flags import add_links, add_ranks_per_host, add_topology

_MAX_RANKS, _MAX_MESSAGE_BYTES = 1 << 24, 1 << 40
_MAX_TIMES = (1 << 31) - 1
"""What a loop of the simulator counts to."""
_MAX_MTU_BYTES, _MAX_BUFFER_BYTES, _MAX_EAGER_BYTES = 1 << 20, (1 << 31) - 1, 1 << 62
_LANES = arguments.several(arguments.whole(0, 255))


def _latency_s(text: str) -> float:
    """A number of seconds up to 1."""
    latency_s = arguments.seconds(text)
    if latency_s > 1:
        raise argparse.ArgumentTypeError(f"must be at most 1 s, got {text}")
    return latency_s


def _speedup(text: str) -> float:
    speedup = arguments.positive(text)
    if speedup < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, the rate of a link, got {text}")
    return speedup


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of jobs and their placements."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="*",
        help="profile of a job that was run with --trace all; or a SimGrid trace (folder, or list of files), "
        "an OTF2 archive, or a GOAL text",
    )
    add(
        "--pattern",
        metavar="NAME",
        help="in place of profiles: incast (all to host 0), shift:K, alltoall, uniform:LOAD or halo",
    )
    add(
        "--hosts",
        type=arguments.whole(most=_MAX_RANKS),
        metavar="N",
        help="hosts that take part in the pattern",
    )
    add(
        "--bytes",
        type=arguments.size(1, _MAX_MESSAGE_BYTES),
        metavar="BYTES",
        help="of each message of the pattern",
    )
    add(
        "--times",
        type=arguments.whole(most=_MAX_TIMES),
        metavar="N",
        help="how often the pattern is repeated (1; uniform: messages of a host, 100)",
    )
    add(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="k hosts on each first-level switch; at random; where the job ran, by its nodes' names; a file "
        "with the host of each rank. Once, or once for each job (run if the topology has names, else F with "
        "all hosts of a switch)",
    )
    add_ranks_per_host(parser)
    _add_tuning(parser)


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    """Flags that change what a trace says."""
    add = parser.add_argument
    add(
        "--cpu-speed",
        type=arguments.positive,
        metavar="X",
        help="computation is X times as fast as recorded (1)",
    )
    add(
        "--wall-time",
        action="store_true",
        help="computation of a profile as long as recorded, also where ranks waited for a processor: for "
        "programs that sleep or wait for files",
    )
    add(
        "--flops",
        type=arguments.positive,
        metavar="F",
        help="flops a second of the processors of a SimGrid trace (1e9)",
    )
    add(
        "--algorithm",
        metavar="NAME=A",
        action="append",
        default=[],
        help="algorithm of a collective, as allreduce=doubling or bcast=openmpi-6 (the recorded library's)",
    )
    add(
        "--stretch",
        metavar="J:X",
        action="append",
        help="computation on the first J hosts takes X times as long; once, or once for each job (0:1)",
    )
    add(
        "--allow-unmatched",
        action="store_true",
        help="leave out messages of a profile or OTF2 archive that lack their send or receive, and "
        "persistent collectives and those of neighbours that the profile does not tell",
    )


def add_network_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of topology, links, switches and messages."""
    _add_routes(parser)
    _add_hardware(parser)
    _add_lanes(parser)
    parser.add_argument(
        "--random-state",
        type=arguments.whole(0),
        metavar="N",
        default=0,
        help="of random routes, placements and patterns (0)",
    )


def _add_routes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_topology(parser, is_required=False)  # --sweep topology names several
    add("--slimming", type=arguments.count, metavar="S", help="links up from each switch, not the topology's")
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
    mtu = arguments.size(1, _MAX_MTU_BYTES)
    add("--mtu", type=mtu, metavar="BYTES", default=2048, help="bytes of a packet (2048)")
    add(
        "--eager",
        type=arguments.size(most=_MAX_EAGER_BYTES),
        metavar="BYTES",
        default=16384,
        help="longer messages wait for their receive (16384)",
    )
    add(
        "--mpi-latency-s",
        type=_latency_s,
        metavar="S",
        default=1e-6,
        help="from a send to the adapter (1e-6)",
    )
    add(
        "--cable-latency-s",
        type=arguments.several(_latency_s),
        metavar="S",
        default=(25e-9,),
        help="of each link, or of each level with commas, hosts' links first (25e-9)",
    )
    add("--switch-latency-s", type=_latency_s, metavar="S", default=100e-9, help="of each switch (100e-9)")
    add(
        "--input-speedup",
        type=_speedup,
        metavar="X",
        default=math.inf,
        help="input ports of switches are X times as fast as links (inf)",
    )
    add(
        "--flit",
        type=mtu,
        metavar="BYTES",
        default=256,
        help="of a packet that a switch waits for before it sends it on; --mtu: store and forward (256)",
    )
    add(
        "--buffer",
        type=arguments.size(most=_MAX_BUFFER_BYTES),
        metavar="BYTES",
        default=65536,
        help="of each port, at each end, all lanes (65536)",
    )
    add("--voq", action="store_true", help="packets wait for their own output only, not in one queue a lane")
    add("--local-rate", metavar="RATE", default="40Gbit/s", help="between ranks of one host (40Gbit/s)")


def _add_lanes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--lanes",
        type=arguments.whole(most=16),
        metavar="N",
        help="virtual lanes of each link (one for each lane that is named, else 1)",
    )
    add(
        "--weights",
        type=arguments.several(arguments.whole(1, 255)),
        metavar="W,W,..",
        default=(),
        help="packets that each lane may send in its turn (1 each)",
    )
    add("--weight-unit", metavar="UNIT", default="packets", help="packets, or 64: weights count 64 bytes")
    add("--lane", type=_LANES, metavar="L,L,..", default=(), help="lane of each job (0)")
    add("--high", type=_LANES, metavar="L,L,..", default=(), help="lanes of high priority")
    add(
        "--high-limit",
        type=arguments.whole(0, 255),
        metavar="N",
        help="units of 4096 bytes that they may send before a packet of the others (255: no limit)",
    )
