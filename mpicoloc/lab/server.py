"""The first process of a lab: ``python -m mpicoloc.lab.server NAME TOPOLOGY RATES [CLOCK_STEP_S]``.

It is process 1 of a PID namespace that holds every process of the lab, makes the nodes and cables, says
"ready", and then serves the requests of `mpicoloc.lab.agent`. Nodes are processes that sleep, each in
namespaces of its own; nothing of a lab has a name in the file system. So when this process ends, by whatever
cause, the kernel kills all the others, and with them go the namespaces, their links, mounts and files.
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
from pathlib import Path
from typing import Any, NoReturn

from mpicoloc.core import network
from mpicoloc.core.network import Topology
from mpicoloc.errors import EnvironmentFault, MpicolocError
from mpicoloc.lab import agent, plan

AGENT = "/dev/shm/.lab/agent"
"""On every host: what a launcher takes in place of ``ssh``."""
TOPOLOGY = "/dev/shm/.lab/topology.yaml"
TMPDIR = "/dev/shm/tmp"
"""Of every command: /tmp is the machine's, and what launchers leave there would outlive the lab."""
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
cd /dev/shm/.lab; umask 022
printf %s "$2" > hosts; printf %s "$3" > agent; printf %s "$4" > topology.yaml
chmod 755 agent; mount --bind hosts /etc/hosts; cd /
"""
_SLEEP = "echo $$; exec sleep infinity > /dev/null"
_CLONE_NEWNET, _CLONE_NEWTIME = 0x40000000, 0x80
_ALL_KINDS = _CLONE_NEWNET | _CLONE_NEWTIME | 0x00020000 | 0x04000000 | 0x08000000
"""With mounts, host name and System V IPC; from ``linux/sched.h``."""
_SO_PEERGROUPS = 59
_GRACE_S = 10.0
"""For a caller to say what it wants, and for a command whose caller was killed to end by itself."""
_libc = ctypes.CDLL(None, use_errno=True)


class Lab:
    """All nodes of a lab, by name: their processes and interfaces."""

    def __init__(self, name: str, tree: Topology, clock_step_s: int = 0):
        self.name, self.tree, self.clock_step_s = name, tree, clock_step_s
        self.began_s = time.time()
        self.cables = plan.cables(tree)
        self.pids = self._boot()
        _batch("ip", None, plan.laying(self.cables, self.pids))
        ports = plan.ports(self.cables)
        for node in plan.nodes(tree):
            found, pid = ports[network.node_name(*node)], self.pids[network.node_name(*node)]
            _batch("ip", pid, plan.addressing(tree, *node, [port for port, _ in found]))
            _batch("tc", pid, plan.shaping(tree, found))

    def _boot(self) -> dict[str, int]:
        """Start the process of each node, all at once; returns them when all are up."""
        arguments = [plan.hosts_file(self.tree), _AGENT_TEXT % self.name, plan.yaml(self.tree)]
        started = {}
        for level, number in plan.nodes(self.tree):
            name = network.node_name(level, number)
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
        """A door in the network of each host."""
        found = []
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for host in range(self.tree.n_hosts):
            with open(f"/proc/{self.pids[network.node_name(0, host)]}/ns/net") as place:
                _enter(place.fileno(), _CLONE_NEWNET)
            try:
                found.append(_listen(self.name))
            finally:
                _enter(home, _CLONE_NEWNET)
        os.close(home)
        return found

    def describe(self) -> dict[str, Any]:
        """What the lab is."""
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
        """Bytes and packets of every link since the lab is up, as its upper end received and sent them."""
        read = {name: _interfaces(pid) for name, pid in self.pids.items()}
        links = [
            {
                "level": cable.level,
                "link": cable.link,
                "lower": cable.lower,
                "upper": cable.upper,
                **dict(zip(plan.COUNTED, read[cable.upper][cable.upper_port], strict=True)),
            }
            for cable in self.cables
        ]
        facts = {"name": self.name, "began_unix_s": self.began_s, "topology": str(self.tree)}
        return {**facts, "links": links}


def _interfaces(pid: int) -> dict[str, tuple[int, int, int, int]]:
    """Received bytes and packets, sent bytes and packets, of each interface of a process's network."""
    found = {}
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        words = numbers.split()
        found[name.strip()] = (int(words[0]), int(words[1]), int(words[8]), int(words[9]))
    return found


def _batch(tool: str, pid: int | None, text: str) -> None:
    """Let ``ip`` or ``tc`` do what `text` says, in the network of a process."""
    where = [] if pid is None else ["nsenter", f"--net=/proc/{pid}/ns/net"]
    done = subprocess.run([*where, tool, "-batch", "-"], input=text, text=True, capture_output=True)
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise EnvironmentFault(
            f"{tool} refused: {said}; the kernel needs veth and sch_tbf (`modprobe -a veth sch_tbf`)"
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
            f"a lab {name!r} is up: end it with `mpicoloc lab down --name {name}`"
        ) from None
    listener.listen(128)
    return listener


def serve(lab: Lab, listeners: list[socket.socket]) -> NoReturn:
    """Answer requests for ever, each in a process of its own."""
    # Who has lost its parent in the lab becomes a child of this process; so nobody stays as a zombie.
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
    """Run the command of a request and wait for it; without its caller it is told to end, then killed."""
    if request["host"] not in lab.pids:
        return {"error": f"lab {lab.name} has no host {request['host']}, but h0 to h{lab.tree.n_hosts - 1}"}
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
    """Signals that the caller hands on; nothing if it is no more."""
    try:
        return peer.recv(64)
    except OSError:
        return b""


def _become(pid: int, peer: socket.socket, request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Become the caller's command, on a host and with no more rights than the caller has."""
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.setsid()
        _, uid, gid = agent.credentials(peer)
        groups = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)  # no more at once
        _enter(os.pidfd_open(pid), _ALL_KINDS)
        os.setgroups([group for (group,) in struct.iter_unpack("I", groups)])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        os.umask(int(request["umask"]))
        os.chdir(request["cwd"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(request["argv"][0], request["argv"], {**request["env"], "TMPDIR": TMPDIR})
    except OSError as error:
        os.write(2, f"mpicoloc: {request['argv'][0]}: {error.strerror or error}\n".encode())
    finally:
        os._exit(127)


def main(argv: list[str]) -> int:
    """Make a lab and serve it; the one line on stdout is "ready", or why there is none."""
    name, notation, rates, *step = argv
    try:
        outside = _listen(name)  # at once, so that the name is taken
        lab = Lab(name, plan.topology(notation, rates), *map(int, step))
        listeners = [outside, *lab.listeners()]
    except MpicolocError as error:
        print(error)
        return error.exit_code
    print("ready", flush=True)  # fails, and so ends the lab, when who asked for it was killed meanwhile
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(devnull, number)
    serve(lab, listeners)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
