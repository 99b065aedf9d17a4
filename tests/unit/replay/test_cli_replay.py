"""mpicoloc replay: times of patterns in closed form, JSON, and every wrong call in one line."""

import json
import re
from collections import Counter

import network_files
import pandas
import pytest
from json_output import documented, keys

from mpicoloc.cli.main import main
from mpicoloc.profile import hdf5
from mpicoloc.replay import verb

TREE = ("--topology", "XGFT(2;4,4;1,2)", "--link-rate", "8Gbit/s")
LINK_BPS = 1e9
HALO = ("--pattern", "halo", "--hosts", 4, "--bytes", 1)


def replay(capsys, *words, code=0):
    """Standard output and error of one call."""
    assert main(["replay", *map(str, words)]) == code
    return capsys.readouterr()


def as_json(capsys, *words):
    return json.loads(replay(capsys, *words, "--json").out)


def told(capsys, code, *words):
    """The one line of an error."""
    lines = [line for line in replay(capsys, *words, code=code).err.splitlines() if line]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture
def trace(tmp_path):
    """Writes a trace of SimGrid; each line is of the rank that it begins with."""

    def write(text, name="trace.ti"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_an_incast_takes_the_time_of_the_last_link(capsys):
    n_bytes = 1 << 20
    found = as_json(capsys, "--pattern", "incast", "--hosts", 8, "--bytes", n_bytes, *TREE)
    (job,) = found["jobs"]
    assert set(job) >= {"name", "t_base_s", "t_alone_s", "t_sharing_s", "t_intra_s", "t_inter_s"}
    assert job["t_alone_s"] == pytest.approx(7 * n_bytes / LINK_BPS, rel=0.01)
    assert job["t_sharing_s"] == job["t_alone_s"]
    n_packets = n_bytes // 2048
    assert n_packets * (3 * 2 + 4 * 4) <= found["n_packet_hops"] <= 1.01 * n_packets * (3 * 2 + 4 * 4)
    assert found["wall_s"] > 0


@pytest.mark.parametrize(("up_links", "n_times"), [(4, 1), (2, 2), (1, 4)])
def test_a_shift_over_slimmed_up_links_shares_them(capsys, up_links, n_times):
    tree = ("--topology", f"XGFT(2;4,4;1,{up_links})", "--link-rate", "8Gbit/s")
    found = as_json(capsys, "--pattern", "shift:4", "--hosts", 16, "--bytes", 1 << 20, *tree)
    job = found["jobs"][0]
    assert job["t_base_s"] == pytest.approx((1 << 20) / LINK_BPS, rel=0.01)
    assert job["t_alone_s"] == pytest.approx(n_times * job["t_base_s"], rel=0.02)
    assert job["t_intra_s"] == job["t_alone_s"] - job["t_base_s"]


def test_two_jobs_share_an_up_link(capsys, trace):
    text = "0 init\n1 init\n0 send 1 0 1048576 6\n1 recv 0 0 1048576 6\n"
    one, two = trace(text, "one"), trace(text, "two")
    hosts = [trace(f"{i} {i + 4}\n", f"hosts-{i}") for i in range(2)]
    words = (one, two, "--placement", hosts[0], "--placement", hosts[1])
    tree = ("--topology", "XGFT(2;4,2;1,1)", "--link-rate", "8Gbit/s")
    found = as_json(capsys, *words, *tree)
    for job in found["jobs"]:
        assert job["slowdown"] == pytest.approx(2, rel=0.02)
        assert job["t_inter_s"] == job["t_sharing_s"] - job["t_alone_s"]
    assert found["j_inter_host_s"] == pytest.approx(sum(2 * job["t_inter_s"] for job in found["jobs"]))
    assert found["total_contention_s"] == pytest.approx(sum(job["t_inter_s"] for job in found["jobs"]))
    assert found["blocked_by_s"][0][1] > 0
    terms = found["terms"][0]
    waits_s = terms["behind_sent_s"] + terms["behind_queued_s"] + terms["blocked_s"]
    assert waits_s == pytest.approx(sum(found["blocked_by_s"][0]))
    before = trace(json.dumps(found), "before.json")
    own_lanes = as_json(capsys, *words, *tree, "--lane", "0,1", "--weights", "3,1", "--against", before,
                        "--host-gflops", 2)  # fmt: skip
    assert found["lost_gflop"] is None and own_lanes["lost_gflop"] == 2 * own_lanes["j_inter_host_s"]
    first, second = own_lanes["jobs"]
    assert own_lanes["efficiency"] == found["j_inter_host_s"] / own_lanes["j_inter_host_s"]
    # The first one starts again and again, so the second one never has more than its lane's part.
    slowdowns = (first["slowdown"], second["slowdown"])
    assert slowdowns == (pytest.approx(4 / 3, rel=0.03), pytest.approx(4, rel=0.03))


def test_slow_hosts_stretch_a_job(capsys, trace):
    text = "".join(f"{rank} init\n{rank} compute 1e6\n{rank} barrier\n" for rank in range(4))
    path = trace(text)
    alone, slow = (
        as_json(capsys, path, *TREE, *more)["jobs"][0]["t_alone_s"] for more in ((), ("--stretch", "1:3"))
    )
    assert slow - alone == pytest.approx(2e-3, rel=0.01)
    faster = as_json(capsys, path, *TREE, "--cpu-speed", 10)["jobs"][0]["t_alone_s"]
    assert alone - faster == pytest.approx(0.9e-3, rel=0.01)


def test_the_table_names_jobs_and_times(capsys, trace):
    path = trace("0 init\n1 init\n0 send 1 0 1000 6\n1 recv 0 0 1000 6\n", "ring")
    out = replay(capsys, path, path, *TREE, "--no-base").out
    assert "ring-2" in out and "T_sharing" in out and "behind ring" in out and "packet-hops" in out


def test_results_are_written(capsys, tmp_path):
    """Tables that add up, pictures with their data, and traces of every call."""
    words = ("--pattern", "halo", "--hosts", 8, "--bytes", 65536, "--times", 5, *TREE)
    files = ("--out", tmp_path / "tables", "--figures", tmp_path / "pictures", "--format", "csv")
    traces = ("--perfetto", tmp_path / "run.json", "--paraver", tmp_path / "run.prv")
    found = as_json(capsys, *words, *files, *traces)
    wanted = documented("replay")
    assert found.keys() == wanted.keys()
    for part in ("jobs", "waits"):
        assert keys(found[part][0]) == keys(wanted[part][0])
    tables = {path.stem: pandas.read_parquet(path) for path in (tmp_path / "tables").iterdir()}
    assert tables.keys() == {"jobs", "ranks", "links", "windows", "waits", "blocked"}
    assert tables["jobs"]["sharing_s"].tolist() == [found["jobs"][0]["t_sharing_s"]]
    assert tables["windows"]["sent_bytes"].sum() == tables["links"]["sent_bytes"].sum() > 8 * 5 * 6 * 65536
    assert tables["ranks"]["end_s"].max() == found["jobs"][0]["t_sharing_s"]
    pictures = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert pictures == {"contention.csv", "links.csv", "ranks.csv"}
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    calls = [event["name"] for event in events if event["ph"] == "X" and event["cat"] == "mpi"]
    assert calls.count("MPI_Isend") == calls.count("MPI_Irecv") == 8 * 5 * 6
    arrows = [event for event in events if event["ph"] == "s"]
    assert len(arrows) == 8 * 5 * 6
    last_s = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") * 1e-6
    assert last_s == pytest.approx(found["jobs"][0]["t_sharing_s"], abs=2e-9)
    messages = [line for line in (tmp_path / "run.prv").read_text().splitlines() if line.startswith("3:")]
    assert len(messages) == 8 * 5 * 6


def test_collectives_are_shown_as_the_calls_that_they_are(capsys, trace, tmp_path):
    lines = "0 allreduce 80000 0 6\n1 allreduce 80000 0 6\n0 send 1 0 9 6\n1 recv 0 0 9 6\n" * 2
    path = trace("0 init\n1 init\n" + lines + "0 barrier\n1 barrier\n", "two")
    files = ("--perfetto", tmp_path / "run.json", "--figures", tmp_path / "p", "--format", "csv")
    as_json(capsys, path, *TREE, *files)
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X" and event["cat"] == "mpi"]
    names = Counter(event["name"] for event in calls)
    assert names == {"MPI_Allreduce": 4, "MPI_Barrier": 2, "MPI_Send": 2, "MPI_Recv": 2}
    assert {event["args"]["bytes"] for event in calls if event["name"] == "MPI_Allreduce"} == {80000}
    assert len([event for event in events if event["ph"] == "s"]) == 2, "arrows of messages only"
    assert {row.split(",")[2] for row in (tmp_path / "p/ranks.csv").read_text().splitlines()[1:]} <= set(
        names
    )


def test_exchanges_are_one_call_with_arrows_of_their_messages(capsys, trace, tmp_path):
    lines = "0 sendrecv 4000 1 700 1 6 6\n1 sendrecv 700 0 4000 0 6 6\n0 send 1 0 9 6\n1 recv 0 0 9 6\n" * 2
    path = trace("0 init\n1 init\n" + lines + "0 allreduce 800 0 6\n1 allreduce 800 0 6\n", "two")
    files = ("--perfetto", tmp_path / "run.json", "--figures", tmp_path / "p", "--format", "csv")
    as_json(capsys, path, *TREE, *files)
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X" and event["cat"] == "mpi"]
    names = Counter(event["name"] for event in calls)
    assert names == {"MPI_Sendrecv": 4, "MPI_Send": 2, "MPI_Recv": 2, "MPI_Allreduce": 2}
    told = [event["args"] for event in calls if event["name"] == "MPI_Sendrecv"]
    assert Counter(one["bytes"] for one in told) == {4000: 2, 700: 2}
    assert {event["args"]["bytes"] for event in calls if event["name"] == "MPI_Allreduce"} == {800}
    assert len([event for event in events if event["ph"] == "s"]) == 6
    for row in (tmp_path / "p/ranks.csv").read_text().splitlines()[1:]:
        assert row.split(",")[2] in names


def test_two_jobs_are_written_as_ranks_of_one_trace(capsys, trace, tmp_path):
    path = trace("0 init\n1 init\n0 send 1 0 100000 6\n1 recv 0 0 100000 6\n", "pair")
    as_json(capsys, path, path, *TREE, "--paraver", tmp_path / "run.prv")
    lines = (tmp_path / "run.prv").read_text().splitlines()
    messages = [line.split(":") for line in lines if line[:2] == "3:"]
    assert sorted((int(words[3]), int(words[9])) for words in messages) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ((), 2, "give profiles of jobs, or --pattern"),
        (("--pattern", "incast"), 2, "needs --hosts N and --bytes B"),
        (("--pattern", "incast", "--hosts", 17, "--bytes", 1), 3, "17 ranks need 17 hosts"),
        (("--pattern", "spin", "--hosts", 4, "--bytes", 1), 2, "--pattern must be incast"),
        ((*HALO, "--bytes", "many"), 2, "--bytes must be a number of bytes"),
        ((*HALO, "--buffer", 0), 2, "buffer of lane 0 has 0 bytes"),
        ((*HALO, "--lane", 1, "--weights", "1,0"), 2,
         "--weights must be a whole number of at least 1, got '0'"),
        ((*HALO, "--weights", "1,1", "--lanes", 3), 2, "2 weights for 3 lanes"),
        ((*HALO, "--lane", "0,1"), 2, "2 lanes for 1 job:"),
        ((*HALO, "--routing", "best"), 2, "routing must be one of"),
        ((*HALO, "--failed", "0:0"), 3, "cannot reach"),
        ((*HALO, "--placement", "run"), 2, "its hosts|--placement run"),
        ((*HALO, "--stretch", "9:2"), 2, "--stretch 9:2: job halo has 4 hosts: give J from 0 to 4"),
        ((*HALO, "--stretch", "2"), 2, "--stretch 2: give it as J:X"),
        ((*HALO, "--failed", "abc"), 2, "--failed abc: give it as LEVEL:LINK"),
        ((*HALO, "--failed", "0:99"), 2, "--failed 0:99: .* has links 0 to 15 on level 0"),
        ((*HALO, "--failed", "9:0"), 2, "--failed 9:0: .* has links on levels 0 to 1"),
        ((*HALO, "--input-speedup", "0.5"), 2, "--input-speedup must be at least 1"),
        ((*HALO, "--input-speedup", "inf"), 2, "--input-speedup must be a number above 0"),
        ((*HALO, "--mtu", 0), 2, "--mtu must be at least 1, got 0"),
        ((*HALO, "--mtu", "2GB"), 2, "--mtu must be at most 1,048,576, got 2GB"),
        ((*HALO, "--lane", 2, "--lanes", 2), 2, "--lane 2: the 2 lanes are 0 to 1"),
        ((*HALO, "--lanes", 300), 2, "--lanes must be a whole number of at most 16"),
        ((*HALO, "--cable-latency-s", "1e9"), 2, "--cable-latency-s must be at most 1 s, got 1e9"),
        ((*HALO, "--times", 10**12), 2, "--times must be a whole number of at most 2147483647"),
        ((*HALO, "--hosts", 10**12), 2, "--hosts must be a whole number of at most 16777216"),
        ((*HALO, "--bytes", 0), 2, "--bytes must be at least 1, got 0"),
        ((*HALO, "--bytes", "9999999GiB"), 2, "--bytes must be at most"),
        ((*HALO, "--pattern", "uniform:1", "--times", 10**8), 2, "give a smaller --times or --hosts"),
        ((*HALO, "--flops", "1e9"), 2, "--flops applies only to profiles and traces"),
        ((*HALO, "--cpu-speed", "2"), 2, "--cpu-speed applies only to profiles and traces"),
        ((*HALO, "--algorithm", "bcast=openmpi-6"), 2, "--algorithm applies only to profiles and traces"),
        (("a.h5", "--bytes", "1"), 2, "--bytes applies only to --pattern, which"),
        (("a.h5", "--hosts", "1"), 2, "--hosts applies only to --pattern"),
        (("a.h5", "--times", "1"), 2, "--times applies only to --pattern"),
        (("a.h5", "--algorithm", "allreduce"), 2, "--algorithm allreduce: give it as NAME=A"),
        (("a.h5", "--algorithm", "fly=1"), 2, "fly=1: collectives with algorithms are allgather, "),
        (("a.h5", "--algorithm", "bcast=fast"), 2, "bcast=fast: algorithms of bcast are .*openmpi-6"),
        (("a.goal", "--pattern", "shift:1"), 2, "profiles or --pattern, not both: got a.goal and shift:1"),
        (("a.h5", "--from-s", "2", "--until-s", "2"), 2, "--until-s must be above --from-s, which is 2"),
        (("nowhere.h5",), 3, "cannot read nowhere.h5"),
        ((*HALO, "--against", "no.json"), 2, "--against no.json cannot"),
        ((*HALO, "--high-limit", "3"), 2, "add --high"),
        ((*HALO, "--high", "4", "--lanes", "2"), 2, "--high 4: the 2 lanes"),
        ((*HALO, "--high", "0", "--high-limit", "256"), 2, "--high-limit must be a whole number"),
        ((*HALO, "--tables", "x"), 2, "ibnetdiscover"),
        ((*HALO, "--flit", "0"), 2, "--flit"),
        ((*HALO, "--local-rate", "3"), 2, "rate"),
        ((*HALO, "--cable-latency-s", "1e-9,1e-9,1e-9"), 2, "3 cable latencies for 2 levels"),
        ((".",), 3, "has neither trace.txt"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(capsys, monkeypatch, tmp_path, words, code, line):
    monkeypatch.chdir(tmp_path)
    assert re.search(line, told(capsys, code, *words, *TREE))


def test_a_send_that_nobody_receives_is_told_with_its_rank_and_time(capsys, trace):
    line = told(capsys, 3, trace("0 init\n1 init\n0 compute 1e6\n0 send 1 7 100 6\n1 compute 1\n"), *TREE)
    assert "rank 0 to rank 1, tag 7, 100 bytes" in line and "0.001" in line and "trace complete" in line


def test_sends_of_a_profile_without_receives_are_refused_unless_left_out(capsys, tmp_path):
    """Half of the job would be replayed, and nobody would notice."""
    hdf5.write(network_files.profile("1", 1000), tmp_path / "one.h5")
    words = (tmp_path / "one.h5", *TREE, "--placement", "F1")
    line = told(capsys, 3, *words)
    assert re.search(r"one.h5: 2 of 2 messages .* of 250 bytes from rank 0 to rank 1 at 5\.0", line)
    assert "--allow-unmatched" in line
    said = replay(capsys, *words, "--allow-unmatched")
    assert "2 of 2 messages are left out" in said.err and "1.000" in said.out


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1]", "is not the output of `mpicoloc replay --json`"),
        ('{"j_inter_host_s": 1}', "is not the output of `mpicoloc replay --json`"),
        ('{"jobs": [{"name": "halo", "n_hosts": 4}], "j_inter_host_s": NaN}', "is not the output of"),
        ('{"jobs": [{"name": "halo", "n_hosts": 4}], "j_inter_host_s": true}', "is not the output of"),
        (
            '{"jobs": [{"name": "halo", "n_hosts": 5}], "j_inter_host_s": 1}',
            r"has the jobs halo \(hosts: 5\), but this replay has halo \(hosts: 4\): give a result",
        ),
        ('{"jobs": [], "j_inter_host_s": 1}', r"has the jobs none, but this replay has halo \(hosts: 4\)"),
    ],
)
def test_a_result_of_other_jobs_is_nothing_to_compare_with(capsys, trace, text, line):
    assert re.search(line, told(capsys, 2, *HALO, *TREE, "--against", trace(text, "before.json")))


