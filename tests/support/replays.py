"""Small programs and networks for tests of the packet simulator, and demands of jobs for those of lanes."""

import numpy as np

from mpicoloc.core.network import Topology
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay import native, network
from mpicoloc.replay.qos.policy import Demands
from mpicoloc.replay.simulate import Job, Settings

BPS = 1.25e9  # 800 ps a byte
PACKET = 2000
SLOT_PS = 1_600_000  # a packet's time on a link
PLAIN = Settings(mtu_bytes=PACKET, mpi_latency_s=0.0, eager_bytes=1 << 40, control_bytes=64)


def op(kind, **fields):
    row = np.zeros(1, native.OP)
    row["kind"] = getattr(native, f"RP_{kind}")
    for name, value in fields.items():
        row[name] = value
    return row


def program(*ops):
    return np.concatenate(ops) if ops else np.zeros(0, native.OP)


def send(peer, n_bytes, tag=0, **more):
    return op("SEND", peer=peer, value=n_bytes, tag=tag, **more)


def recv(peer, n_bytes=0, tag=0):
    return op("RECV", peer=peer, value=n_bytes, tag=tag)


def blocking(peer, n_bytes):
    """A send that lasts until its last packet has left."""
    return send(peer, n_bytes, flags=native.RP_UNBUFFERED)


def job(programs, hosts, name="job", **more):
    """Rank i runs program i, once if nothing else is said."""
    return Job(name, programs, np.arange(len(programs)), np.array(hosts), **{"restarts": False, **more})


def flow(src, dst, n_bytes, name="flow", **more):
    """A job of two ranks, one of which sends once to the other."""
    return job([program(send(1, n_bytes)), program(recv(0))], [src, dst], name, **more)


def all_to_all(n, n_bytes=1000):
    ops = program(
        op("LOOP", n=n - 1),
        op("IRECV", peer_mode=native.RP_SHIFT, peer=-1, n=-1, request=0),
        op("ISEND", peer_mode=native.RP_SHIFT, peer=1, n=1, value=n_bytes, request=1),
        op("WAITALL", request=0, n=2),
        op("END"),
    )
    return Job("all-to-all", [ops], np.zeros(n, int), np.arange(n), restarts=False)


def tree(m, w, bps=BPS, **more):
    """A simulated fat-tree; `more` are fields of `fabrics.Hardware`, or routing and failed links."""
    others = {name: more.pop(name) for name in ("routing", "failed") if name in more}
    rates = (bps,) * len(m) if isinstance(bps, float) else bps
    return network.of_fabric(
        Fabric(Topology(m, w, rates)), hardware=network.Hardware(**more), **{"routing": "d-mod-k", **others}
    )


def ps(seconds):
    """Whole picoseconds, which the simulator counts in."""
    return round(np.asarray(seconds, dtype=np.float64).item() * 1e12)


def all_meet(*used):
    """Jobs of these utilisations, each of which shares links with each other."""
    demand = np.array(used, dtype=float)
    meeting = demand[:, None] * demand
    np.fill_diagonal(meeting, 0.0)
    return Demands(demand, meeting)
