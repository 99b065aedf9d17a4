"""Exports of facts and tables, and what they say when they cannot be made."""

import io
import json
import shutil
import subprocess

import numpy as np
import pytest
from exports import HOSTILE, job_of

from mpicoloc.cli.main import main
from mpicoloc.core.profile import COLUMNS
from mpicoloc.errors import printable
from mpicoloc.profile import hdf5
from mpicoloc.profile.frames import open_profile
from mpicoloc.profile.summary import summary
from mpicoloc.trace.export import verb
from mpicoloc.trace.export.json_file import facts

N_RANKS = 3
TRACED = {
    "ranks": {"rank": range(N_RANKS), "i_node": [0, 0, 1], "n_calls": [2**64 - 1] * 3},
    "nodes": {"hostname": [HOSTILE, "node2"], "clock_bound_s": [np.nan, 1.5]},
    "corunners": {"i_node": [0, 0], "job_id": [HOSTILE, "other"], "overlap_s": [0.5, 0.25]},
    "shutters": {"i_node": [0, 1], "t0_ns": [50, 60], "t1_ns": [55, 70], "verdict": [1, 200]},
    "events": {"rank": [0, 1], "t_ns": [5, 6], "duration_ns": [3, 4], "bytes": [8, 8], "peer": [1, 0],
               "call": ["MPI_Send", "MPI_Recv"]},
}  # fmt: skip


@pytest.fixture
def hostile(tmp_path):
    """The file of a profile whose names try to break out of every format."""
    path = tmp_path / "job.h5"
    hdf5.write(job_of(HOSTILE, HOSTILE, **TRACED).profile, path)
    return path


@pytest.fixture
def untraced(tmp_path):
    path = tmp_path / "untraced.h5"
    hdf5.write(job_of(ranks={"rank": [0, 1]}).profile, path)
    return path


def export(profile, kind, out):
    assert main(["export", str(profile), "--format", kind, "--out", str(out)]) == 0
    return out


def test_json_has_all_facts_and_tables(hostile, tmp_path):
    found = json.loads(export(hostile, "json", tmp_path / "job.json").read_text())
    job = open_profile(hostile)
    assert found["job"]["command"] == job.profile.job.command and "<script>" in found["job"]["command"]
    assert found["job"].items() >= summary(job.profile)["job"].items() and "mode" in found["job"]
    assert {name: len(rows) for name, rows in found["tables"].items()} == {
        name: len(job.table(name)) for name in COLUMNS
    }
    assert [row["clock_bound_s"] for row in found["tables"]["nodes"]] == [None, 1.5]
    assert found["tables"]["ranks"][0]["n_calls"] == 2**64 - 1
    assert found["tables"]["nodes"][0]["hostname"] == job.nodes["hostname"][0]


def test_parquet_has_all_tables(hostile, tmp_path):
    read = pytest.importorskip("pyarrow.parquet").read_table
    out = export(hostile, "parquet", tmp_path / "tables")
    job = open_profile(hostile)
    for name, columns in COLUMNS.items():
        table = read(out / f"{name}.parquet")
        assert table.column_names == [column.name for column in columns]
        expected = job.table(name).astype(object)
        expected = expected.where(expected.notna(), None)
        assert table.to_pylist() == expected.to_dict("records")
        assert table.schema.field(0).metadata[b"unit"].decode() == columns[0].unit
    assert json.loads((out / "facts.json").read_text()) == json.loads(table.schema.metadata[b"mpicoloc"])


def _lines(text):
    return "\n".join(map(printable, text.split("\n")))


def test_prometheus_is_read_by_its_own_parser(hostile, tmp_path):
    parser = pytest.importorskip("prometheus_client.parser")
    page = export(hostile, "prometheus", tmp_path / "job.prom").read_text()
    families = list(parser.text_fd_to_metric_families(io.StringIO(page)))
    assert len({family.name for family in families}) == len(families)
    samples = {family.name.removeprefix("mpicoloc_job_"): family.samples for family in families}
    profile = open_profile(hostile).profile
    assert samples["info"][0].labels["command"] == _lines(profile.job.command)
    assert samples["ranks"][0].value == N_RANKS
    assert {one.labels["job"] for family in families for one in family.samples} == {_lines(profile.job.id)}
    shared = {one.labels["corunner"]: one.value for one in samples["corunner_overlap_seconds"]}
    assert sorted(shared.values()) == [0.25, 0.5] and "other" in shared
    for name, value in (("slowdown", profile.interference.slowdown), ("price_fair_su", profile.price)):
        assert (name in samples) == (value is not None), "what was not measured is left out"
    assert {family.type for family in families} == {"gauge"}