def test_ranks_that_wait_for_each_other_are_told(capsys, trace):
    text = "0 init\n1 init\n0 recv 1 0 8 6\n0 send 1 0 8 6\n1 recv 0 0 8 6\n1 send 0 0 8 6\n"
    line = told(capsys, 3, trace(text), *TREE)
    assert "wait for ever" in line and "rank 0 in receive for rank 1" in line


def test_a_trace_lacks_a_file_that_it_names(capsys, trace):
    line = told(capsys, 3, trace("rank-0.txt\n", "trace.txt"), *TREE)
    assert "trace.txt, line 1 names rank-0.txt, which cannot be read: No such file" in line


def test_jobs_of_one_name_get_names_that_no_other_has(capsys, trace, tmp_path):
    text = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 5\n}\nrank 1 {\nl1: recv 8b from 0 tag 5\n}\n"
    (tmp_path / "d").mkdir()
    files = [trace(text, name) for name in ("a.goal", "d/a.goal", "a-2.goal", "a-2.goal")]
    found = as_json(capsys, *files, *TREE, "--placement", "F1", "--no-base")
    assert [job["name"] for job in found["jobs"]] == ["a", "a-3", "a-2", "a-2-2"]


def test_a_job_that_does_not_fit_beside_others_is_told_how_many_hosts_are_free(capsys, trace):
    text = "".join(f"{rank} init\n" for rank in range(10))
    line = told(capsys, 3, trace(text, "one"), trace(text, "two"), *TREE, "--placement", "F4")
    assert "10 ranks need 10 hosts, but XGFT(2;4,4;1,2) has 4 free: use fewer ranks" in line


