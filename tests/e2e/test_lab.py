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
import processes
import pytest

from mpicoloc.cli.main import main
from mpicoloc.core.network import Placement, node_name, parse_xgft
from mpicoloc.lab import actions, agent, control
from mpicoloc.network import routing, utilisation
from mpicoloc.network.traffic import job_traffic
from mpicoloc.profile import hdf5

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(150),
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


@pytest.fixture(scope="module")
def shared():
    """Name of a lab for tests that leave it as it was: XGFT(2;4,2;1,2)."""
    made = f"shared-{os.getpid()}"
    control.start(made, "XGFT(2;4,2;1,2)", "1Gbit")
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
    space = os.stat(f"/proc/{first}/ns/pid").st_ino
    found = processes.matching(lambda one: os.stat(one / "ns" / "pid").st_ino == space)
    return {pid: began for pid in found if (began := began_at(pid))}


def began_at(pid):
    """When it began; None: it has ended."""
    with contextlib.suppress(OSError):
        return processes.stat(pid)[19]
    return None


def alive(found):
    return {pid for pid, began in found.items() if began_at(pid) == began and processes.is_running(pid)}


def traces(name):
    """Traces that a lab of this name might leave: interfaces, files, mounts, processes and sockets."""
    found = {f"interface {path.name}" for path in Path("/sys/class/net").iterdir()}
    for folder in ("/run", "/run/netns", "/tmp", "/dev/shm", "/var/tmp"):
        with contextlib.suppress(OSError):
            names = os.listdir(folder)
            found |= {f"{folder}/{path}" for path in names if name in path or path.startswith("ompi.h")}
    mounts = Path("/proc/self/mountinfo").read_text()
    found |= {line for line in mounts.splitlines() if "nsfs" in line or ".lab" in line}
    servers = processes.matching(cmdline=[b"mpicoloc.lab.server", name.encode()])
    found |= {f"process {pid}" for pid in servers}
    return found | {f"socket {other}" for other in agent.names() if other == name}


def test_every_hop_is_the_route_s(name):
    tree = parse_xgft("XGFT(3;2,2,2;2,2,1)", 1.0)
    lab("up", "--name", name, "--topology", tree)
    others = [f"h{host}" for host in range(1, tree.n_hosts)]
    said = lab("exec", "--name", name, "h0", sys.executable, EXAMPLE / "route.py", *others)
    for host, line in enumerate(said.splitlines(), 1):
        hops = [(0, 0)]
        while hops[-1] != (0, host):
            hops.append(routing.next_hop(tree, *hops[-1], host))
        assert line.split() == [node_name(*hop) for hop in hops[1:]]
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


def assert_agree(links, empty, expected):
    """Counters and messages: 3 % by level, and 5 % for each link, give or take a hundredth of its level."""
    levels = np.array([link["level"] for link in links])
    for way, loads in (("up", expected.up), ("down", expected.down)):
        counted = payload(links, empty, way)
        for level, load in enumerate(loads):
            found = counted[levels == level]
            print(f"level {level} {way}: counted {found.sum():.0f} B, messages {load.sum():.0f} B")
            np.testing.assert_allclose(found.sum(), load.sum(), rtol=0.03)
            np.testing.assert_allclose(found, load, rtol=0.05, atol=0.01 * load.sum())


def test_links_count_the_bytes_of_messages(shared, traffic, tmp_path):
    """Point-to-point and collectives, as the profile tells them."""
    tree, placement = parse_xgft("XGFT(2;4,2;1,2)", 1.0), Placement([0, 4, 5])
    here = {"cwd": tmp_path, "env": {**os.environ, "MPICOLOC_OUT": str(tmp_path / "job.h5")}}
    job = ["run", "--name", shared, "--hosts", "0,4,5"]
    empty = measured(shared, lambda: lab(*job, traffic, "empty", **here))
    for what, n_bytes, sent_bytes in (("ring", 2_000_000, [6e6, 4e6]), ("mixed", 500_000, None)):
        (tmp_path / "job.h5").unlink()
        links = measured(shared, lambda: lab(*job, traffic, what, n_bytes, **here))  # noqa: B023
        profile = hdf5.read(tmp_path / "job.h5")
        if sent_bytes:
            assert [level.sent_bytes for level in profile.network.levels] == sent_bytes
        told = job_traffic.job_traffic(profile.tables, 3, profile.job.mpi_library).traffic
        loads = utilisation.job_link_loads(tree, placement, told)
        assert_agree(links, empty, loads)


