"""Real fat-trees of network namespaces: their routes, what messages put on their links, and their end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
import nodes
import numpy as np
import pytest

from mpicoloc.lab import agent, control
from mpicoloc.network import routing, xgft
from mpicoloc.store import hdf5

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(150),
    pytest.mark.serial,
    pytest.mark.skipif(not nodes.can_be_made(), reason="this machine allows no namespaces"),
]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fattree-lab"
COMMAND = [sys.executable, "-m", "mpicoloc", "lab"]
HEADER_BYTES = 14 + 20 + 32
"""Of each packet that a link counts: Ethernet, IPv4, TCP with time stamps."""
USERS = {"aggressor": 54321, "victim": 54322}


def lab(*words, uid=None, code=0, **options):
    """Run `mpicoloc lab`; returns what it said."""
    command = [*jobs.as_user(uid), *COMMAND, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.fixture
def name():
    """Of a lab that this test makes, and that ends with it."""
    made = f"test-{os.getpid()}"
    yield made
    control.stop(made)


@pytest.fixture
def traffic(openmpi):
    """The example's program."""
    mpicc, _ = jobs.commands("openmpi")
    program = Path(openmpi.program).with_name("traffic")
    subprocess.run([mpicc, "-O1", EXAMPLE / "traffic.c", "-o", program], check=True, timeout=jobs.LIMIT_S)
    return str(program)


