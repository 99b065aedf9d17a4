"""Nodes and cables of a lab, and the hosts on which its processes run; no lab is created."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from mpicoloc.cli.main import main
from mpicoloc.core import network
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.lab import actions, agent, control, server
from mpicoloc.network import routing
from mpicoloc.network.topology import readers

TREE = server.topology("XGFT(2;4,2;1,2)", "1Gbit")
TREES = ["XGFT(1;3;1)", "XGFT(2;4,2;1,2)", "XGFT(2;2,3;2,2)", "XGFT(3;2,2,2;1,2,1)"]


@pytest.mark.parametrize("notation", TREES)
def test_every_port_is_cabled_once_and_leads_where_the_routes_say(notation):
    tree = server.topology(notation, "1Gbit")
    cables = server.cables(tree)
    ends = [(c.lower, c.lower_port) for c in cables] + [(c.upper, c.upper_port) for c in cables]
    assert len(set(ends)) == 2 * len(cables) == 2 * sum(map(tree.n_links, range(tree.height)))
    peer = {(c.lower, c.lower_port): c.upper for c in cables} | {
        (c.upper, c.upper_port): c.lower for c in cables
    }
    for level, number in server.nodes(tree):
        routes = [line.split() for line in server.addressing(tree, level, number, []).splitlines()]
        port = {words[2].split("/")[0]: words[4] for words in routes if words[0] == "route"}
        for host in range(tree.n_hosts):
            if (level, number) != (0, host):
                hop = routing.next_hop(tree, level, number, host)
                assert peer[
                    network.node_name(level, number), port[server.address(0, host)]
                ] == network.node_name(*hop)


def test_nodes_have_addresses_of_their_own():
    tree = server.topology("XGFT(3;10,8,8;1,4,4)", "1Gbit")
    addresses = [server.address(*node) for node in server.nodes(tree)]
    assert len(set(addresses)) == len(addresses) == tree.n_hosts + tree.n_switches
    macs = [cable.mac for cable in server.cables(tree)]
    assert len(set(macs)) == len(macs)


def test_network_reads_the_topology_of_a_lab():
    tree = server.topology("XGFT(2;4,2;1,2)", "1Gbit,2.5Gbit")
    fabric = readers.read(server.yaml(tree), "lab.yaml", 1.0)
    assert fabric.topology == tree
    assert fabric.host_names == tuple(network.node_name(0, host) for host in range(8))


def test_rates_are_per_level():
    assert server.topology("XGFT(2;4,2;1,2)", "800Mbit").capacity_bps == (1e8, 1e8)
    assert server.topology("XGFT(2;4,2;1,2)", "8kbit, 1.6Gbit").capacity_bps == (1e3, 2e8)


@pytest.mark.parametrize(
    ("notation", "rates"),
    [
        ("XGFT(2;4,2;1,2)", "fast"),
        ("XGFT(2;4,2;1,2)", "1Gbit,1Gbit,1Gbit"),
        ("XGFT(2;4,2;1,2)", "0Gbit"),
        ("XGFT(2;4,2;1)", "1Gbit"),
        ("XGFT(2;64,64;1,2)", "1Gbit"),
    ],
)
def test_what_makes_no_lab_is_told(notation, rates, capsys):
    with pytest.raises(UsageError):
        server.topology(notation, rates)
    assert main(["lab", "up", "--topology", notation, "--rate", rates]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_hosts_are_listed_in_the_user_s_order():
    assert actions.parse_hosts(None, 3) == [0, 1, 2]
    assert actions.parse_hosts("6,0-2,h4", 8) == [6, 0, 1, 2, 4]


@pytest.mark.parametrize("text", ["", "8", "0-8", "3-1", "0,0", "a", "0-1-2", "-1", "0,,1", "²"])
def test_hosts_that_the_lab_does_not_have_are_refused(text):
    with pytest.raises(UsageError, match="hosts"):
        actions.parse_hosts(text, 8)


def test_ranks_are_spread_evenly():
    assert actions.place(4, [0, 4], "block", TREE) == [0, 0, 4, 4]
    assert actions.place(4, [0, 4], "cyclic", TREE) == [0, 4, 0, 4]
    assert sorted(map(actions.place(8, [5, 6, 7], "block", TREE).count, [5, 6, 7])) == [2, 3, 3]
    assert actions.place(4, [], "F2", TREE) == [0, 1, 4, 5]
    assert len(set(actions.place(8, [], "RF", TREE))) == 8
    for n_ranks, way in ((1, "block"), (4, "random")):
        with pytest.raises(UsageError):
            actions.place(n_ranks, [0, 4], way, TREE)


@pytest.mark.parametrize("way", actions.PLACEMENTS)
def test_the_last_process_of_each_host_is_its_coordinator(way):
    ranks = actions.place(7, [2, 0, 5], way, TREE)
    processes = actions.with_coordinators(ranks)
    last = {host: at for at, host in enumerate(processes)}
    assert [host for at, host in enumerate(processes) if last[host] != at] == ranks


def test_each_launcher_is_told_in_its_own_words():
    assert "h0,h0,h4" in actions.open_mpi([0, 0, 4])
    assert "h0:2,h4:1" in actions.hydra([0, 0, 4])
    with pytest.raises(UsageError, match="block"):
        actions.hydra([0, 4, 0])


@pytest.mark.parametrize("action", [["run", "--", "true"], ["exec", "h0", "true"], ["counters"]])
def test_without_a_lab_there_is_one_line_and_code_4(action, capsys):
    assert main(["lab", action[0], "--name", "no-such-lab", *action[1:]]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "mpicoloc lab up" in line


@pytest.fixture
def door():
    """A name that somebody else than a lab has taken."""
    name = f"door-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(agent.socket_name(name))
        listener.listen()
        handlers = {number: signal.getsignal(number) for number in agent.HANDED_ON}
        yield name, listener
        for number, handler in handlers.items():
            signal.signal(number, handler)


def behind(door, answer):
    """Let a thread do `answer` with the first who comes."""

    def serve():
        peer, _ = door[1].accept()
        with peer:
            answer(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("env", [{}, {"LONG": "x" * (1 << 22)}], ids=["short", "long"])
def test_a_job_that_never_ran_has_not_succeeded(door, env, capsys):
    """The door is shut in the middle of the request, or instead of an answer."""
    thread = behind(door, lambda peer: peer.recv(4))
    assert agent.execute(door[0], "h0", ["true"], env) == agent.GONE
    assert f"lab {door[0]} has ended" in capsys.readouterr().err
    thread.join(20)
    for number in agent.HANDED_ON:  # to nobody
        signal.raise_signal(number)


def test_a_signal_does_not_spoil_the_request(door):
    got = []

    def answer(peer):
        head, fds, _, _ = socket.recv_fds(peer, 4, 3)
        for fd in fds:
            os.close(fd)
        os.kill(os.getpid(), signal.SIGUSR1)
        body, size = b"", int.from_bytes(head, "big")
        while len(body) < size:
            body += peer.recv(size - len(body))
        got.append(json.loads(body)["argv"])
        got.append(peer.recv(1)[0])
        peer.sendall(b'{"exit": 3}')

    thread = behind(door, answer)
    assert agent.execute(door[0], "h0", ["true"], {"LONG": "x" * (1 << 22)}) == 3
    thread.join(20)
    assert got == [["true"], signal.SIGUSR1]


def test_who_takes_a_strange_name_hides_no_lab(capsys):
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as two:
        one.bind(agent.socket_name("strange!"))
        one.listen()
        two.bind(agent.socket_name(f"datagrams-{os.getpid()}"))
        code = main(["lab", "status", "--json"])
        said = capsys.readouterr()
    assert code == 0 and isinstance(json.loads(said.out), list)
    assert "'strange!' is not a lab" in said.err and "datagrams" in said.err


def test_a_name_without_a_host_is_no_command(capsys):
    assert agent.main(["lab", "-x"]) == agent.GONE
    assert "no host named" in capsys.readouterr().err


def test_a_tool_that_fails_without_a_word():
    with pytest.raises(EnvironmentFault, match="false failed: exit code 1"):
        server._batch("false", None, "")


LINK = {"level": 0, "lower": "h0", "upper": "s1-0", **dict.fromkeys(server.COUNTED, 5)}
COUNTERS = {"name": "lab", "began_unix_s": 1.5, "topology": "XGFT(1;1;1)", "links": [LINK]}


def test_counters_since():
    now = {**COUNTERS, "links": [{**LINK, "up_bytes": 9}]}
    found = control.since(now, COUNTERS)
    assert (found["links"][0]["up_bytes"], found["levels"][0]["up_bytes"]) == (4, 4)
    assert control.since(now, control.since(COUNTERS, None)) == found


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ({}, "not an output"),
        ([], "not an output"),
        ({**COUNTERS, "links": None}, "not an output"),
        ({**COUNTERS, "links": [{"lower": "h0", "upper": "s1-0"}]}, "not an output"),
        ({**COUNTERS, "links": [{**LINK, "up_bytes": "many"}]}, "not the totals at an earlier time"),
        ({**COUNTERS, "links": [{**LINK, "up_bytes": 6}]}, "not the totals at an earlier time"),
        (control.since(COUNTERS, COUNTERS), "without --since"),
        ({**COUNTERS, "began_unix_s": 1.0}, "an earlier lab of this name"),
        ({**COUNTERS, "links": []}, "of another lab"),
    ],
)
def test_what_are_no_earlier_counters_of_this_lab(before, words):
    with pytest.raises(DataError, match=words):
        control.since(COUNTERS, before)


def test_a_lab_that_is_not_there_is_down(capsys):
    assert main(["lab", "down", "--name", "no-such-lab"]) == 0
    assert main(["lab", "down", "--name", "a name"]) == 2


@pytest.mark.parametrize("who", ["no root", "no tools"])
def test_who_cannot_make_one_gets_one_line_and_code_4(who):
    if who == "no tools" and os.geteuid() != 0:
        pytest.skip("whoever is not root is told so first")
    if who == "no root" and os.geteuid() == 0:
        # In a user namespace without a mapping everybody is nobody.
        prefix, path = ["unshare", "--user"], os.environ["PATH"]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode:
            pytest.skip("user namespaces are not allowed here")
    else:
        prefix, path = [], os.environ["PATH"] if who == "no root" else "/nonexistent"
    code = "import sys; from mpicoloc.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, "lab", "up", "--name", "never"],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=60,
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert ("sudo" if who == "no root" else "install iproute2") in line
