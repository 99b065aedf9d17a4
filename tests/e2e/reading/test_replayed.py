"""Real runs replayed: the same messages, an end at any eager limit; what is not whole is refused."""

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import exported
import jobs
import numpy as np
import program_runner
import pytest

from mpicoloc.cli.main import main
from mpicoloc.core.profile import frozen
from mpicoloc.network.traffic.job_traffic import job_traffic
from mpicoloc.profile import hdf5, profiles
from mpicoloc.replay.programs import profile_programs

pytestmark = pytest.mark.e2e
TREE = ("--topology", "XGFT(2;2,4;1,1)", "--link-rate", "8Gbit/s", "--placement", "F2")
N_RANKS = exported.N_RANKS


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The profile of a run of four ranks that communicate in every way."""
    return exported.run(tmp_path_factory.mktemp("replay"), jobs.PROGRAMS / "replayed.c", "all", 4, "mixed")


def matrix(messages):
    found = np.zeros((N_RANKS, N_RANKS))
    for src, dst, n_bytes in messages:
        np.add.at(found, (src, dst), n_bytes)
    return found


def test_every_message_is_sent_and_received(mixed):
    """Sends wait for their receives here, so that no order of the replay can come to a standstill."""
    job = profile_programs.read(str(mixed))
    sent = matrix(program_runner.run(job.programs(np.arange(N_RANKS))))
    tables, library = job.profile.tables, job.profile.job.mpi_library
    wanted = job_traffic(tables, N_RANKS, library, np.arange(N_RANKS)).traffic
    assert np.allclose(sent, matrix(wanted.rounds()), atol=16)


@pytest.mark.parametrize("eager", ["0", "16384", "1GB"])
def test_a_replay_ends_at_every_eager_limit(mixed, capsys, eager):
    assert main(["replay", str(mixed), str(mixed), *TREE, "--eager", eager, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in found["jobs"]] == ["job", "job-2"]
    for job in found["jobs"]:
        assert 0 < job["t_base_s"] <= job["t_alone_s"] * 1.001
        assert job["t_sharing_s"] > 0


def test_a_replay_shows_the_calls_that_the_program_made(mixed, tmp_path):
    assert main(["replay", str(mixed), *TREE, "--perfetto", str(tmp_path / "run.json")]) == 0
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    shown = Counter(event["name"] for event in events if event["ph"] == "X" and event["cat"] == "mpi")
    sites = profiles.read(str(mixed)).tables["call_sites"]
    for name in ("MPI_Sendrecv", "MPI_Allreduce"):
        assert shown[name] == int(sites["n"][sites["call"] == name.encode()].sum()) > 0


def told(capsys, path):
    capsys.readouterr()
    assert main(["replay", str(path), *TREE]) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    return line


@pytest.fixture
def changed(mixed, tmp_path):
    """Writes the profile with another number in a column of its table of ranks; its trace beside it."""

    def write(column, value):
        profile = profiles.read(str(mixed))
        ranks = profile.tables["ranks"].copy()
        ranks[column] = value
        path = tmp_path / "changed.h5"
        hdf5.write(replace(profile, tables={**profile.tables, "ranks": frozen(ranks)}), path)
        shutil.copytree(f"{str(mixed)[:-3]}.trace", tmp_path / "changed.trace")
        return path

    return write


def test_a_trace_with_dropped_events_is_refused(changed, capsys):
    line = told(capsys, changed("n_events_dropped", 7))
    assert re.search("28 events were dropped.*larger --trace-ring", line)


def test_a_profile_without_details_of_collectives_is_refused(changed, capsys):
    assert "the members of 12 collectives are unknown" in told(capsys, changed("n_collective_overflow", 3))


def test_a_trace_of_another_version_is_refused(changed, capsys):
    path = changed("n_events_dropped", 0)
    (file,) = path.with_suffix(".trace").glob("*.mct")
    content = bytearray(file.read_bytes())
    content[4] = 9
    file.write_bytes(content)
    assert re.search("has version 9, but this mpicoloc reads 1", told(capsys, path))


def test_a_profile_without_a_trace_is_refused(mixed, capsys, tmp_path):
    shutil.copy(mixed, tmp_path / "bare.h5")
    assert "run the job with --trace all" in told(capsys, tmp_path / "bare.h5")


SIMGRID = (
    *("--cfg=network/crosstraffic:0", "--cfg=network/weight-S:0", "--cfg=network/TCP-gamma:1000000000"),
    *("--cfg=smpi/bw-factor:0:1.0", "--cfg=smpi/lat-factor:0:1.0"),
    *("--cfg=smpi/send-is-detached-thresh:1000000000", "--cfg=smpi/async-small-thresh:1000000000"),
)
"""Without SimGrid's corrections for TCP and for MPI libraries, which the packets here do not have."""
PLATFORM = """<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="job" prefix="node-" suffix="" radical="0-7" speed="1Gf" bw="1GBps" lat="1us"/>
</platform>
"""


def trace_of_pairs(folder, compute_us, seed):
    """Ranks 2 i and 2 i + 1 compute and send each other messages in turn: no two of them share a link."""
    rng = np.random.default_rng(seed)
    lines = [[f"{rank} init"] for rank in range(8)]
    for step in range(40):
        size = rng.choice([64, 1000, 8000, 50_000, 400_000])
        for rank, own in enumerate(lines):
            message = f"{rank ^ 1} {step} {size} 6"
            turns = [f"{rank} send {message}", f"{rank} recv {message}"]
            own.append(f"{rank} compute {rng.integers(1, compute_us) * 1000}")
            own += turns if rank % 2 == 0 else turns[::-1]
    for rank, own in enumerate(lines):
        (folder / f"rank-{rank}.txt").write_text("\n".join([*own, f"{rank} finalize\n"]))
    (folder / "trace.txt").write_text("".join(f"rank-{rank}.txt\n" for rank in range(8)))
    (folder / "platform.xml").write_text(PLATFORM)
    (folder / "hosts.txt").write_text("".join(f"node-{rank}\n" for rank in range(8)))


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="no SimGrid here (Debian: libsimgrid-dev)")
@pytest.mark.parametrize(("compute_us", "seed"), [(400, 3), (20, 4)])
def test_simgrid_takes_as_long_where_no_links_are_shared(tmp_path, capsys, compute_us, seed):
    trace_of_pairs(tmp_path, compute_us, seed)
    command = ["smpirun", "-np", "8", "-platform", "platform.xml", "-hostfile", "hosts.txt", *SIMGRID]
    done = subprocess.run(
        [*command, "-replay", "trace.txt"], cwd=tmp_path, capture_output=True, text=True, timeout=jobs.LIMIT_S
    )
    simgrid_s = float(re.search(r"Simulation time ([\d.]+)", done.stdout + done.stderr)[1])
    # Two links of 1 us each there; here two cables, and the flit that a switch must have of a packet.
    words = ["--topology", "XGFT(1;8;1)", "--link-rate", "8Gbit/s", "--mpi-latency-s", "0"]
    words += ["--cable-latency-s", "872e-9", "--switch-latency-s", "0", "--eager", "1GB", "--json"]
    assert main(["replay", str(tmp_path / "trace.txt"), *words]) == 0
    own_s = json.loads(capsys.readouterr().out)["jobs"][0]["t_alone_s"]
    print(f"SimGrid {simgrid_s:.6f} s, packets {own_s:.6f} s")
    assert own_s == pytest.approx(simgrid_s, rel=0.03)
