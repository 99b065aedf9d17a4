"""Exports for the portals of centres: each is read by a parser that is none of ours."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sample
from exports import HOSTILE, job_of
from line_protocol_parser import parse_line

from mpicoloc.cli.main import main
from mpicoloc.core.profile import table
from mpicoloc.measure.processor import run_delay_frac
from mpicoloc.profile import hdf5
from mpicoloc.trace.export.job_metrics import job_metrics

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "read" / "export" / "clustercockpit.md"
END_S = 1_700_000_060
"""Begin and wall time of the sample."""


@pytest.fixture
def export(tmp_path):
    """Function that runs `mpicoloc export` on a profile and returns the text of the file."""

    def run(profile, kind, *flags):
        hdf5.write(profile, tmp_path / "job.h5")
        out = tmp_path / "out"
        assert main(["export", str(tmp_path / "job.h5"), "--format", kind, "--out", str(out), *flags]) == 0
        return out.read_text()

    return run


def on_nodes(**columns):
    """The sample on these nodes."""
    profile = sample.profile()
    return replace(profile, tables={**profile.tables, "nodes": table("nodes", columns)})


def points(text):
    assert text.endswith("\n") and "\n\n" not in text
    return [parse_line(line) for line in text.splitlines()]


def test_each_number_stands_at_each_processor_of_the_job(export):
    profile = on_nodes(hostname=["n1", "n2"], cpus=["0-1,8", "4"])
    found = points(export(profile, "clustercockpit", "--cluster", "fritz"))
    places = {(one["tags"]["hostname"], one["tags"]["type"], one["tags"]["type-id"]) for one in found}
    assert places == {
        ("n1", "hwthread", "0"),
        ("n1", "hwthread", "1"),
        ("n1", "hwthread", "8"),
        ("n2", "hwthread", "4"),
    }
    for one in found:
        assert set(one["tags"]) == {"cluster", "hostname", "jobid", "type", "type-id"}
        assert (one["tags"]["cluster"], one["tags"]["jobid"], one["time"]) == ("fritz", "42", END_S)
        assert set(one["fields"]) == {"value"} and isinstance(one["fields"]["value"], float)
    numbers = {one["measurement"].removeprefix("mpicoloc_"): one["fields"]["value"] for one in found}
    assert len(found) == len(numbers) * len(places)
    slowdown = profile.interference.slowdown
    assert numbers["slowdown"] == slowdown.value and numbers["discount_frac"] == profile.price.discount_frac
    assert (numbers["slowdown_low"], numbers["slowdown_high"]) == (slowdown.low, slowdown.high)
    assert numbers["co_runners"] == 1 and numbers["mpi_frac"] == pytest.approx(0.25)
    assert numbers["run_delay_frac"] == run_delay_frac(117.0, 1.0)


def test_a_node_whose_processors_are_not_known_has_no_id_of_its_own(export):
    """cc-backend looks for a node's numbers at the host, and would not find them below an id."""
    found = points(export(on_nodes(hostname=["n1", "n2", ""], cpus=["", "0,", "1"]), "clustercockpit"))
    assert {tuple(sorted(one["tags"].items())) for one in found} == {
        (("hostname", name), ("jobid", "42"), ("type", "node")) for name in ("n1", "n2")
    }


def test_names_cannot_break_out_of_a_line(export):
    job = job_of(
        HOSTILE, HOSTILE, ranks={"rank": [0]}, nodes={"hostname": [HOSTILE, "back\\"], "cpus": ["0", "0"]}
    )
    for one in points(export(job.profile, "clustercockpit", "--cluster", "a b,c=d\\\n")):
        assert set(one["tags"]) == {"cluster", "hostname", "jobid", "type", "type-id"}
        assert one["tags"]["cluster"] == "a b,c=d/?"
        assert one["tags"]["hostname"] in ("back/", HOSTILE.replace("\\", "/").replace("\n", "?").replace(
            "\t", "?").replace("\u2028", "?"))  # fmt: skip


