"""The first process of a lab: ``python -m mpicoloc.lab.server NAME TOPOLOGY RATES [CLOCK_STEP_S]``.

It is process 1 of a PID namespace that contains every process of the lab. It makes the nodes and cables,
prints "ready", and then serves the requests of `mpicoloc.lab.agent`. Nodes are sleeping processes, each in
its own namespaces, and a lab has no files outside these. So when this process ends for any reason, the kernel
kills all the others, and their namespaces with all links, mounts and files disappear.

Nodes are named as in `mpicoloc.core.network`: hosts ``h0``, ``h1`` etc., switches ``s1-0`` etc. Interfaces
are named after their ports, for example ``up0`` or ``down3``. Both ends of a cable have the same MAC address
and do not use ARP, so links carry only the hosts' packets.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mpicoloc.core import network as xgft
from mpicoloc.core.network import Topology
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError
from mpicoloc.lab import agent
from mpicoloc.network import routing
from mpicoloc.network.topology import readers

NETWORK = "10.77.0.0/16"
"""Network of the hosts' addresses."""
MAX_NODES = 2000
MTU_BYTES = 1500
COUNTED = ("up_bytes", "up_packets", "down_bytes", "down_packets")
"""Counters of each link: traffic upwards and downwards."""
_MIN_BURST_BYTES = 128 * 1024
"""Must be larger than the 64 KiB that the kernel may send as one packet."""
_BURST_S = 0.001
_QUEUE_S = 0.05
_MIN_QUEUE_BYTES = 4 * 1024 * 1024
"""Real fabrics are lossless, so a queue must hold the TCP windows of some dozen connections."""


@dataclass(frozen=True)
class Cable:
    """One link: level and number as in `core.network`, the nodes at both ends, and their interfaces."""

    level: int
    link: int
    lower: str
    upper: str
    lower_port: str
    upper_port: str

    @property
    def mac(self) -> str:
        """MAC address of both ends."""
        number = self.link.to_bytes(3, "big")
        return f"02:4c:{self.level:02x}:{number[0]:02x}:{number[1]:02x}:{number[2]:02x}"


def topology(notation: str, rates: str) -> Topology:
    """The fat-tree of a lab.

    Raises `UsageError` if the notation or a rate is invalid, the number of rates does not match, or the lab
    would have more than `MAX_NODES` nodes.
    """
    capacities = [readers.rate_bps(word) for word in rates.split(",")]
    made = xgft.parse_xgft(notation, capacities[0] if len(capacities) == 1 else capacities)
    n_nodes = made.n_hosts + made.n_switches
    if n_nodes > MAX_NODES:
        raise UsageError(f"{made} has {n_nodes} hosts and switches, but a lab has at most {MAX_NODES}")
    return made


def nodes(tree: Topology) -> Iterator[tuple[int, int]]:
    """Level and number of every node, hosts first."""
    for level in range(tree.height + 1):
        yield from ((level, number) for number in range(tree.n_nodes(level)))


def cables(tree: Topology) -> list[Cable]:
    """All links, ordered by level and number."""
    found = []
    for level in range(tree.height):
        columns = (*xgft.link_ends(tree, level), *xgft.link_ports(tree, level))
        for link, (lower, upper, up, down) in enumerate(zip(*columns, strict=True)):
            names = xgft.node_name(level, int(lower)), xgft.node_name(level + 1, int(upper))
            found.append(Cable(level, link, *names, f"up{up}", f"down{down}"))
    return found


def address(level: int, number: int) -> str:
    """Address of a host or switch. Switches need an address to answer ``traceroute``."""
    high, low = divmod(number + 1, 256)
    return f"10.77.{high}.{low}" if level == 0 else f"10.78.{level * 8 + high}.{low}"


def hosts_file(tree: Topology) -> str:
    """Names and addresses, in the format of ``/etc/hosts``."""
    lines = [f"{address(*node)} {xgft.node_name(*node)}" for node in nodes(tree)]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


def yaml(tree: Topology) -> str:
    """The topology with its hosts' names, in the format that `mpicoloc network` reads."""
    rates = ", ".join(f"{rate_bps * 8:.0f}bit/s" for rate_bps in tree.capacity_bps)
    return f'topology: {tree}\nlink_rate: [{rates}]\nhosts: ["h[0-{tree.n_hosts - 1}]"]\n'