def inside(name):
    """Every process of a lab, with when it began."""
    first = control.first_process(name)
    space, found = os.stat(f"/proc/{first}/ns/pid").st_ino, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.stat(folder / "ns" / "pid").st_ino == space:
                found[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[19]
    return found


def alive(processes):
    found = set()
    for pid, began in processes.items():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if words[19] == began and words[0] != "Z":
                found.add(pid)
    return found


def traces(name):
    """What a lab might leave: interfaces, files, mounts, processes and sockets of its name."""
    found = {f"interface {path.name}" for path in Path("/sys/class/net").iterdir()}
    for folder in ("/run", "/run/netns", "/tmp", "/dev/shm", "/var/tmp"):
        with contextlib.suppress(OSError):
            names = os.listdir(folder)
            found |= {f"{folder}/{path}" for path in names if name in path or path.startswith("ompi.h")}
    mounts = Path("/proc/self/mountinfo").read_text()
    found |= {line for line in mounts.splitlines() if "nsfs" in line or ".lab" in line}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"mpicoloc.lab.server" in words and name.encode() in words:
                found.add(f"process {folder.name}")
    return found | {f"socket {other}" for other in agent.names() if other == name}


def test_every_hop_is_the_route_s(name):
    tree = xgft.parse("XGFT(3;2,2,2;2,2,1)", 1.0)
    lab("up", "--name", name, "--topology", tree)
    others = [f"h{host}" for host in range(1, tree.n_hosts)]
    said = lab("exec", "--name", name, "h0", sys.executable, EXAMPLE / "route.py", *others)
    for host, line in enumerate(said.splitlines(), 1):
        hops = [(0, 0)]
        while hops[-1] != (0, host):
            hops.append(routing.next_hop(tree, *hops[-1], host))
        assert line.split() == [xgft.name(*hop) for hop in hops[1:]]
    links = measured(name, lambda: lab("exec", "--name", name, "h0", sys.executable, "-c", PING))
    there, back = np.array([0, 7]), np.array([7, 0])
    expected = routing.link_loads(tree, there, back, np.ones(2))
    for link in links:
        loads = [way[link["level"]][link["link"]] for way in (expected.up, expected.down)]
        assert [link["up_packets"], link["down_packets"]] == loads, link


PING = """
import socket
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.connect(("h7", 9))
probe.send(b"is anybody there?")
try:
    probe.recv(1)
except ConnectionRefusedError:
    pass
"""


def measured(name, run):
    before = control.ask(name, "counters")
    run()
    return control.since(control.ask(name, "counters"), before)["links"]


def payload(links, empty, way):
    """Bytes of messages that each link carried, and what an empty job's launcher sends taken away."""
    carried = [link[f"{way}_bytes"] - HEADER_BYTES * link[f"{way}_packets"] for link in links]
    launcher = [link[f"{way}_bytes"] - HEADER_BYTES * link[f"{way}_packets"] for link in empty]
    return np.array(carried, float) - launcher


def assert_agree(tree, links, empty, src, dst, n_bytes):
    """Counters and messages: 3 % by level, and 5 % for each link, give or take a hundredth of its level."""
    expected = routing.link_loads(tree, src, dst, n_bytes)
    levels = np.array([link["level"] for link in links])
    for way, loads in (("up", expected.up), ("down", expected.down)):
        counted = payload(links, empty, way)
        for level, load in enumerate(loads):
            found = counted[levels == level]
            print(f"level {level} {way}: counted {found.sum():.0f} B, messages {load.sum():.0f} B")
            np.testing.assert_allclose(found.sum(), load.sum(), rtol=0.03)
            np.testing.assert_allclose(found, load, rtol=0.05, atol=0.01 * load.sum())


def test_links_count_the_bytes_of_messages(name, traffic, tmp_path):
    control.start(name, "XGFT(2;4,2;1,2)", "1Gbit")
    tree, hosts = xgft.parse("XGFT(2;4,2;1,2)", 1.0), np.array([0, 1, 4, 7])
    job = ["run", "--name", name, "--hosts", "0,1,4,7"]
    here = {"cwd": tmp_path, "env": {**os.environ, "MPICOLOC_OUT": str(tmp_path / "ring.h5")}}
    empty = measured(name, lambda: lab(*job, traffic, "empty", **here))
    links = measured(name, lambda: lab(*job, traffic, "ring", 2_000_000, 3, **here))
    profile = hdf5.read(tmp_path / "ring.h5")
    assert [level.sent_bytes for level in profile.network.levels] == [24_000_000, 12_000_000]
    peers = profile.tables["peers"]
    assert_agree(tree, links, empty, hosts[peers["src"]], hosts[peers["dst"]], peers["bytes"])

    empty = measured(name, lambda: lab(*job, "--plain", traffic, "empty", **here))
    links = measured(name, lambda: lab(*job, "--plain", traffic, "alltoall", 500_000, 4, **here))
    src, dst = np.indices((4, 4)).reshape(2, -1)
    assert_agree(tree, links, empty, hosts[src], hosts[dst], np.full(16, 4 * 500_000))


@pytest.mark.parametrize("killed", ["down", "first process", "its parent"])
def test_nothing_is_left_of_a_lab(name, openmpi, tmp_path, killed):
    before = traces(name)
    control.start(name, "XGFT(2;2,2;1,1)", "1Gbit")
    words = [
        "run",
        "--name",
        name,
        "--plain",
        "-n",
        "2",
        "--placement",
        "F1",
        openmpi.program,
        "finalize",
        "100",
    ]
    caller = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    jobs.wait_until(lambda: len(running(inside(name), "life")) == 2, "the job to run on both hosts")
    processes, first = inside(name), control.first_process(name)
    if killed == "down":
        lab("down", "--name", name)
        assert not alive(processes)
    else:
        parent = Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(first if killed == "first process" else int(parent), signal.SIGKILL)
    assert caller.wait(20) == agent.GONE
    jobs.wait_until(lambda: not alive(processes), f"{alive(processes)} to end")
    jobs.wait_until(lambda: traces(name) <= before, f"{traces(name) - before} to go")


def running(processes, program):
    """Those of these processes that run a program of this name."""
    found = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == program:
                found.add(pid)
    return found


def test_nothing_is_left_when_lab_up_is_killed(name):
    before, n_killed = traces(name), 0
    for after_s in (0.0, 0.2):
        caller = subprocess.Popen([*COMMAND, "up", "--name", name, "--topology", "XGFT(2;8,2;1,2)"])
        jobs.wait_until(lambda: traces(name) - before, "the lab to begin")
        time.sleep(after_s)
        caller.kill()
        if caller.wait(20) == 0:  # the lab was up before
            control.stop(name)
        else:
            n_killed += 1
        jobs.wait_until(lambda: traces(name) <= before, f"{traces(name) - before} to go")
    assert n_killed


def test_a_killed_caller_ends_its_job_and_the_lab_stays(name, openmpi, tmp_path):
    control.start(name, "XGFT(2;2,2;1,1)", "1Gbit")
    idle = set(inside(name))
    words = ["run", "--name", name, "-n", "2", "--placement", "F1", openmpi.program, "finalize", "100"]
    caller = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    jobs.wait_until(lambda: len(running(inside(name), "life")) == 2, "the job to run on both hosts")
    caller.kill()
    caller.wait(20)
    jobs.wait_until(lambda: set(inside(name)) <= idle, "the job's processes to end")
    assert lab("exec", "--name", name, "h3", "cat", "/proc/sys/kernel/hostname") == "h3\n"


def test_who_shares_an_up_link_suffers(name, traffic):
    """A first measurement: jobs over an up-link that another user keeps busy, and below one switch."""
    root = 0  # in a view in which other users reach the interpreter
    lab("up", "--name", name, "--topology", "XGFT(2;6,2;1,1)", "--rate", "200Mbit", uid=root)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-") as folder:
        os.chmod(folder, 0o777)
        words = ["run", "--name", name, "--hosts"]

        def seconds(hosts):
            job = [*words, hosts, "--plain", traffic, "pairs", 2_500_000, 3]
            return float(lab(*job, uid=USERS["victim"], cwd=folder).split()[0])

        sharing, apart = "0,6", "2,3"
        alone = {hosts: seconds(hosts) for hosts in (sharing, apart)}
        long = [*words, "1,4,7,8", "--plain", traffic, "pairs", "2500000", "10000"]
        command = [*jobs.as_user(USERS["aggressor"]), *COMMAND, *long]
        aggressor = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            jobs.wait_until(lambda: busy(name) > 5_000_000, "the aggressor to send")
            for _ in range(3):  # as the machine may be slow for a moment
                shared = {hosts: seconds(hosts) for hosts in alone}
                if shared[sharing] > shared[apart]:
                    break
        finally:
            aggressor.kill()
            aggressor.wait(20)
        for hosts, what in ((sharing, "over the shared up-link"), (apart, "below one switch")):
            print(f"{what}: {alone[hosts]:.2f} s alone, {shared[hosts]:.2f} s beside the other user's job")
        assert shared[sharing] > shared[apart]
        lab(*words, sharing, traffic, "empty", uid=USERS["victim"], cwd=folder)
        (profile,) = Path(folder).glob("*.h5")
        assert profile.stat().st_uid == USERS["victim"]


def busy(name):
    counted = control.ask(name, "counters")
    return sum(link["up_bytes"] for link in counted["links"] if link["level"] == 1)


def test_snapshots_of_counters(name, tmp_path):
    control.start(name, "XGFT(1;2;1)", "1Gbit")
    before = lab("counters", "--name", name, "--json")
    (tmp_path / "before.json").write_text(before)
    lab("exec", "--name", name, "h0", sys.executable, EXAMPLE / "route.py", "h1")
    since = ["--since", str(tmp_path / "before.json")]
    counted = json.loads(lab("counters", "--name", name, *since, "--json"))
    assert counted["levels"][0]["up_packets"] > 0
    assert f"{counted['levels'][0]['up_bytes']}" in lab("counters", "--name", name, *since)
    (tmp_path / "before.json").write_text(before.replace('"h1"', '"h2"'))
    lab("counters", "--name", name, *since, code=3)
    assert name in lab("status")
    leave = ["sh", "-c", "touch $TMPDIR/left; echo $TMPDIR"]
    said = lab("exec", "--name", name, "h0", *leave, env={**os.environ, "TMPDIR": "/tmp"})
    assert said == "/dev/shm/tmp\n"
    assert not lab("exec", "--name", name, "h1", "ls", "/dev/shm/tmp"), "each host has its own"
    lab("exec", "--name", name, "h0", *COMMAND, "down", "--name", name, code=4)
    lab("run", "--name", name, "--hosts", "0-5", "--", "true", code=2)
    lab("up", "--name", name, code=4)
    (tmp_path / "before.json").write_text(before)
    control.stop(name)
    control.start(name, "XGFT(1;2;1)", "1Gbit")
    lab("counters", "--name", name, *since, code=3)