def test_perfetto_of_hostile_names_is_json(hostile, tmp_path):
    page = json.loads(export(hostile, "perfetto", tmp_path / "job.json").read_text())
    assert page["otherData"] == summary(open_profile(hostile).profile)
    for event in page["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys() and event["ph"] in "XMCsf"
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    names = [event["args"]["name"] for event in page["traceEvents"] if event["name"] == "process_name"]
    assert sum("<script>" in name for name in names) == 2, "of the job and of its node"
    windows = [event for event in page["traceEvents"] if event.get("cat") == "shutter"]
    assert [(window["name"], window["ts"], window["dur"]) for window in windows] == [
        ("valid", 0.045, 0.005), ("unknown", 0.055, 0.01)
    ]  # fmt: skip


def test_facts_have_no_number_that_json_lacks():
    job = job_of(ranks={"rank": [0]})
    json.dumps(facts(job.profile), allow_nan=False)


@pytest.mark.parametrize("kind", [name for name, row in verb.FORMATS.items() if row.is_trace])
def test_a_trace_is_asked_for_in_one_line(kind, untraced, tmp_path, capsys):
    if verb.FORMATS[kind].library:
        pytest.importorskip(verb.FORMATS[kind].library)
    out = tmp_path / "out"
    assert main(["export", str(untraced), "--format", kind, "--out", str(out)]) == 3
    error = capsys.readouterr().err
    assert "--trace" in error and error.count("\n") == 1 and not out.exists()


def test_a_wrong_format_is_told_with_those_that_there_are(hostile, tmp_path, capsys):
    assert main(["export", str(hostile), "--format", "perfeto", "--out", str(tmp_path / "x")]) == 2
    assert "did you mean perfetto?" in capsys.readouterr().err


def test_a_missing_library_is_told_with_its_name(hostile, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verb.importlib.util, "find_spec", lambda name: None)
    assert main(["export", str(hostile), "--format", "parquet", "--out", str(tmp_path / "x")]) == 4
    assert "pip install pyarrow" in capsys.readouterr().err


def test_a_folder_with_something_in_it_is_left_alone(hostile, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    assert main(["export", str(hostile), "--format", "parquet", "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_leaves_nothing(hostile, tmp_path, capsys):
    assert main(["export", str(hostile), "--format", "json", "--out", str(tmp_path / "no" / "job.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.h5"]


def test_paraver_of_hostile_names_has_one_line_for_each_name(hostile, tmp_path):
    out = export(hostile, "paraver", tmp_path / "job.prv")
    rows = out.with_suffix(".row").read_text().split("\n")
    assert rows[0] == "LEVEL CPU SIZE 2" and rows[4] == "LEVEL NODE SIZE 1"
    assert rows[7:11] == ["LEVEL THREAD SIZE 3", "rank 0", "rank 1", "rank 2"], (
        "of all ranks, as in the header"
    )
    assert out.read_text().split("\n")[0].endswith(":1(2):1:3(1:1,1:1,1:1)")
    records = out.read_text().split("\n")[1:-1]
    assert all(record.replace(":", "").isdigit() for record in records)
    shutters = [record for record in records if ":99800003:" in record]
    assert shutters == ["2:1:1:1:1:45:99800003:2", "2:1:1:1:1:50:99800003:0"]


@pytest.mark.skipif(shutil.which("otf2-print") is None, reason="no otf2-print here (Debian: otf2-tools)")
def test_otf2_of_hostile_names_can_be_read(hostile, tmp_path):
    pytest.importorskip("otf2")
    out = export(hostile, "otf2", tmp_path / "archive")
    done = subprocess.run(
        ["otf2-print", "-G", out / "traces.otf2"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and open_profile(hostile).nodes["hostname"][0][:20] in done.stdout