SWEEP = ("--sweep", "slimming", 4, 2, 1, "--sweep", "placement", "F4", "F2,F2", "--processes", 2)
TWO = (*TREE[:1], "XGFT(2;4,4;1,4)", *TREE[2:])


def words_of_jobs(trace):
    text = "0 init\n1 init\n0 send 1 0 1048576 6\n1 recv 0 0 1048576 6\n"
    return trace(text, "one"), trace(text, "two")


@pytest.mark.timeout(120)
def test_a_sweep_has_a_row_for_each_combination_and_makes_none_twice(capsys, trace, tmp_path):
    words = (*words_of_jobs(trace), *TWO, "--out", tmp_path / "sweep", *SWEEP)
    rows = as_json(capsys, *words, "--figures", tmp_path / "pictures", "--format", "csv,svg")
    settings = [(row["settings"]["placement"], row["settings"]["slimming"]) for row in rows]
    assert settings == [(placement, up_links) for placement in ("F4", "F2,F2") for up_links in "421"]
    for row in rows:
        alone = as_json(
            capsys, *words[:2], *TWO, "--slimming", row["settings"]["slimming"],
            *[word for name in row["settings"]["placement"].split(",") for word in ("--placement", name)],
        )  # fmt: skip
        assert row["jobs"] == alone["jobs"]
    table = pandas.read_parquet(tmp_path / "sweep" / "sweep.parquet")
    assert table["t_sharing_s"].tolist() == [job["t_sharing_s"] for row in rows for job in row["jobs"]]
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"sweep.csv", "sweep.svg"}
    noted = (tmp_path / "sweep" / "rows.jsonl").read_text()
    assert as_json(capsys, *words) == rows
    assert (tmp_path / "sweep" / "rows.jsonl").read_text() == noted
    assert as_json(capsys, *words, "--no-base")[0]["jobs"][0]["t_base_s"] is None
    assert (tmp_path / "sweep" / "rows.jsonl").read_text().startswith(noted), "other flags, other rows"
    out = replay(capsys, *words).out
    assert "slimming" in out and "F2,F2" in out and "T_sharing" in out