@pytest.mark.parametrize("killed", ["down", "first process", "its parent"])
def test_nothing_is_left_of_a_lab(name, openmpi, tmp_path, killed):
    before = traces(name)
    control.start(name, "XGFT(1;2;1)", "1Gbit")
    job = ["run", "--name", name, "--plain", openmpi.program, "finalize", "100"]
    caller = subprocess.Popen([*COMMAND, *job], cwd=tmp_path, stderr=subprocess.DEVNULL)
    jobs.wait_until(lambda: len(running(inside(name), "life")) == 2, "the job to run on both hosts")
    there, first = inside(name), control.first_process(name)
    if killed == "down":
        lab("down", "--name", name)
        assert not alive(there)
    else:
        os.kill(first if killed == "first process" else int(processes.stat(first)[1]), signal.SIGKILL)
    assert caller.wait(20) == agent.GONE
    jobs.wait_until(lambda: not alive(there), f"{alive(there)} to end")
    jobs.wait_until(lambda: traces(name) <= before, f"{traces(name) - before} to go")


def running(inside_lab, program):
    """Those of these processes that run a program of this name."""
    return inside_lab.keys() & processes.matching(lambda one: processes.comm(one) == program)


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


def test_a_killed_caller_ends_its_job_and_the_lab_stays(shared, openmpi, tmp_path):
    idle = set(inside(shared))
    words = ["run", "--name", shared, "--hosts", "0,4", openmpi.program, "finalize", "100"]
    caller = subprocess.Popen([*COMMAND, *words], cwd=tmp_path, stderr=subprocess.DEVNULL)
    jobs.wait_until(lambda: len(running(inside(shared), "life")) == 2, "the job to run on both hosts")
    caller.kill()
    caller.wait(20)
    jobs.wait_until(lambda: set(inside(shared)) <= idle, "the job's processes to end")
    assert lab("exec", "--name", shared, "h3", "cat", "/proc/sys/kernel/hostname") == "h3\n"


@pytest.mark.serial
def test_who_shares_an_up_link_suffers_in_the_predicted_order(name, traffic):
    """Jobs of two users: three hosts against one over a slow up-link; a third job shares no link."""
    # in a view in which other users reach the interpreter
    lab("up", "--name", name, "--topology", "XGFT(2;6,2;1,1)", "--rate", "1Gbit,60Mbit", uid=0)
    many, one, apart = "0-2,6-8", "3,9", "4-5"
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-") as folder, contextlib.ExitStack() as stack:
        os.chmod(folder, 0o777)
        users = {many: USERS["aggressor"], one: USERS["victim"]}
        predicted = predictions(name, traffic, users, folder)

        def begin(hosts, *numbers):
            words = ["run", "--name", name, "--hosts", hosts, "--plain", traffic, "pairs", *map(str, numbers)]
            command = [*jobs.as_user(users.get(hosts, USERS["victim"])), *COMMAND, *words]
            before = got(name, hosts)
            job = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
            stack.callback(job.wait, 20)
            stack.callback(job.kill)
            jobs.wait_until(lambda: got(name, hosts) - before > 1_000_000, "a job to send")
            return job

        begin(apart, 100_000, 1_000_000, 20)
        first = begin(many, 1_000_000, 1_000_000)
        alone = rates(name, many, apart)
        begin(one, 1_000_000, 1_000_000)
        for _ in range(3):  # TCP is fair in the long run only
            together = rates(name, many, one, apart, span_s=3.0)
            if together[many] > 2 * together[one]:
                break
        first.kill()
        jobs.wait_until(lambda: rates(name, many, span_s=0.2)[many] < 1e5, "the first job to end")
        alone |= rates(name, one)
    slowdowns = {hosts: alone[hosts] / rate for hosts, rate in together.items()}
    print(f"measured {slowdowns}, predicted {predicted}")
    assert 1 < predicted[many] < predicted[one]
    assert max(slowdowns[many], slowdowns[apart]) < slowdowns[one]