def laying(found: Sequence[Cable], pids: Mapping[str, int]) -> str:
    """Input of ``ip -batch`` that creates the cables between the nodes with these processes."""
    return "".join(
        f"link add name {cable.lower_port} netns {pids[cable.lower]} address {cable.mac} mtu {MTU_BYTES} "
        f"type veth peer name {cable.upper_port} netns {pids[cable.upper]} address {cable.mac} "
        f"mtu {MTU_BYTES}\n"
        for cable in found
    )


def ports(found: Sequence[Cable]) -> dict[str, list[tuple[str, int]]]:
    """Interfaces of each node, with the levels of their links."""
    by_node: dict[str, list[tuple[str, int]]] = {}
    for cable in found:
        by_node.setdefault(cable.lower, []).append((cable.lower_port, cable.level))
        by_node.setdefault(cable.upper, []).append((cable.upper_port, cable.level))
    return by_node


def addressing(tree: Topology, level: int, number: int, interfaces: Sequence[str]) -> str:
    """Input of ``ip -batch`` in a node: interfaces, address, and d-mod-k routes to all destinations."""
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
    """Input of ``tc -batch`` that limits a node's sending on each cable to the speed of the cable's level."""
    lines = []
    for name, level in interfaces:
        rate_bps = tree.capacity_bps[level]
        burst = max(_MIN_BURST_BYTES, int(rate_bps * _BURST_S))
        queue = max(_MIN_QUEUE_BYTES, int(rate_bps * _QUEUE_S))
        lines.append(f"qdisc add dev {name} root tbf rate {rate_bps * 8:.0f}bit burst {burst} limit {queue}")
    return "\n".join(lines) + "\n"


AGENT = "/dev/shm/.lab/agent"
"""File on every host that launchers use in place of ``ssh``."""
TOPOLOGY = "/dev/shm/.lab/topology.yaml"
TMPDIR = "/dev/shm/tmp"
"""TMPDIR of every command. In the machine's /tmp, files of launchers would outlive the lab."""
_AGENT_TEXT = f'#!/bin/sh\nexec "${agent.PYTHON_ENV}" -SE "${agent.AGENT_ENV}" "%s" "$@"\n'
_SWITCH = """set -e; cd /proc/sys/net
for where in all default; do
    echo 0 > ipv4/conf/$where/rp_filter
    [ ! -e ipv6 ] || echo 1 > ipv6/conf/$where/disable_ipv6
done
echo 1 > ipv4/ip_forward; echo 0 > ipv4/icmp_ratelimit
# Windows of megabytes would fill the switches' queues, and what waits there waits for a tenth of a second.
for way in tcp_rmem tcp_wmem; do echo 4096 131072 524288 > ipv4/$way; done
"""
_HOST = """echo "$1" > /proc/sys/kernel/hostname
mount --rbind /sys/fs/cgroup /mnt; mount -t sysfs none /sys; mount --move /mnt /sys/fs/cgroup
mount -t tmpfs -o mode=1777 none /dev/shm; mkdir -m 755 /dev/shm/.lab; mkdir -m 1777 /dev/shm/tmp
: > /dev/shm/.mpicoloc-whole-node
cd /dev/shm/.lab; umask 022
printf %s "$2" > hosts; printf %s "$3" > agent; printf %s "$4" > topology.yaml
chmod 755 agent; mount --bind hosts /etc/hosts; cd /
"""
_SLEEP = "echo $$; exec sleep infinity > /dev/null"
_CLONE_NEWNET, _CLONE_NEWTIME = 0x40000000, 0x80
_ALL_KINDS = _CLONE_NEWNET | _CLONE_NEWTIME | 0x00020000 | 0x04000000 | 0x08000000
"""Flags of ``linux/sched.h`` for network, time, mounts, host name and System V IPC."""
_SO_PEERGROUPS = 59
_GRACE_S = 10.0
"""Time limit, s, for receiving a request, and for a command to end after its caller was killed."""
_libc = ctypes.CDLL(None, use_errno=True)