def test_what_was_not_measured_has_no_line_and_an_unknown_time_is_left_out(export):
    profile = replace(sample.profile(n_shutters=2), price=None, job=sample.job(start_unix_s=0.0))
    text = export(profile, "clustercockpit")
    names = {one["measurement"] for one in points(text)}
    assert "mpicoloc_mpi_frac" in names and not {"mpicoloc_slowdown", "mpicoloc_discount_frac"} & names
    assert all(re.search(r" value=\S+$", line) for line in text.splitlines())
    late = replace(profile, job=sample.job(start_unix_s=1e300))
    assert export(late, "clustercockpit") == text


def test_the_page_shows_a_metric_as_clustercockpit_configures_it():
    """Keys that cluster.schema.json of cc-lib wants of each metric; all metrics are on the page."""
    page = PAGE.read_text()
    shown = json.loads(re.search(r"```json\n(.*?)```", page, re.S)[1])
    required = {"name", "unit", "scope", "timestep", "aggregation", "peak", "normal", "caution", "alert"}
    optional = {"footprint", "tooltip", "energy", "lowerIsBetter", "restrict", "subClusters"}
    assert required <= set(shown) <= required | optional
    assert (shown["unit"], shown["scope"], shown["aggregation"]) == ({"base": ""}, "hwthread", "avg")
    names = {f"mpicoloc_{name}" for name in job_metrics(sample.profile())}
    assert names == {
        name for row in re.findall(r"^\| (`mpicoloc_.*?) \|", page, re.M) for name in re.findall(r"\w+", row)
    }


def at(document, path):
    """A value as XDMoD's dataset maps refer to it."""
    for name in path.split("."):
        document = document[name]
    return document


def test_a_job_summary_of_xdmod_is_one_line_with_what_its_dataset_map_refers_to(export):
    profile = sample.profile()
    text = export(profile, "xdmod")
    assert text.count("\n") == 1 and text.endswith("\n")
    found = json.loads(text, parse_constant=pytest.fail)
    expected = {
        "_id": f"42-{END_S}", "acct.id": "42", "acct.local_job_id": 42, "acct.nodes": 1, "acct.ncpus": 2,
        "acct.host_list": ["n1"], "acct.start_time": END_S - 60, "acct.end_time": END_S, "acct.user": None,
        "procDump.constrained": ["lmp"], "shared": True, "summarization.complete": True,
        "mpicoloc.slowdown.avg": profile.interference.slowdown.value, "mpicoloc.co_runners.cnt": 1,
    }  # fmt: skip
    assert {path: at(found, path) for path in expected} == expected
    assert set(found["mpicoloc"]) == set(job_metrics(profile))


def test_a_summary_says_what_is_not_known(export):
    profile = replace(sample.profile(n_shutters=2, shared_s=0.0), price=None, partial=True)
    job = sample.job(id="é7.0", command="", start_unix_s=0.0)
    found = json.loads(export(replace(profile, job=job), "xdmod"))
    assert at(found, "mpicoloc.discount_frac") == {"error": 3} and not at(found, "summarization.complete")
    assert found["_id"] == "é7.0-unknown" and found["acct"]["local_job_id"] == "é7.0"
    assert not {"start_time", "end_time"} & set(found["acct"]) and found["procDump"]["constrained"] == []
    for job_id in ("7.3", "7-20311", "7"):
        acct = json.loads(export(replace(profile, job=sample.job(id=job_id)), "xdmod"))["acct"]
        assert (acct["id"], acct["local_job_id"]) == ("7", 7)


def test_numbers_that_no_portal_reads_are_left_out():
    found = replace(sample.profile().interference, overhead_frac=np.inf, foreign_delay_frac=np.nan)
    values = job_metrics(replace(sample.profile(), interference=found))
    assert values["overhead_frac"] is None and values["foreign_delay_frac"] is None


def test_what_is_wrong_is_told_in_one_line(tmp_path, capsys):
    hdf5.write(on_nodes(hostname=[]), tmp_path / "job.h5")
    call = ["export", str(tmp_path / "job.h5"), "--out", str(tmp_path / "out"), "--format"]
    assert main([*call, "clustercockpit"]) == 3
    assert main([*call, "xdmod", "--cluster", "fritz"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert (
        "names no host" in first and "--cluster applies only to --format clustercockpit, got xdmod" in second
    )
    assert not (tmp_path / "out").exists()