@pytest.mark.timeout(120)
def test_jobs_can_be_swept_and_other_contents_are_other_rows(capsys, trace, tmp_path):
    one, two = words_of_jobs(trace)
    words = ("--sweep", "jobs", one, f"{one},{two}", *TWO, "--out", tmp_path / "sweep", "--processes", 1)
    assert [len(row["jobs"]) for row in as_json(capsys, *words)] == [1, 2]
    before = as_json(capsys, *words)[0]["jobs"][0]["t_alone_s"]
    trace(one.read_text().replace("1048576", "2097152"), "one")
    assert as_json(capsys, *words)[0]["jobs"][0]["t_alone_s"] > 1.9 * before


@pytest.mark.timeout(120)
def test_failed_rows_are_reported_and_the_others_simulated(capsys, trace, tmp_path):
    one, two = words_of_jobs(trace)
    waits = trace("0 init\n1 init\n0 recv 1 0 8 6\n1 recv 0 0 8 6\n", "waits")
    words = ("--sweep", "jobs", one, waits, two, *TWO, "--out", tmp_path / "sweep", "--processes", 1)
    done = replay(capsys, *words, "--json", code=1)
    assert [row["settings"]["jobs"] for row in json.loads(done.out)] == [str(one), str(two)]
    assert f"jobs {waits}: " in done.err


