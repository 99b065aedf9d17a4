"""Runs of the suite's programs, and what the shim said of each case."""

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpicoloc.pmpi import contract

RECEIVED = {"n": "n_recv", "bytes": "recv_bytes"}
HEADER = np.dtype([("name", "S64"), ("tries", "i4"), ("n_sites", "i4"), ("n_peers", "i4"), ("pad", "i4")])


@dataclass
class Seen:
    """Counts recorded up to a mark, or between two marks."""

    name: str
    tries: int
    calls: Counter = field(default_factory=Counter)
    peers: Counter = field(default_factory=Counter)
    sent_bytes: int = 0
    recv_bytes: int = 0
    counters: Counter = field(default_factory=Counter)
    received: Counter = field(default_factory=Counter)

    def since(self, before):
        """Counts recorded after the mark `before`."""
        return Seen(
            self.name,
            self.tries,
            _difference(self.calls, before.calls),
            _difference(self.peers, before.peers),
            self.sent_bytes - before.sent_bytes,
            self.recv_bytes - before.recv_bytes,
            _difference(self.counters, before.counters),
            _difference(self.received, before.received),
        )


def _difference(after, before):
    return Counter({key: n - before[key] for key, n in after.items() if n != before[key]})


def _take(data, at, dtype, n):
    return np.frombuffer(data, dtype, n, at), at + dtype.itemsize * n


def add_peer(peers, peer, row, columns=None):
    """Add a row of a message table to {(peer, size class, "n" or "bytes"): number}, one-sided or not."""
    size_class = int(row["size_class"]) % contract.MC_ONE_SIDED
    for what, column in (columns or {"n": "n", "bytes": "bytes"}).items():
        if row[column]:
            peers[peer, size_class, what] += int(row[column])


def read_marks(path, names):
    """All marks of one rank, in order; `names` are the shim's functions by number."""
    data, at = Path(path).read_bytes(), 0
    marks = []
    while at < len(data):
        (header,), at = _take(data, at, HEADER, 1)
        (counters,), at = _take(data, at, contract.dtype("mc_counters"), 1)
        sites, at = _take(data, at, contract.dtype("mc_site_row"), int(header["n_sites"]))
        peers, at = _take(data, at, contract.dtype("mc_peer_row"), int(header["n_peers"]))
        seen = Seen(header["name"].decode(), int(header["tries"]))
        for row in sites:
            seen.calls[names[row["call"]].removeprefix("MPI_")] += int(row["n"])
            seen.sent_bytes += int(row["sent_bytes"])
            seen.recv_bytes += int(row["recv_bytes"])
        seen.counters.update({name: int(counters[name]) for name in counters.dtype.names})
        seen.sent_bytes -= seen.counters["written_bytes"]  # a site's bytes are those of files as well
        seen.recv_bytes -= seen.counters["read_bytes"]
        for row in peers:
            add_peer(seen.peers, int(row["peer"]), row)
            add_peer(seen.received, int(row["peer"]), row, RECEIVED)
        marks.append(seen)
    return marks


def environment(part, folder):
    """Of a run of these cases, whose marks come into the folder."""
    names = ",".join(case.name for case in part)
    return {"CONF_CASES": names, "CONF_MARKS": str(folder), "CONF_FILE": str(folder / "file")}


def call_names(shim):
    """The shim's functions by number."""
    return json.loads(Path(shim).with_suffix(".calls.json").read_text())


def by_case(marks):
    """Counts recorded in each case: between each two successive marks."""
    return [after.since(before) for before, after in itertools.pairwise(marks)]


def last_mark(path):
    """Name of the last mark that a rank reached; the numbers of functions need not be known."""
    names = dict.fromkeys(range(1 << 16), "")
    return read_marks(path, names)[-1].name
