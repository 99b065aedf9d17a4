"""A simulated InfiniBand fabric (ibsim), a real subnet manager (opensm) and the tools that ask both."""

import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from mpicoloc.core import network
from mpicoloc.network.topology import readers

SIMULATED = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"), None)
PROGRAMS = {
    name: shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    for name in ("ibsim", "opensm", "ibnetdiscover", "dump_fts", "ibtracert", "smpquery", "saquery")
}
MISSING = [name for name, path in PROGRAMS.items() if path is None]
LIMIT_S = 120
"""For what takes a second where nothing else runs."""
NEEDED = pytest.mark.skipif(
    bool(MISSING) or SIMULATED is None, reason="needs opensm, ibsim-utils and infiniband-diags"
)


def cabled(tree, without=(), also=()):
    """A fat-tree as ``ibnetdiscover`` prints it, less some cables and with others, by names of both ends."""
    nodes = readers.ibnetdiscover_text(network.parse_xgft(tree, 1e9)).split("\n\n")
    rows = {text.split('"')[1]: text.rstrip("\n").split("\n") for text in nodes}
    for ends in without:
        for one, other in (ends, ends[::-1]):
            rows[one] = [row for row in rows[one] if f']\t"{other}"[' not in row]
    for ends in also:
        ports = [max(int(row[1 : row.index("]")]) for row in rows[end][1:]) + 1 for end in ends]
        for i in (0, 1):
            rows[ends[i]].append(f'[{ports[i]}]\t"{ends[1 - i]}"[{ports[1 - i]}]')
    for row in rows.values():
        kind, _, name = row[0].split()
        row[0] = f"{kind}\t40 {name}"
    return "\n\n".join("\n".join(row) for row in rows.values()) + "\n"


class Subnet:
    """A simulated fabric, its tools and what the subnet manager made of it."""

    def __init__(self, folder, text):
        self.folder, self.manager = folder, None
        # The socket is an abstract one of this name: nothing stays of it.
        name = uuid.uuid4().hex[:12]
        self.environ = os.environ | {"IBSIM_SOCKNAME": name, "OSM_TMP_DIR": ".", "OSM_CACHE_DIR": "."}
        (folder / "net").write_text(text)
        said = folder / "ibsim.out"
        with said.open("w") as output:
            self.simulator = subprocess.Popen(
                [PROGRAMS["ibsim"], "-s", "-n", "net"],
                cwd=folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while "MaxMcastCap" not in said.read_text():
            assert self.simulator.poll() is None and time.monotonic() < deadline, said.read_text()[-2000:]
            time.sleep(0.01)

    def tool(self, *words):
        """Output of one of `PROGRAMS` on the simulated fabric."""
        name, *rest = words
        done = subprocess.run(
            [PROGRAMS[name], *rest],
            cwd=self.folder,
            env=self.environ | {"LD_PRELOAD": str(SIMULATED)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        return done.stdout

    def route(self, engine):
        # log_flags: dump the tables, too
        (self.folder / "opensm.conf").write_text(f"routing_engine {engine}\nlog_flags 0x43\n")
        self.tool("opensm", "-F", "opensm.conf", "-o", "-f", "opensm.log")
        assert f"{engine} tables configured on all switches" in (self.folder / "opensm.log").read_text()

    def manage(self, *words):
        """Start a subnet manager that stays, and wait until the fabric is up."""
        said = self.folder / "opensm.out"
        with said.open("w") as output:
            self.manager = subprocess.Popen(
                [PROGRAMS["opensm"], *words, "-f", "opensm.log", "-d", "2"],  # 2: flush the log
                cwd=self.folder, env=self.environ | {"LD_PRELOAD": str(SIMULATED)},
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + LIMIT_S
        while "SUBNET UP" not in self._log():
            assert self.manager.poll() is None and time.monotonic() < deadline, self._log()[-2000:]
            time.sleep(0.02)
        return said.read_text()

    def _log(self):
        log = self.folder / "opensm.log"
        return log.read_text() if log.exists() else ""

    def close(self):
        for process in (self.manager, self.simulator):
            if process is not None:
                process.kill()
                process.wait()