@pytest.mark.timeout(120)
def test_a_sweep_of_which_every_row_fails_is_told_in_one_line(capsys, tmp_path):
    words = ("--pattern", "halo", "--hosts", 8, "--bytes", 100, *TWO, "--out", tmp_path / "sweep")
    assert "--mtu must be" in told(capsys, 2, *words, "--sweep", "mtu", 0, "--processes", 1)


@pytest.mark.parametrize(
    ("flag", "values", "what"),
    [
        ("slimming", ("4", "0"), "slimming 0: --slimming must be"),
        ("mtu", ("2048", "0"), "mtu 0: --mtu must be"),
        ("random-state", ("0", "x"), "random-state x: --random-state must be"),
        ("placement", ("F4", "F0"), "placement F0: "),
        ("placement", ("F4", "no-file"), "placement no-file: "),
        ("failed", ("1:0", "7:0"), "failed 7:0: --failed 7:0: "),
        ("topology", ("XGFT(2;4,4;1,4)", "no-file"), "topology no-file: "),
        ("stretch", ("1:2", "1"), "stretch 1: --stretch 1: give it as J:X"),
        ("ranks-per-host", ("1", "0"), "ranks-per-host 0: --ranks-per-host must be"),
        ("algorithm", ("bcast=binomial", "bcast"), "algorithm bcast: --algorithm bcast: give it as NAME=A"),
        ("jobs", ("GIVEN", "no-file"), "jobs no-file: cannot read no-file"),
    ],
)
def test_a_sweep_is_refused_before_its_first_row_for_what_its_last_one_lacks(
    capsys, trace, tmp_path, flag, values, what
):
    job = words_of_jobs(trace)[0]
    jobs = () if flag == "jobs" else (job,)
    tree = TWO[2:] if flag == "topology" else TWO
    words = (*jobs, *tree, "--out", tmp_path / "sweep", "--processes", 1)
    given = [job if value == "GIVEN" else value for value in values]
    assert main(["replay", *map(str, words), "--sweep", flag, *map(str, given)]) in (2, 3)
    line = capsys.readouterr().err
    assert what in line and line.count("\n") == 1
    assert not list(tmp_path.glob("sweep/*"))


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--sweep", "slimming", "1"), "give --out"),
        (("--sweep", "speed", "1", "--out", "x"), "this flag cannot be swept"),
        (("--sweep", "slimming", "--out", "x"), "has no values"),
        (("--sweep", "mtu", "1", "--sweep", "mtu", "2", "--out", "x"), "twice"),
        (("--sweep", "hosts", "4", "--out", "x"), "has a fixed value"),
        (("--sweep", "slimming", "1", "--perfetto", "y", "--out", "x"), "to a single replay"),
        (("--processes", "2"), "only to --sweep"),
    ],
)
def test_a_wrong_sweep_is_told(capsys, tmp_path, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    assert what in told(capsys, 2, "--pattern", "halo", "--hosts", 8, "--bytes", 100, *TWO, *words)
    assert not list(tmp_path.iterdir())


GOAL = "num_ranks 2\nrank 0 {\nsend 65536b to 1 tag 5\n}\nrank 1 {\nrecv 65536b from 0 tag 5\n}\n"


@pytest.mark.parametrize(
    "words",
    [("--algorithm", "bcast=binomial"), ("--flops", "1e9"), ("--allow-unmatched",), ("--until-s", "1")],
)
def test_a_flag_that_changes_no_trace_is_refused(capsys, trace, words):
    path = trace(GOAL, "two.goal")
    assert f"{words[0]} has no effect on" in told(capsys, 2, path, *TREE, *words)
    if words[0] in ("--algorithm", "--flops"):
        both = (path, trace("0 init\n1 init\n0 bcast 8 0\n1 bcast 8 0\n", "other"))
        assert as_json(capsys, *both, *TREE, *words, "--no-base")["n_packets"] > 0


def shared(capsys, trace, *words):
    """Slowdowns of two jobs over one up-link."""
    one, two = words_of_jobs(trace)
    hosts = [word for i in range(2) for word in ("--placement", trace(f"{i} {i + 4}\n", f"hosts-{i}"))]
    tree = ("--topology", "XGFT(2;4,2;1,1)", "--link-rate", "8Gbit/s")
    return [
        job["slowdown"] for job in as_json(capsys, one, two, *hosts, *tree, "--lane", "0,1", *words)["jobs"]
    ]


def test_lanes_of_high_priority_go_first_within_their_limit(capsys, trace):
    """Limit 1: after two packets of 2048 bytes one of the other lane goes."""
    first, second = shared(capsys, trace, "--high", "1")
    assert second == pytest.approx(1, rel=0.02) and first > 1.9
    first, second = shared(capsys, trace, "--high", "1", "--high-limit", "1")
    assert second == pytest.approx(1.5, rel=0.03)
    first, second = shared(capsys, trace, "--high", "1", "--high-limit", "0")
    assert (first, second) == (pytest.approx(2, rel=0.03),) * 2


def test_switches_may_store_and_forward_and_cables_differ(capsys):
    words = ("--pattern", "shift:4", "--hosts", 8, "--bytes", 2048, "--no-base", *TREE)
    times = [
        as_json(capsys, *words, *more)["jobs"][0]["t_alone_s"]
        for more in ((), ("--flit", 2048), ("--cable-latency-s", "25e-9,1025e-9"), ("--voq",))
    ]
    flit_s = (2048 - 256) / LINK_BPS
    assert times[1] - times[0] == pytest.approx(3 * flit_s) and times[3] == times[0]
    assert times[2] - times[0] == pytest.approx(2e-6)


@pytest.mark.parametrize("text", ["vendid=0x2c9\ndevid=0x1b\n", "h0\nh1\n", "---\nlevels: []\n"])
def test_a_file_that_is_no_trace_is_one_file_to_a_sweep(tmp_path, text):
    path = tmp_path / "fabric.txt"
    path.write_text(text)
    first = verb._digest(str(path), {}, is_trace=False)
    path.write_text(text + "more\n")
    assert verb._digest(str(path), {}, is_trace=False) != first
