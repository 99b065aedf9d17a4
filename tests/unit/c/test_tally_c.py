"""Counts outside MPI, of a thread that does what it is told, against what it counts meanwhile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import objects
import once
import pytest

ROOT = Path(__file__).resolve().parents[3]
CSRC = ROOT / "csrc"
SOURCES = (*objects.COMMON, *objects.GATELESS)
TALLY = (*SOURCES, *objects.of_csrc("agent/meters/thread_counts.c"))
FLAGS = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror")
# Those of test_agent_c.py, whose objects are taken where they are there already.
SANITIZED = (*FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
# Processor time stands for instructions and cycles.
TASK_CLOCK = ("-DMC_PERF_EVENTS=" + ", ".join(["{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK}"] * 2),)
CANNOT = 77
N_LOOKS = 3


def build(tmp_path_factory, name, sources, flags, perf=()):
    folder = once.folder(tmp_path_factory) / "objects"
    files = [ROOT / f"tests/c/{name}.c", *sources]
    out = tmp_path_factory.mktemp(name) / name
    return objects.program(out, files, flags, folder, {"perf.c": perf})


def run(program, shm, *arguments):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MPICOLOC_")}
    environment["MPICOLOC_SHM_DIR"] = str(shm)
    # The clock that stands for counters runs on while another guest has the processor: looked at again then.
    for _ in range(N_LOOKS):
        done = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        if "instead of" not in done.stderr:
            break
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert not list(shm.iterdir())


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory, "test_tally", TALLY, SANITIZED, TASK_CLOCK)


@pytest.mark.parametrize(
    "scenario", ["windows", "spans", "late", "first", "light", "fork", "limit", "closed", "ended", "pinned"]
)
def test_what_a_thread_counts_outside_mpi(program, tmp_path, scenario):
    run(program, tmp_path, scenario)


def test_instructions_outside_mpi(tmp_path_factory, tmp_path):
    run(build(tmp_path_factory, "test_tally", TALLY, SANITIZED), tmp_path, "hardware")


def test_a_tally_is_never_seen_half_written(tmp_path_factory, tmp_path):
    flags = (*FLAGS, "-fsanitize=thread")
    files = objects.of_csrc("common/counters/perf.c", "common/counters/tally.c", "common/proc.c")
    run(build(tmp_path_factory, "test_tally_race", files, flags, TASK_CLOCK), tmp_path)