class Lab:
    """All nodes of a lab, by name: their processes and interfaces."""

    def __init__(self, name: str, tree: Topology, clock_step_s: int = 0):
        self.name, self.tree, self.clock_step_s = name, tree, clock_step_s
        self.began_s = time.time()
        self.cables = cables(tree)
        self.pids = self._boot()
        _batch("ip", None, laying(self.cables, self.pids))
        ports_of = ports(self.cables)
        for node in nodes(tree):
            found, pid = ports_of[xgft.node_name(*node)], self.pids[xgft.node_name(*node)]
            _batch("ip", pid, addressing(tree, *node, [port for port, _ in found]))
            _batch("tc", pid, shaping(tree, found))

    def _boot(self) -> dict[str, int]:
        """Start the processes of all nodes at once, and wait until all are up. Returns their PIDs."""
        arguments = [hosts_file(self.tree), _AGENT_TEXT % self.name, yaml(self.tree)]
        started = {}
        for level, number in nodes(self.tree):
            name = xgft.node_name(level, number)
            script = _SWITCH + (_SLEEP if level else _HOST + _SLEEP)
            command = ["unshare", *self._kinds(level, number), "sh", "-c", script, "sh", name, *arguments]
            started[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        pids = {}
        for name, process in started.items():
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise EnvironmentFault(f"node {name} of the lab cannot be made: see the message above")
            pids[name] = int(line)
        return pids

    def _kinds(self, level: int, number: int) -> list[str]:
        if level:
            return ["--net"]
        kinds = ["--net", "--uts", "--ipc", "--mount"]
        if self.clock_step_s:
            step = str(number * self.clock_step_s)
            kinds += ["--time", "--monotonic", step, "--boottime", step, "--fork", "--kill-child"]
        return kinds

    def listeners(self) -> list[socket.socket]:
        """A listening socket in the network namespace of each host."""
        found = []
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for host in range(self.tree.n_hosts):
            with open(f"/proc/{self.pids[xgft.node_name(0, host)]}/ns/net") as place:
                _enter(place.fileno(), _CLONE_NEWNET)
            try:
                found.append(_listen(self.name))
            finally:
                _enter(home, _CLONE_NEWNET)
        os.close(home)
        return found

    def describe(self) -> dict[str, Any]:
        """A description of the lab."""
        return {
            "name": self.name,
            "topology": str(self.tree),
            "capacity_bps": list(self.tree.capacity_bps),
            "n_hosts": self.tree.n_hosts,
            "n_switches": self.tree.n_switches,
            "up_s": round(time.time() - self.began_s, 1),
            "pids": self.pids,
        }

    def counters(self) -> dict[str, Any]:
        """Bytes and packets of every link since the lab's start, counted at the link's upper end."""
        read = {name: _interfaces(pid) for name, pid in self.pids.items()}
        links = [
            {
                "level": cable.level,
                "link": cable.link,
                "lower": cable.lower,
                "upper": cable.upper,
                **dict(zip(COUNTED, read[cable.upper][cable.upper_port], strict=True)),
            }
            for cable in self.cables
        ]
        facts = {"name": self.name, "began_unix_s": self.began_s, "topology": str(self.tree)}
        return {**facts, "links": links}


def _interfaces(pid: int) -> dict[str, tuple[int, int, int, int]]:
    """Bytes and packets received, then bytes and packets sent, by each interface in a process's network."""
    found = {}
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        words = numbers.split()
        found[name.strip()] = (int(words[0]), int(words[1]), int(words[8]), int(words[9]))
    return found


def _batch(tool: str, pid: int | None, text: str) -> None:
    """Run ``ip`` or ``tc`` with the input `text`, in the network namespace of a process."""
    where = [] if pid is None else ["nsenter", f"--net=/proc/{pid}/ns/net"]
    done = subprocess.run([*where, tool, "-batch", "-"], input=text, text=True, capture_output=True)
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise EnvironmentFault(
            f"{tool} failed: {said}; the kernel needs veth and sch_tbf (`modprobe -a veth sch_tbf`)"
        )


def _enter(fd: int, kinds: int) -> None:
    if _libc.setns(fd, kinds):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(agent.socket_name(name))
    except OSError:
        raise EnvironmentFault(
            f"lab {name!r} is already up: end it with `mpicoloc lab down --name {name}`"
        ) from None
    listener.listen(128)
    return listener


def serve(lab: Lab, listeners: list[socket.socket]) -> NoReturn:
    """Answer requests forever, each in its own process."""
    # Orphans in the lab become children of this process. Ignoring SIGCHLD keeps them from becoming zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    for listener in listeners:
        selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            peer, _ = key.fileobj.accept()
            if os.fork() == 0:
                for listener in listeners:
                    listener.close()
                _serve_one(lab, peer)
            peer.close()


def _serve_one(lab: Lab, peer: socket.socket) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer: dict[str, Any]
    with contextlib.suppress(BaseException):
        request, fds = _receive(peer)
        if request["do"] == "run":
            answer = _run(lab, peer, request, fds)
        else:
            answer = lab.counters() if request["do"] == "counters" else lab.describe()
        peer.sendall(json.dumps(answer).encode())
    os._exit(0)


def _receive(peer: socket.socket) -> tuple[dict[str, Any], list[int]]:
    peer.settimeout(_GRACE_S)
    head, fds, _, _ = socket.recv_fds(peer, 4, 3)
    body = b""
    while len(body) < int.from_bytes(head, "big"):
        if not (part := peer.recv(int.from_bytes(head, "big") - len(body))):
            raise EOFError
        body += part
    peer.settimeout(None)
    return json.loads(body), fds


def _run(lab: Lab, peer: socket.socket, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run the command of a request and wait for it. It ends, or is killed, if the caller ends."""
    if request["host"] not in lab.pids:
        return {
            "error": f"lab {lab.name} has no host {request['host']}: it has h0 to h{lab.tree.n_hosts - 1}"
        }
    child = os.fork()
    if child == 0:
        _become(lab.pids[request["host"]], peer, request, fds)
    for fd in fds:
        os.close(fd)
    ended = os.pidfd_open(child)
    selector = selectors.DefaultSelector()
    selector.register(ended, selectors.EVENT_READ)
    selector.register(peer, selectors.EVENT_READ)
    limit_s: float | None = None
    while ended not in (ready := [key.fileobj for key, _ in selector.select(limit_s)]):
        if not ready:
            os.killpg(child, signal.SIGKILL)
            continue
        numbers = _signals(peer)
        if not numbers:
            selector.unregister(peer)
            limit_s = _GRACE_S
        for number in numbers or bytes([signal.SIGTERM]):
            if number in agent.HANDED_ON:
                os.kill(child, number)
    return {"exit": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}


def _signals(peer: socket.socket) -> bytes:
    """Signals that the caller forwards; empty if the caller has ended."""
    try:
        return peer.recv(64)
    except OSError:
        return b""


def _become(pid: int, peer: socket.socket, request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Replace this process by the caller's command on a host, with only the caller's rights."""
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.setsid()
        _, uid, gid = agent.credentials(peer)
        groups = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)  # Python's limit
        _enter(os.pidfd_open(pid), _ALL_KINDS)
        os.setgroups([group for (group,) in struct.iter_unpack("I", groups)])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.umask(int(request["umask"]))
        os.chdir(request["cwd"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these by default
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(request["argv"][0], request["argv"], {**request["env"], "TMPDIR": TMPDIR})
    except OSError as error:
        os.write(2, f"mpicoloc: {request['argv'][0]}: {error.strerror or error}\n".encode())
    finally:
        os._exit(127)


def main(argv: list[str]) -> int:
    """Make a lab and serve it. Prints "ready", or why the lab could not be made, as one line."""
    name, notation, rates, *step = argv
    try:
        outside = _listen(name)  # this comes first, to reserve the name
        lab = Lab(name, topology(notation, rates), *map(int, step))
        listeners = [outside, *lab.listeners()]
    except MpicolocError as error:
        print(error)
        return error.exit_code
    print("ready", flush=True)  # if the caller was killed in the meantime, this fails, which ends the lab
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(devnull, number)
    serve(lab, listeners)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
