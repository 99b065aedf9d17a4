"""`mpicoloc qos` as a user calls it."""

import json
import stat
from dataclasses import replace

import network_files
import pytest
from json_output import documented, keys

from mpicoloc.cli.main import main
from mpicoloc.core.profile import table
from mpicoloc.profile import hdf5

FABRIC = ("--topology", "topology.conf", "--link-rate", "8kbit/s", "--up-links", "1,2")
APART = ("--placement", "run", "--placement", "hosts")


def in_slurm(made, name, user="ann"):
    return replace(made, job=replace(made.job, batch_name=name, user=user))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two jobs that share links, the second with four times the bytes, as runs in Slurm of ann."""
    folder = tmp_path_factory.mktemp("qos")
    network_files.write(folder)
    for name, n_bytes in (("one", 1000), ("two", 4000)):
        made = network_files.profile(name, n_bytes)
        hdf5.write(in_slurm(made, f"job-{name}"), folder / f"{name}.h5")
    hdf5.write(network_files.profile("nameless", 500), folder / "nameless.h5")
    return folder


@pytest.fixture
def qos(folder, monkeypatch, capsys):
    """Exit code, standard output and error of a call on both jobs."""
    monkeypatch.chdir(folder)

    def call(*flags, files=("one.h5", "two.h5"), placed=APART):
        code = main(["qos", *files, *FABRIC, *placed, *flags])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_keys_are_the_documented_ones(qos):
    code, out, _ = qos("--json")
    assert code == 0
    found, wanted = json.loads(out), documented("qos")
    assert found["search"] is None
    del wanted["search"], found["search"]
    for part in ("lanes", "jobs"):
        assert [keys(row) for row in found[part][:1]] == [keys(row) for row in wanted[part]]
    assert found.keys() == wanted.keys() and found["ports"].keys() == wanted["ports"].keys()
    assert len(found["lane_of_level"]) == 16


def test_the_job_that_sends_less_may_send_more_in_its_turn_and_is_told_what_to_set(qos):
    found = json.loads(qos("--json")[1])
    one, two = found["jobs"]
    assert (one["lane"], two["lane"]) == (1, 0)
    assert two["demand_frac"] == pytest.approx(4 * one["demand_frac"])
    assert [lane["weight_packets"] for lane in found["lanes"]] == [1, 4]
    assert found["low_rows"] == [[0, 64], [1, 255]] and found["high_rows"] == []
    assert one["meets"] == ["two"] and one["environment"]["UCX_IB_SL"] == "1"
    assert (found["n_operational"], found["ports"]["n_lanes"]) == (2, 4)
    table = qos()[1]
    for words in (
        "VL0",
        "UCX_IB_SL=1",
        "OMPI_MCA_btl_openib_ib_service_level",
        "2 of 4 lanes",
        "not simulated",
    ):
        assert words in table


def test_lanes_and_weights_may_be_given(qos):
    flags = ("--assign", "2,1", "--weights", "1,2,3", "--high", "2", "--high-limit", "8", "--mtu", "2048")
    found = json.loads(qos("--json", *flags)[1])
    assert [job["lane"] for job in found["jobs"]] == [2, 1]
    assert (found["high_rows"], found["low_rows"]) == ([[2, 96]], [[0, 32], [1, 64]])
    assert found["high_limit"] == 8 and found["lanes"][0]["jobs"] == []
    kept = json.loads(qos("--json", "--keep-lane-0")[1])
    assert [job["lane"] for job in kept["jobs"]] == [2, 1]


def test_files_for_opensm_and_slurm_are_written_for_all_to_read(qos, folder):
    code, _, err = qos("--opensm", "new/opensm", "--slurm", "levels")
    assert code == 0 and "variables of 2 jobs in levels" in err
    assert "qos_sl2vl 0,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n" in (folder / "new/opensm/opensm.conf").read_text()
    assert "lane1=0x1001,ipoib,sl=1," in (folder / "new/opensm/partitions.conf").read_text()
    path = folder / "levels/ann/job-one"
    assert path.read_text().splitlines()[0] == "UCX_IB_SL=1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["job-one", "job-two"], "nothing else stays"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--lanes", "6"), 2, "--lanes must be one of 1, 2, 4, 8, 15, as InfiniBand allows, got 6"),
        (("--lanes", "0"), 2, "--lanes must be a whole number of at least 1, got '0'"),
        (("--lanes", "2", "--weights", "1,1,1"), 2, "3 lanes are in use, but the ports have 2: give --lanes"),
        (("--lanes", "2", "--assign", "0,2"), 2, "lanes must be in [0, 1], got [0, 2]"),
        (
            ("--weights", "1,0"),
            2,
            "weight of lane 1 must be at least 1 packet, got 0, because a lane without",
        ),
        (("--weights", "1,x"), 2, "--weights must be a whole number of at least 0, got 'x'"),
        (("--weights", "1,500"), 2, "rows of the arbitration table, but the ports have 8: give smaller"),
        (("--weights", "1"), 2, "lane 1 is not in [0, 0]: give each job a lane that is in use"),
        (("--mtu", "9000"), 2, "--mtu must be one of 256, 512, 1024, 2048, 4096"),
        (("--high", "0,1"), 2, "all lanes have high priority, so none is preferred"),
        (("--high-limit", "256"), 2, "--high-limit must be in [0, 255], got 256"),
        (("--search", "--weights", "1,2"), 2, "--search tries weights and priorities: leave out --weights"),
        (("--search", "--lanes", "1"), 2, "--search needs jobs on different lanes"),
        (("--search", "--goal", "money"), 2, "--goal must be time or slowdown, got 'money'"),
        (("--figures", "f"), 2, "--figures draws what --search finds: give --search too"),
        (("--opensm", "one.h5/x"), 4, "cannot write to one.h5/x: Not a directory; choose another folder"),
    ],
)
def test_bad_input_is_one_line_with_the_remedy(qos, flags, code, words):
    got, out, err = qos(*flags)
    assert (got, out if code == 2 else "") == (code, "")
    assert words in err.splitlines()[-1]


def test_a_job_without_a_name_in_slurm_cannot_be_known_again(qos):
    code, out, err = qos("--slurm", "none", files=("nameless.h5", "two.h5"))
    assert (code, out) == (3, "") and "job nameless: the plugin cannot recognise its name in Slurm, ''" in err


def test_one_name_has_one_level(qos, folder):
    hdf5.write(in_slurm(network_files.profile("more", 300), "job-two"), folder / "more.h5")
    code, out, err = qos("--slurm", "none", files=("more.h5", "two.h5"))
    assert (code, out) == (3, "") and "two profiles of job ann/job-two have service levels 1 and 0" in err
    assert qos("--slurm", "both", "--assign", "0,0", files=("more.h5", "two.h5"))[0] == 0


def test_a_search_needs_every_call_of_the_jobs(qos, folder):
    made = network_files.profile("bare", 1000)
    hdf5.write(replace(made, tables={**made.tables, "events": table("events")}), folder / "bare.h5")
    code, _, err = qos("--search", files=("bare.h5", "two.h5"))
    assert code == 3 and "--trace all" in err


def test_flags_are_checked_before_profiles_are_read(qos):
    code, _, err = qos("--lanes", "6", files=("nowhere.h5", "two.h5"))
    assert code == 2 and "--lanes must be one of" in err
    code, _, err = qos(files=("one.h5",), placed=("--placement", "F1,RF"))
    assert code == 2 and "one for each profile" in err


def test_a_search_refuses_messages_that_nobody_received_and_jobs_that_take_no_time(qos):
    """Both jobs send to a rank of which the trace has no receive."""
    code, _, err = qos("--search")
    assert code == 3 and "one.h5: 2 of 2 messages lack their send or receive" in err
    code, _, err = qos("--search", "--allow-unmatched", "--link-rate", "1Gbit/s")
    assert code == 3 and "job one takes no time alone" in err.splitlines()[-1]
