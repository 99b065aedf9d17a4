"""What a lab consists of: nodes, cables, addresses, and the words for ``ip`` and ``tc`` that make them.

Nodes are named as in `mpicoloc.core.network`: hosts ``h0``, ``h1`` and on, switches ``s1-0`` and on.
An interface is called ``up0`` or ``down3`` after the port. Both ends of a cable have one MAC address and no
ARP, so that nothing is on a link but what the hosts send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mpicoloc.core.network import Topology, link_ends, link_ports, node_name, parse_xgft
from mpicoloc.errors import UsageError
from mpicoloc.network import routing
from mpicoloc.network.topology import readers

NETWORK = "10.77.0.0/16"
"""Where the hosts' addresses are."""
MAX_NODES = 2000
MTU_BYTES = 1500
COUNTED = ("up_bytes", "up_packets", "down_bytes", "down_packets")
"""What the lower end of each link has sent and received."""
_MIN_BURST_BYTES = 128 * 1024
"""Above what the kernel hands over as one packet, 64 KiB."""
_BURST_S = 0.001
_QUEUE_S = 0.05
_MIN_QUEUE_BYTES = 4 * 1024 * 1024
"""Fabrics are lossless; here a queue takes what the windows of some dozen connections hold."""


@dataclass(frozen=True)
class Cable:
    """One link: level and number as in `core.network`, nodes at both ends, and the interfaces there."""

    level: int
    link: int
    lower: str
    upper: str
    lower_port: str
    upper_port: str

    @property
    def mac(self) -> str:
        """Address of both ends."""
        number = self.link.to_bytes(3, "big")
        return f"02:4c:{self.level:02x}:{number[0]:02x}:{number[1]:02x}:{number[2]:02x}"


def topology(notation: str, rates: str) -> Topology:
    """The fat-tree of a lab.

    Raises `UsageError` if either is not understood, they do not fit, or the lab would have more than
    `MAX_NODES` nodes.
    """
    capacities = [readers.rate_bps(word) for word in rates.split(",")]
    made = parse_xgft(notation, capacities[0] if len(capacities) == 1 else capacities)
    n_nodes = made.n_hosts + made.n_switches
    if n_nodes > MAX_NODES:
        raise UsageError(f"{made} has {n_nodes} hosts and switches: a lab has {MAX_NODES} at most")
    return made


def nodes(tree: Topology) -> Iterator[tuple[int, int]]:
    """Level and number of every node, hosts first."""
    for level in range(tree.height + 1):
        yield from ((level, number) for number in range(tree.n_nodes(level)))


def cables(tree: Topology) -> list[Cable]:
    """Every link, in the order of levels and numbers."""
    found = []
    for level in range(tree.height):
        columns = (*link_ends(tree, level), *link_ports(tree, level))
        for link, (lower, upper, up, down) in enumerate(zip(*columns, strict=True)):
            names = node_name(level, int(lower)), node_name(level + 1, int(upper))
            found.append(Cable(level, link, *names, f"up{up}", f"down{down}"))
    return found


def address(level: int, number: int) -> str:
    """Address of a host, or of a switch, which has one for the answers to ``traceroute``."""
    high, low = divmod(number + 1, 256)
    return f"10.77.{high}.{low}" if level == 0 else f"10.78.{level * 8 + high}.{low}"


def hosts_file(tree: Topology) -> str:
    """Names and addresses, as in ``/etc/hosts``."""
    lines = [f"{address(*node)} {node_name(*node)}" for node in nodes(tree)]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


def yaml(tree: Topology) -> str:
    """The topology with its hosts' names, as `mpicoloc network` reads it."""
    rates = ", ".join(f"{rate_bps * 8:.0f}bit/s" for rate_bps in tree.capacity_bps)
    return f'topology: {tree}\nlink_rate: [{rates}]\nhosts: ["h[0-{tree.n_hosts - 1}]"]\n'


def laying(found: Sequence[Cable], pids: Mapping[str, int]) -> str:
    """Input of ``ip -batch`` that lays the cables between the nodes with these processes."""
    return "".join(
        f"link add name {cable.lower_port} netns {pids[cable.lower]} address {cable.mac} mtu {MTU_BYTES} "
        f"type veth peer name {cable.upper_port} netns {pids[cable.upper]} address {cable.mac} "
        f"mtu {MTU_BYTES}\n"
        for cable in found
    )


def ports(found: Sequence[Cable]) -> dict[str, list[tuple[str, int]]]:
    """Interface and level of its link, of each node."""
    by_node: dict[str, list[tuple[str, int]]] = {}
    for cable in found:
        by_node.setdefault(cable.lower, []).append((cable.lower_port, cable.level))
        by_node.setdefault(cable.upper, []).append((cable.upper_port, cable.level))
    return by_node


def addressing(tree: Topology, level: int, number: int, interfaces: Sequence[str]) -> str:
    """Input of ``ip -batch`` in a node: interfaces, address, and a route per destination under d-mod-k."""
    own = address(level, number)
    lines = ["link set lo up", *(f"link set {name} arp off up" for name in interfaces)]
    lines.append(f"addr add {own}/32 dev lo" if level else f"addr add {own}/16 dev up0 noprefixroute")
    for host, port in enumerate(_ports_to_hosts(tree, level, number)):
        if (level, number) != (0, host):
            lines.append(f"route add {address(0, host)}/32 dev {port} src {own}")
    return "\n".join(lines) + "\n"


def _ports_to_hosts(tree: Topology, level: int, number: int) -> list[str]:
    if level == 0:
        return [f"up{host % tree.w[0]}" for host in range(tree.n_hosts)]
    n_down = tree.m[level - 1]
    table = routing.forwarding_table(tree, level, number)
    return [f"down{port}" if port < n_down else f"up{port - n_down}" for port in table]


def shaping(tree: Topology, interfaces: Sequence[tuple[str, int]]) -> str:
    """Input of ``tc -batch`` in a node: what it sends into a cable has the speed of the cable's level."""
    lines = []
    for name, level in interfaces:
        rate_bps = tree.capacity_bps[level]
        burst = max(_MIN_BURST_BYTES, int(rate_bps * _BURST_S))
        queue = max(_MIN_QUEUE_BYTES, int(rate_bps * _QUEUE_S))
        lines.append(f"qdisc add dev {name} root tbf rate {rate_bps * 8:.0f}bit burst {burst} limit {queue}")
    return "\n".join(lines) + "\n"
