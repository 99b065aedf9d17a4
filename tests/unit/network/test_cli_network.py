"""`mpicoloc network` as a user calls it."""

import json
import tracemalloc
from dataclasses import replace

import network_files
import numpy as np
import pytest
import traces
from json_output import documented, keys
from network_files import profile

from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate, table
from mpicoloc.profile import hdf5
from mpicoloc.trace import node_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    network_files.write(folder)
    return folder


@pytest.fixture
def files(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture
def network(files, capsys):
    def call(*argv):
        assert main(["network", *argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_windows_come_from_a_trace_of_every_call_as_well(network, folder):
    of_events = network("one.h5", "--topology", "topology.conf", "--window-s", "1")["cases"][0]["windows"]
    made = profile("1", 1000)
    hdf5.write(replace(made, tables={**made.tables, "events": table("events")}), folder / "all.h5")
    (folder / "all.trace").mkdir(exist_ok=True)
    send, receive = traces.SEND | node_file.SENT, traces.RECV | node_file.RECEIVED
    t_ns, duration_ns = np.array([5, 5, 7, 6]) * 10**9, [10**9, 0, 2 * 10**9, 10**9]
    rows = traces.events(0, t_ns, duration_ns, [250, 250, 500, 9999], [1, 1, 1, -1], send)
    more = traces.events(1, [5 * 10**9], [10**9], [9999], [0], receive)
    (folder / "all.trace" / "0.mct").write_bytes(traces.head(b"1", n_ranks=2) + traces.names() + rows + more)
    (found,) = network("all.h5", "--topology", "topology.conf", "--window-s", "1")["cases"]
    assert found["windows"] == of_events


def test_keys_are_the_documented_ones(network):
    apart = ("--placement", "hosts", "--placement", "numbers")
    found = network("one.h5", "two.h5", "--topology", "topology.conf", *apart)
    wanted = documented("network")
    assert found.keys() == wanted.keys() and found["cases"][0].keys() == wanted["cases"][0].keys()
    for part in ("levels", "links"):
        assert found["cases"][0][part][0].keys() == wanted["cases"][0][part][0].keys()
    del found["sharing"][0]["with"][0]["links"][1:]
    assert keys(found["sharing"][0]) == keys(wanted["sharing"][0])
    (timed,) = network("one.h5", "--topology", "topology.conf", "--window-s", "1")["cases"]
    assert timed["windows"].keys() == wanted["cases"][0]["windows"].keys()


def test_a_job_where_it_ran(network):
    """n0 and n4 are on two switches: all bytes climb to L1."""
    (case,) = network("one.h5", "--topology", "topology.conf", "--link-rate", "8kbit/s")["cases"]
    assert case["windows"] is None
    assert (case["topology"], case["placement"], case["n_hosts"]) == ("XGFT(2;4,2;1,1)", "run", 2)
    assert [row["sent_bytes"] for row in case["levels"]] == [1000, 1000]
    assert [row["injection_bps"] for row in case["levels"]] == [500, 500]
    assert [row["available_bps"] for row in case["levels"]] == [2000, 2000]
    assert [row["utilisation_frac"] for row in case["levels"]] == [0.25, 0.25]
    assert case["demand_class"] == "moderate"
    assert [row["most_up_bytes"] for row in case["links"]] == [1000, 1000]
    assert case["most_sharing_jobs"] == [0, 6]


def test_a_job_is_as_demanding_as_it_is_without_interference(network, folder, capsys):
    """Jokanovic 2014 divides by T_base; what slowed the job must not make it look harmless."""
    made = profile("1", 1000)
    for slowdown, by_wall in ((1.05, None), (4.0, 0.25)):
        measured = Estimate(slowdown, slowdown, slowdown, 9, "1", "count")
        slowed = replace(made, interference=replace(made.interference, slowdown=measured))
        hdf5.write(slowed, folder / "slowed.h5")
        (case,) = network("slowed.h5", "--topology", "topology.conf", "--link-rate", "1kB/s")["cases"]
        assert case["duration_s"] == pytest.approx(2 / slowdown)
        assert case["duration_by"] == f"its wall time of 2 s over its slowdown {slowdown:g}"
        assert case["levels"][1]["utilisation_frac"] == pytest.approx(0.25 * slowdown)
        assert case["utilisation_wall_frac"][1] == (by_wall and pytest.approx(by_wall))
    assert main(["network", "slowed.h5", "--topology", "topology.conf", "--link-rate", "1kB/s"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "by wall time" in text
        and "rates are bytes over 0.5 s, its wall time of 2 s over its slowdown 4." in text
    )


@pytest.mark.parametrize("verb", ["network", "qos", "replay", "batch"])
def test_without_a_topology_every_verb_says_the_same(files, capsys, verb):
    assert main([verb, "one.h5"]) == 2
    line = capsys.readouterr().err.strip()
    assert line.endswith(
        "--topology is missing: give a notation like 'XGFT(3;16,16,8;1,8,8)', or a topology file"
    )


def test_profiles_of_one_job_have_names_of_their_own(network, capsys):
    where = ("--topology", "XGFT(2;4,2;1,1)", "--placement", "F1")
    found = network("one.h5", "one.h5", *where)
    assert [case["job"]["id"] for case in found["cases"]] == ["1", "1-2"]
    assert main(["network", "one.h5", "one.h5", *where]) == 0
    text = capsys.readouterr().out
    assert "1, 1-2" in text and "job 1: rates are" in text and "job 1-2: rates are" in text
    assert main(["qos", "one.h5", "one.h5", *where, "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [(job["id"], job["meets"]) for job in jobs] == [("1", ["1-2"]), ("1-2", ["1"])]


def test_any_other_tree_slimming_and_placement(network):
    found = network(
        "one.h5", "--topology", "XGFT(2;4,2;1,4)", "--placement", "F1,F2,RF", "--slimming", "1,2",
        "--duration-s", "10", "--link-rate", "10Gbit/s,20Gbit/s", "--routing", "random:3", "--seed", "5",
    )  # fmt: skip
    cases = {(case["placement"], case["topology"]): case for case in found["cases"]}
    assert len(cases) == 6
    assert [row["available_bps"] for row in cases["F1", "XGFT(2;4,2;1,2)"]["levels"]] == [2.5e9, 4 * 2.5e9]
    assert [row["sent_bytes"] for row in cases["F1", "XGFT(2;4,2;1,1)"]["levels"]] == [1000, 1000]
    below = cases["F2", "XGFT(2;4,2;1,1)"]
    assert [row["sent_bytes"] for row in below["levels"]] == [1000, 0]
    assert below["levels"][1]["utilisation_frac"] == 0 and below["demand_class"] == "low"
    assert found["sharing"] is None
    (together,) = network(
        "one.h5", "--topology", "XGFT(1;4;1)", "--placement", "F1", "--ranks-per-host", "2"
    )["cases"]
    assert together["levels"][0]["sent_bytes"] == 0


def test_jobs_that_run_together(network):
    found = network(
        "one.h5", "two.h5", "--topology", "topology.conf", "--placement", "hosts", "--placement", "numbers",
        "--up-links", "1,1", "--link-rate", "40kbit/s",
    )  # fmt: skip
    assert [case["n_hosts"] for case in found["cases"]] == [2, 2]
    one, two = found["sharing"]
    assert one["n_sharing_jobs"] == two["n_sharing_jobs"] == [0, 1]
    # They keep the link of 5000 bytes/s busy for a tenth and four tenths of their time.
    sends = 1 - 0.6 / two["slowdown"]["value"]
    assert one["slowdown"]["value"] == pytest.approx(0.9 + 0.1 / (1 - sends / 2), abs=1e-5)
    assert one["slowdown"]["high"] == pytest.approx(1.1)
    (other,) = one["with"]
    assert (other["file"], other["n_links"]) == ("two.h5", [0, 2])
    ends = [(link["level"], link["link"], link["way"], link["bytes"]) for link in other["links"]]
    assert sorted(ends) == [(1, 0, "up", 1000), (1, 1, "down", 1000)]
    assert two["with"][0]["links"][0]["bytes"] == 4000


@pytest.mark.parametrize("way", [(), ("--placement", "F1"), ("--placement", "RF")])
def test_jobs_that_run_together_get_hosts_of_their_own(network, way):
    """By default each has a switch; on F1 both have a host on each of both switches."""
    found = network("one.h5", "two.h5", "--topology", "XGFT(2;2,2;1,1)", *way)
    assert [case["n_hosts"] for case in found["cases"]] == [2, 2]
    n_jobs = [job["n_sharing_jobs"] for job in found["sharing"]]
    assert n_jobs[0][0] == n_jobs[1][0] == 0, "no host's link is shared"
    shared = {(): 0, ("--placement", "F1"): 1}.get(way, n_jobs[0][1])
    assert [n[1] for n in n_jobs] == [shared, shared]


def test_jobs_on_one_host_are_refused_and_full_trees_too(files, capsys):
    assert main(["network", "one.h5", "two.h5", "--topology", "topology.conf"]) == 2
    said = capsys.readouterr().err
    assert "jobs 1 and 2 both have ranks on host n0" in said and "--placement" in said
    argv = ["network", "one.h5", "two.h5", "--topology", "XGFT(1;3;1)", "--placement", "RF"]
    assert main(argv) == 3
    assert "need 2 hosts, but XGFT(1;3;1) has 1 free" in capsys.readouterr().err


def test_that_sharing_is_not_told_is_told(files, capsys):
    argv = ["network", "one.h5", "two.h5", "--topology", "XGFT(2;4,2;1,2)", "--slimming", "1,2", "--json"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["sharing"] is None
    assert (
        "each job has 2 combinations of placement and slimming: give only one to see which links jobs share"
        in err
    )


def test_hosts_that_are_free_ports_are_not_used(network, folder, capsys):
    """The first switch has one host and three free ports."""
    (folder / "gaps.conf").write_text(
        "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n[4-7]\nSwitchName=top Switches=a,b\n"
    )
    (case,) = network("one.h5", "--topology", "gaps.conf", "--placement", "F2")["cases"]
    assert case["levels"][1]["sent_bytes"] == 0, "both on the switch that has two"
    for seed in range(5):
        argv = ["--placement", "RF", "--seed", str(seed)]
        (case,) = network("one.h5", "--topology", "gaps.conf", *argv)["cases"]
        assert case["n_hosts"] == 2
    assert main(["network", "one.h5", "--topology", "gaps.conf", "--placement", "numbers"]) == 3
    assert "numbers, line 1: rank 0 is on host 2, but this is a free port" in capsys.readouterr().err


def test_what_is_missing_or_assumed_is_marked(files, capsys):
    hdf5.write(replace(profile("4", 1000), partial=True), "partial.h5")
    argv = ["network", "partial.h5", "--topology", "topology.conf"]
    assert main([*argv, "--json"]) == 0
    out, err = capsys.readouterr()
    (case,) = json.loads(out)["cases"]
    assert (case["partial"], case["dropped_bytes"], case["assumed_levels"]) == (True, 999, [0, 1])
    assert "999 bytes to or from unknown ranks" in err
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "job 4 (partial)" in said and "999 B to or from unknown ranks" in said
    assert "Assumed (set --link-rate): links of 10 Gbit/s on L0, L1." in said
    assert "Assumed (set --up-links): one link up from each switch, XGFT(2;4,2;1,1)." in said
    assert case["assumes_up_links"]
    assert main([*argv, "--link-rate", "10Gbit/s", "--up-links", "1,2"]) == 0
    assert "Assumed" not in capsys.readouterr().out


def test_hosts_that_are_named_by_numbers_are_found_by_their_names(network, folder):
    (folder / "numbered.yaml").write_text("topology: XGFT(2;4,2;1,2)\nhosts: ['[1-8]']\n")
    (folder / "ranks").write_text("4 5\n")
    (case,) = network("one.h5", "--topology", "numbered.yaml", "--placement", "ranks")["cases"]
    assert case["levels"][1]["sent_bytes"] > 0
    (folder / "ranks").write_text("3 4\n")
    (case,) = network("one.h5", "--topology", "numbered.yaml", "--placement", "ranks")["cases"]
    assert case["levels"][1]["sent_bytes"] == 0


def test_a_duration_that_gives_no_rate_is_refused(files, capsys):
    argv = ["network", "one.h5", "--topology", "XGFT(2;4,2;1,2)", "--duration-s", "1e-320", "--json"]
    assert main(argv) == 3
    assert "give no finite rate" in capsys.readouterr().err


def test_a_rate_for_each_level_of_a_file(network):
    argv = ["one.h5", "--topology", "topology.conf", "--link-rate", "8kbit/s,16kbit/s"]
    (case,) = network(*argv)["cases"]
    assert case["capacity_bps"] == [1000, 2000]


def test_a_file_may_be_called_like_a_topology(network, folder, capsys):
    (folder / "xgft.yaml").write_text("topology: XGFT(2;4,2;1,2)\nlink_rate: 8kbit/s\n")
    (case,) = network("one.h5", "--topology", "xgft.yaml")["cases"]
    assert (case["topology"], case["assumed_levels"]) == ("XGFT(2;4,2;1,2)", [])
    assert main(["network", "one.h5", "--topology", "xgft.yaml", "--link-rate", "16kbit/s"]) == 0
    assert "the rates of links in the file count, not --link-rate" in capsys.readouterr().err


@pytest.mark.parametrize("topology", ["XGFT(1;2000000000;1)", "XGFT(2;2,2;1,1) --slimming 999999999"])
def test_huge_trees_are_refused_before_they_take_memory(files, capsys, topology):
    tracemalloc.start()
    try:
        assert main(["network", "one.h5", "--topology", *topology.split(" ")]) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = capsys.readouterr().err
    assert "links" in said and said.count("\n") == 1
    assert peak < 1 << 26


@pytest.mark.parametrize(("i_node", "n_nodes"), [([0, -1], 2), ([0, 5], 2), ([0, 0], 0)])
def test_ranks_whose_node_is_not_known_have_no_place(files, capsys, i_node, n_nodes):
    made = profile("5", 1000)
    ranks, nodes = made.tables["ranks"].copy(), made.tables["nodes"][:n_nodes]
    ranks["i_node"] = i_node
    hdf5.write(replace(made, tables={**made.tables, "ranks": ranks, "nodes": nodes}), "lost.h5")
    assert main(["network", "lost.h5", "--topology", "topology.conf"]) == 3
    assert f"has the nodes of only {min(1, n_nodes)} of 2 ranks: give --placement" in capsys.readouterr().err


def test_bursts(network):
    (case,) = network("one.h5", "--topology", "topology.conf", "--window-s", "1")["cases"]
    rates = [500, 0, 250, 250]
    assert case["windows"]["injection_bps"] == [[rate, rate] for rate in rates]
    assert case["windows"]["in_transit_bytes"] == [250, 0, 500, 500]


def test_tables(files, capsys):
    apart = ["--placement", "run", "--placement", "numbers"]
    assert (
        main(["network", "one.h5", "two.h5", "--topology", "topology.conf", "--window-s", "1", *apart]) == 0
    )
    said = capsys.readouterr().out
    assert "s1-0 to s2-0" in said and "1, 2" in said
    assert "job 1: XGFT(2;4,2;1,1), run, demand low" in said
    assert "links shared" in said and "1000 B" in said and "3.906 KiB" in said
    assert "500 B/s" in said and "1.953 KiB/s" in said
    assert "Slowdowns: if jobs wait for their most loaded link" in said


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--topology", "nowhere"], 2, "'nowhere' cannot be read"),
        (["--topology", "XGFT(2;4;1)"], 2, "h is 2, but there are 1 numbers m"),
        (["--topology", "XGFT(1;2147483647;1)", "--placement", "F9"], 3, "too many to compute their loads"),
        (["--topology", "hosts"], 3, "describes no topology"),
        (["--topology", "XGFT(2;4,2;1,2)", "--placement", "G8"], 2, "is unknown: give Fk (like F8), RF"),
        (["--topology", "XGFT(2;4,2;1,2)", "--placement", "F5"], 2, "has 4 hosts on a first-level switch"),
        (["--topology", "XGFT(2;4,2;1,2)", "--placement", "run"], 3, "its hosts have no names"),
        (["--topology", "XGFT(2;4,2;1,2)", "--placement", "hosts"], 3, "its hosts have no names"),
        (["--topology", "XGFT(1;4;1)", "--placement", "numbers"], 3, "rank 1 is on host 5"),
        (["--topology", "topology.conf", "--placement", "topology.conf"], 3, "hosts for 2 ranks"),
        (["--topology", "XGFT(2;4,2;1,2)", "--link-rate", "10"], 2, "link rate '10' is not a rate"),
        (["--topology", "XGFT(2;4,2;1,2)", "--link-rate", "1bit,1bit,1bit"], 2, "one number per level"),
        (["--topology", "XGFT(2;4,2;1,2)", "--slimming", "0"], 2, "--slimming must be whole numbers above 0"),
        (["--topology", "XGFT(2;4,2;1,2)", "--ranks-per-host", "x"], 2, "--ranks-per-host must be"),
        (["--topology", "XGFT(2;4,2;1,2)", "--ranks-per-host", "1,2"], 2, "must be a whole number of"),
        (["--topology", "topology.conf", "--link-rate", "1bit,1bit,1bit"], 2, "3 link rates for a network"),
        (["--topology", "XGFT(2;4,2;1,2)", "--seed", "-1"], 2, "--seed"),
        (["--topology", "XGFT(2;4,2;1,2)", "--window-s", "x"], 2, "--window-s must be a number above 0"),
        (["--topology", "XGFT(2;4,2;1,2)", "--window-s", "1e-9"], 3, "more than 1000000 windows"),
        (["--topology", "XGFT(2;4,2;1,2)", "--duration-s", "0"], 2, "--duration-s must be a number above 0"),
        (["--topology", "XGFT(2;4,2;1,2)", "--routing", "ftree"], 2, "routing must be d-mod-k"),
        (["--topology", "topology.conf", "--up-links", "1"], 2, "up-links 1 do not fit"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(files, capsys, argv, code, words):
    assert main(["network", "one.h5", *argv]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_placements_are_given_once_or_for_each_profile(files, capsys):
    flags = ["--placement", "F1"] * 3
    assert main(["network", "one.h5", "two.h5", "--topology", "XGFT(2;4,2;1,2)", *flags]) == 2
    assert "once, or once for each of the 2 profiles, got 3" in capsys.readouterr().err


def test_hosts_that_the_cluster_does_not_have(files, capsys):
    hdf5.write(profile("3", 1000, ("n0", "x1")), "three.h5")
    assert main(["network", "three.h5", "--topology", "topology.conf"]) == 3
    assert "rank 1 is on host 'x1', unknown to the topology" in capsys.readouterr().err
