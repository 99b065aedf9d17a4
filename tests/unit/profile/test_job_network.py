"""A job that knows the topology of its cluster tells in its profile what it did to the network."""

import json
from dataclasses import replace

import pytest
from network_files import SLURM, profile

import mpicoloc
from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate, Network, NetworkLevel
from mpicoloc.errors import DataError
from mpicoloc.profile import bundle, hdf5
from mpicoloc.profile.job_network import on_network


@pytest.fixture
def topology(tmp_path, monkeypatch):
    path = tmp_path / "topology.conf"
    path.write_text(SLURM)
    monkeypatch.setenv("MPICOLOC_TOPOLOGY", str(path))
    monkeypatch.setenv("MPICOLOC_LINK_RATE", "8kbit/s")
    return path


def test_without_a_topology_nothing_is_told():
    made = profile("1", 1000)
    assert on_network(made) is made and made.network is None


def test_the_profile_tells_what_the_job_did_where_it_ran(topology, monkeypatch):
    monkeypatch.setenv("MPICOLOC_UP_LINKS", "1,2")
    found = on_network(profile("1", 1000)).network
    assert (found.topology, found.demand_class, found.n_levels) == ("XGFT(2;4,2;1,2)", "moderate", 2)
    assert found.levels == (NetworkLevel(0, 1000, 500, 2000, 0.25), NetworkLevel(1, 1000, 500, 4000, 0.125))


def test_what_the_traffic_lacks_and_what_is_assumed_are_notes(topology, monkeypatch):
    told = on_network(profile("1", 1000)).notes
    assert any("999 bytes to or from unknown ranks" in note for note in told)
    assert not any("links of" in note for note in told)
    assert any("one uplink per switch is assumed" in note for note in told)
    monkeypatch.delenv("MPICOLOC_LINK_RATE")
    rate = [note for note in on_network(profile("1", 1000)).notes if "links of 10Gbit/s are assumed" in note]
    assert rate and "--link-rate" in rate[0]


@pytest.mark.parametrize(
    ("contents", "words"),
    [(None, "cannot be read"), ("nothing", "describes no topology"), (SLURM.replace("n", "m"), "unknown to")],
)
def test_what_hinders_is_a_note_and_costs_nothing_else(topology, contents, words):
    topology.unlink() if contents is None else topology.write_text(contents)
    made = profile("1", 1000)
    found = on_network(made)
    assert found.network is None and found.job == made.job
    (note,) = set(found.notes) - set(made.notes)
    assert note.startswith("network not derived: ") and words in note


def test_a_file_keeps_it(topology, tmp_path, capsys):
    made = on_network(profile("1", 1000))
    hdf5.write(made, tmp_path / "p.h5")
    assert hdf5.read(tmp_path / "p.h5").network == made.network
    levels = mpicoloc.open(tmp_path / "p.h5").network
    assert levels["sent_bytes"].tolist() == [level.sent_bytes for level in made.network.levels]
    packed = memoryview(b"".join(bundle.pack_profile(made, {})))
    assert bundle.unpack_profile(packed)[0].network == made.network
    assert main(["show", "--json", str(tmp_path / "p.h5")]) == 0
    told = json.loads(capsys.readouterr().out)["network"]
    assert told["topology"] == "XGFT(2;4,2;1,1)" and told["demand_class"] == "moderate"
    assert told["levels"][1] == {
        "level": 1, "sent_bytes": 1000, "injection_bps": 500, "available_bps": 2000, "utilisation_frac": 0.25
    }  # fmt: skip
    assert main(["show", str(tmp_path / "p.h5")]) == 0
    said = capsys.readouterr().out
    assert "XGFT(2;4,2;1,1)" in said and "25.00% of what its hosts can use" in said


def test_a_slowed_job_is_told_by_its_time_alone(topology, tmp_path, capsys):
    made = profile("1", 1000)
    slowed = replace(made.interference, slowdown=Estimate(2.0, 1.9, 2.1, 9, "1", "count"))
    hdf5.write(on_network(replace(made, interference=slowed)), tmp_path / "p.h5")
    assert main(["show", str(tmp_path / "p.h5")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "50.00% of what its hosts can use (25.00% by wall time)" in said
    assert "over 1 s, its wall time of 2 s over its slowdown 2" in said


def test_a_file_that_lacks_a_level_is_damaged(tmp_path):
    network = Network("XGFT(1;2;1)", None, "all", 2, (NetworkLevel(0, 1.0, None, 1.0, None),))
    hdf5.write(replace(profile("1", 1000), network=network), tmp_path / "p.h5")
    with pytest.raises(DataError, match="damaged"):
        hdf5.read(tmp_path / "p.h5")


def test_a_level_whose_rate_is_unknown_is_kept(topology, tmp_path):
    network = on_network(profile("1", 1000)).network
    levels = tuple(replace(level, injection_bps=None, utilisation_frac=None) for level in network.levels)
    network = replace(network, levels=levels, demand_class=None)
    hdf5.write(replace(profile("1", 1000), network=network), tmp_path / "p.h5")
    assert mpicoloc.open(tmp_path / "p.h5").profile.network == network
