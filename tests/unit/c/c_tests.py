"""Programs of tests/c: built of the C half's own files, and run in a folder of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import objects
import once
import pytest

from mpicoloc.pmpi import build_shim

ROOT = Path(__file__).resolve().parents[3]
SOURCES = (*objects.COMMON, *objects.GATELESS)
CSRC_REPLAY = tuple(build_shim.c_files(objects.CSRC, build_shim.REPLAY))
# Processor time stands for instructions and cycles.
TASK_CLOCK = ("-DMC_PERF_EVENTS=" + ", ".join(["{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK}"] * 2),)
CANNOT = 77
N_LOOKS = 3


def build(tmp_path_factory, name, sources, flags, perf=()):
    folder = once.folder(tmp_path_factory) / "objects"
    files = [objects.of_tests(name), *sources]
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
