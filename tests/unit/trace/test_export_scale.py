"""Exports of many ranks: no file for each is held open, and memory stays bounded."""

import gzip
import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from exports import ring_of

from mpicoloc.cli.main import main
from mpicoloc.profile.frames import open_profile
from mpicoloc.trace.export import calls, paraver, verb

N_RANKS, N_ROUNDS, N_FILES = 1100, 2, 256
LIMIT_S = 200
MAX_BYTES = {"otf2": 1 << 30}
"""OTF2's library has half a megabyte for each rank."""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    path = tmp_path_factory.mktemp("scale") / "ring.h5"
    ring_of(path, N_RANKS, N_ROUNDS)
    return path


# A child's peak counts the memory of the process that forked it until it runs its own program, and workers of
# pytest are large: so a small process starts and measures it.
MEASURED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({N_FILES}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-m", "mpicoloc", *sys.argv[1:]])
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def exported(job, name, out):
    """Standard error and peak memory (bytes) of an export by a process that may open few files."""
    command = [sys.executable, "-c", MEASURED, "export", job, "--format", name, "--out", out]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stderr, int(done.stdout.splitlines()[-1]) * 1024


def has_all(name, out):
    """Whether every call and message is there."""
    n_calls, n_messages = 3 * N_RANKS * N_ROUNDS, N_RANKS * N_ROUNDS
    if name == "perfetto":
        kinds = [event["ph"] for event in json.loads(out.read_text())["traceEvents"]]
        return kinds.count("X") == n_calls and kinds.count("s") == kinds.count("f") == n_messages
    if name == "paraver":
        kinds = [line[:2] for line in out.with_suffix(".prv").read_text().splitlines()]
        return kinds.count("2:") == 2 * n_calls and kinds.count("3:") == n_messages
    if name == "otf2":
        return len(list((out / "traces").glob("*.evt"))) == N_RANKS
    lines = [line.split()[1] for file in out.glob("rank-*.txt") for line in file.read_text().splitlines()]
    return lines.count("recv") == n_messages and lines.count("barrier") == N_RANKS * N_ROUNDS


@pytest.mark.parametrize("name", [name for name, row in verb.FORMATS.items() if row.is_trace])
def test_a_thousand_ranks_need_few_files_and_little_memory(name, job, tmp_path):
    if library := verb.FORMATS[name].library:
        pytest.importorskip(library)
    told, peak_bytes = exported(job, name, tmp_path / "out")
    assert not told and has_all(name, tmp_path / "out")
    assert peak_bytes < MAX_BYTES.get(name, 400 << 20)


def test_a_message_takes_200_bytes(tmp_path):
    ring_of(tmp_path / "long.h5", 8, 10_000)
    recording = calls.recording(open_profile(tmp_path / "long.h5"))
    tracemalloc.start()
    try:
        n = sum(1 for _ in recording.messages.rows())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Beside the pieces that are Python's numbers, of which there are two.
    assert n == 80_000 and peak_bytes < 200 * n + (64 << 20)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "ring.h5"
    ring_of(path, 8, 250)
    return path


def test_a_large_trace_is_told_before_it_is_written(small, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(verb, "_LARGE_BYTES", 1 << 20)
    assert main(["export", str(small), "--format", "perfetto", "--out", str(tmp_path / "job.json")]) == 0
    told = capsys.readouterr().err
    assert "6,000 events take about 1.087 MiB, a sixth of it or less as" in told and "are free there" in told
    size = (tmp_path / "job.json").stat().st_size
    assert size == pytest.approx(6000 * verb.FORMATS["perfetto"].event_bytes, rel=0.3)


@pytest.mark.parametrize(("name", "end"), [("perfetto", "json"), ("paraver", "prv"), ("json", "json")])
def test_what_ends_with_gz_is_compressed(name, end, small, tmp_path):
    plain, packed = tmp_path / f"a.{end}", tmp_path / f"b.{end}.gz"
    for out in (plain, packed):
        assert main(["export", str(small), "--format", name, "--out", str(out)]) == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.stat().st_size < plain.stat().st_size / 4
    assert not list(tmp_path.glob("*.part"))


def test_lines_are_in_order_and_those_of_one_time_stay(tmp_path):
    rng = np.random.default_rng(5)
    times = rng.integers(0, 10**12, 5000) // rng.choice([1, 10**9], 5000)
    lines = [f"{i}:{time}:x\n" for i, time in enumerate(times.tolist())]
    found = list(paraver.in_order(lines, 2, str(tmp_path)))
    assert found == sorted(lines, key=lambda line: int(line.split(":")[1]))


def test_a_disk_that_refuses_to_sort_is_told(monkeypatch):
    monkeypatch.setattr(paraver, "_MEMORY", "1M")
    lines = (f"1:{i}\n" for i in range(500_000))
    with pytest.raises(verb.EnvironmentFault, match=r"/nowhere.*: make room in /nowhere"):
        list(paraver.in_order(lines, 2, "/nowhere"))
