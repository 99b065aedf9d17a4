"""`mpicoloc qos --search` on recorded jobs: what the thesis found of lanes and weights holds for them."""

import json

import jobs
import pytest
from json_output import documented, keys

from mpicoloc.cli.main import main

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3 * jobs.LIMIT_S)]
FABRIC = ("--topology", "XGFT(2;8,2;1,1)", "--link-rate", "1Gbit/s", "--placement", "F2")
PROGRAMS = {"heavy": (10, 131072, 500), "light": (60, 8192, 1500)}
"""Both take about as long; the first sends 2.7 times as much."""


@pytest.fixture
def recorded(start, tmp_path, monkeypatch):
    """Profiles of both programs, each with all calls of four ranks."""
    found = jobs.need_mpi("mpich", tmp_path, "exchange.c")
    monkeypatch.setenv("MPICOLOC_TRACE", "all")
    files = []
    for name, words in PROGRAMS.items():
        job = start(found, "wrap", *words, n_ranks=4, name=name)
        assert job.wait() == 0, job.log
        files.append(str(job.out_path))
    return files


def test_own_lanes_help_and_the_sweet_spot_favours_who_sends_less(recorded, capsys, tmp_path):
    """Jokanovic 2014, Figures 5.8 and 5.12. `test_qos_search` has the order of all, with fixed bursts."""
    assert main(["qos", *recorded, *FABRIC, "--search", "--figures", str(tmp_path / "f"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = documented("qos")["search"]
    assert found["search"].keys() == wanted.keys()
    assert keys(found["search"]["trials"][0]).keys() == keys(wanted["trials"][0]).keys()
    assert [job["lane"] for job in found["jobs"]] == [0, 1], "the heavy one on lane 0"
    total_s = {trial["name"]: trial["total_contention_s"] for trial in found["search"]["trials"]}
    assert total_s["1:1"] < total_s["one lane"]
    best = next(trial for trial in found["search"]["trials"] if trial["name"] == found["search"]["best"])
    assert best["weights"][1] > best["weights"][0]
    assert [lane["weight_packets"] for lane in found["lanes"]] == best["weights"], "what is configured"
    rows = (tmp_path / "f" / "contention.csv").read_text().splitlines()
    assert len(rows) == 1 + len(total_s)
