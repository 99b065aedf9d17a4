"""Events of a rank's threads through its ring into a file, read back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import objects
import once
import pytest

from mpicoloc.pmpi import build_shim, contract
from mpicoloc.trace import node_file, reader

ROOT = Path(__file__).resolve().parents[3]
SOURCES = (*objects.COMMON, *objects.GATELESS, *build_shim.c_files(objects.CSRC, ("trace",)))
# Not the sanitizer of threads: rank and writer map the ring apart.
N_THREADS, EVERY, CALL = 4, 10, 7


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    files = [ROOT / "tests/c/trace/test_trace.c", *SOURCES]
    out = tmp_path_factory.mktemp("trace") / "test_trace"
    return objects.program(out, files, objects.SANITIZED, once.folder(tmp_path_factory) / "objects")


def run(program, tmp_path, *arguments, ring=1 << 16):
    """Events offered and dropped, and the trace."""
    shm = tmp_path / "shm"
    shm.mkdir()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    environment |= {"MPICOLOC_SHM_DIR": str(shm), "MPICOLOC_OUT": str(tmp_path / "job.h5")}
    environment |= {"MPICOLOC_TRACE": "all", "MPICOLOC_TRACE_RING": str(ring)}
    done = subprocess.run(
        [program, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(shm.iterdir())
    n_events, n_dropped = map(int, done.stdout.split())
    folder = tmp_path / "job.trace"
    return n_events, n_dropped, reader.read_folder(folder) if folder.exists() else None


def calls_by_lane(found):
    frame = found.frame()
    assert (frame["call"] == f"call {CALL}").all()
    return {lane: rows for lane, rows in frame.groupby("lane") if len(rows)}


def test_every_event_is_in_the_file_once_and_in_order(program, tmp_path):
    n_calls = 5000
    n_events, n_dropped, found = run(program, tmp_path, "patient", n_calls, ring=1024)
    assert (n_events, n_dropped) == (N_THREADS * (n_calls + n_calls // EVERY), 0)
    assert found.n_events == n_events and not found.notes
    i = np.arange(n_calls)
    for rows in calls_by_lane(found).values():
        expected = np.where(i % EVERY == 0, 2 * i, i)
        for part in np.split(rows["bytes"].to_numpy(), len(rows) // n_calls):  # a thread may follow another
            assert (part == expected).all()
        assert (rows["t_ns"].diff().dropna() >= 0).all()
        assert (rows["message"] == "sent").all()
    messages = found.messages()
    received = messages[messages["message"] == "received"]
    assert len(received) == N_THREADS * (n_calls // EVERY)
    assert (received["peer"] == received["bytes"] % 100 + 1).all()
    sent = messages[messages["message"] == "sent"]
    assert (sent["peer"] == sent["bytes"] % 100).all() and sent["bytes"].sum() == N_THREADS * i.sum()


def test_what_a_small_ring_refuses_is_counted(program, tmp_path):
    n_events, n_dropped, found = run(program, tmp_path, "hasty", 5000, ring=64)
    assert n_events == N_THREADS * 5500
    assert n_dropped > 0 and found.n_events == n_events - n_dropped
    # Nothing twice or out of order, where threads race for places; a lane may serve one after another.
    lanes = calls_by_lane(found)
    i_calls = [
        np.where(rows["bytes"] % 20 == 0, rows["bytes"] // 2, rows["bytes"]) for rows in lanes.values()
    ]
    assert sum((np.diff(i) <= 0).sum() for i in i_calls) + len(lanes) <= N_THREADS + 1


def test_without_a_writer_all_but_a_ring_full_is_dropped(program, tmp_path):
    n_events, n_dropped, found = run(program, tmp_path, "untraced", 100, ring=64)
    assert (n_events, found) == (N_THREADS * 110, None)
    assert n_dropped == n_events  # nobody took those in the ring either


def test_a_full_disk_ends_the_file_with_a_whole_block(program, tmp_path):
    n_events, n_dropped, found = run(program, tmp_path, "full_disk", 5000, ring=1024)
    assert 0 < found.n_events == n_events - n_dropped
    assert not found.notes
    assert len(found.frame()) > 0


def test_a_place_that_was_never_filled_is_passed_over(program, tmp_path):
    n_events, n_dropped, found = run(program, tmp_path, "hole")
    assert (n_events, n_dropped, found.n_events) == (3, 1, 2)
    assert found.frame()["bytes"].tolist() == [1, 2]


def test_a_second_tracer_goes_on_behind_the_first(program, tmp_path):
    n_events, n_dropped, found = run(program, tmp_path, "again")
    assert (n_events, n_dropped, found.n_events) == (2, 0, 2)
    assert found.frame()["bytes"].tolist() == [1, 2]


def test_a_second_tracer_cuts_off_half_a_block_of_the_first(program, tmp_path):
    _, _, found = run(program, tmp_path, "cut")
    assert not found.notes
    assert found.frame()["bytes"].tolist() == [1, 2]


def test_a_file_of_another_job_is_replaced(program, tmp_path):
    _, _, found = run(program, tmp_path, "other_job")
    assert found.frame()["bytes"].tolist() == [2]


def test_layouts_are_those_of_the_header(program):
    done = subprocess.run([program, "layout"], capture_output=True, text=True, timeout=60, check=True)
    sizes = [kind.itemsize for kind in (node_file.BLOCK, node_file.FILE_HEAD, node_file.CHUNK)]
    fields = [node_file.CHUNK.fields[name][1] for name in ("n", "t_min", "t_step", "columns")]
    limits = [node_file.MAGIC, node_file.VERSION, node_file.MAX_EVENTS, node_file.EVENTS]
    assert [int(word) for word in done.stdout.split()] == [*sizes, *fields, *limits]
    bits = {
        name: getattr(contract, f"MC_EVENT_{name}")
        for name in ("SENT", "RECEIVED", "MESSAGE", "ONE_SIDED", "CALL", "SITE")
    }
    assert bits == {name: getattr(node_file, name) for name in bits}
    assert contract.MC_EVENT_LANE_SHIFT == node_file.LANE_SHIFT