def predictions(name, traffic, users, folder):
    """Slowdown of each job as `mpicoloc network` tells it, from profiles of runs whose bytes take 0.4 s."""
    topology, files = Path(folder, "lab.yaml"), []
    topology.write_text(lab("topology", "--name", name))
    for n_bytes, (hosts, uid) in zip((1_000_000, 3_000_000), users.items(), strict=True):
        files.append(Path(folder, f"{hosts}.h5"))
        job = ["run", "--name", name, "--hosts", hosts, "--out", files[-1], traffic, "pairs", n_bytes]
        lab(*job, uid=uid, cwd=folder)
        assert files[-1].stat().st_uid == uid
    command = [*COMMAND[:-1], "network", *files, "--topology", topology, "--placement", "run"]
    told = subprocess.check_output([*command, "--duration-s", "0.4", "--json"], timeout=jobs.LIMIT_S)
    found = json.loads(told)["sharing"]
    return {hosts: job["slowdown"]["value"] for hosts, job in zip(users, found, strict=True)}


def got(name, job):
    """Bytes that the hosts of a job have got, so those that have passed the slow link."""
    own = {f"h{host}" for host in actions.parse_hosts(job, 12)}
    return sum(link["down_bytes"] for link in control.ask(name, "counters")["links"] if link["lower"] in own)


def rates(name, *running, span_s=1.5):
    """Bytes/s that the hosts of each of these jobs get."""
    before, began_s = {job: got(name, job) for job in running}, time.monotonic()
    time.sleep(span_s)
    span_s = time.monotonic() - began_s
    return {job: (got(name, job) - before[job]) / span_s for job in running}


def test_snapshots_of_counters(name, tmp_path, capfd):
    def told(*words, code=0):
        assert main(["lab", *map(str, words)]) == code
        return capfd.readouterr().out

    control.start(name, "XGFT(1;2;1)", "1Gbit")
    before = told("counters", "--name", name, "--json")
    (tmp_path / "before.json").write_text(before)
    lab("exec", "--name", name, "h0", sys.executable, EXAMPLE / "route.py", "h1")
    since = ["--since", tmp_path / "before.json"]
    counted = json.loads(told("counters", "--name", name, *since, "--json"))
    assert counted["levels"][0]["up_packets"] > 0
    assert f"{counted['levels'][0]['up_bytes']}" in told("counters", "--name", name, *since)
    (tmp_path / "before.json").write_text(before.replace('"h1"', '"h2"'))
    told("counters", "--name", name, *since, code=3)
    assert name in told("status")
    leave = ["sh", "-c", "touch $TMPDIR/left; echo $TMPDIR"]
    said = lab("exec", "--name", name, "h0", *leave, env={**os.environ, "TMPDIR": "/tmp"})
    assert said == "/dev/shm/tmp\n"
    assert not lab("exec", "--name", name, "h1", "ls", "/dev/shm/tmp"), "each host has its own"
    lab("exec", "--name", name, "h0", *COMMAND, "down", "--name", name, code=4)
    told("run", "--name", name, "--hosts", "0-5", "--", "true", code=2)
    told("up", "--name", name, code=4)
    (tmp_path / "before.json").write_text(before)
    control.stop(name)
    control.start(name, "XGFT(1;2;1)", "1Gbit")
    told("counters", "--name", name, *since, code=3)
