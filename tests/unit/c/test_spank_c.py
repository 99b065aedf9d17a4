"""The Slurm plugin's own parts, without Slurm."""

import os
import stat
import subprocess
import time
from pathlib import Path

import objects
import once
import pytest
from objects import CSRC, SANITIZED

from mpicoloc.slurm import records

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/slurm/spank.h").exists(), reason="no headers of Slurm here"
)


PARTS = ("environment.c", "notes.c")


@pytest.fixture
def spool(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def run(name, parts, spool, factory, *flags):
    sources = [objects.of_tests(name), *(CSRC / "spank" / part for part in parts)]
    flags = (*SANITIZED, "-Wno-format-truncation", *flags)
    program = objects.program(spool.parent / name, sources, flags, once.folder(factory) / "objects")
    done = subprocess.run([program, spool], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n")


def test_names_and_waiting(spool, tmp_path_factory):
    before_s = time.time()
    records.mark_job(str(spool), 30)
    run("test_spank", PARTS, spool, tmp_path_factory, "-DCLOSING_LIMIT_S=4", "-DNOTE_LIMIT_MS=30000")
    records.unmark_job(str(spool), 30)
    the_notes_are_read_as_they_were_meant(spool, before_s)


def the_notes_are_read_as_they_were_meant(spool, before_s):
    paths = records.note_paths(str(spool))
    assert sorted(os.listdir(spool / ".steps")) == [os.path.basename(path) for path in paths]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (spool / ".steps", *paths)] == [
        0o700,
        *[0o600] * 2,
    ]
    script, step = map(records.read_note, paths)
    assert (script.name, script.uid, script.n_nodes, script.n_cpus_here) == ("20.batch", 1000, 2, 4)
    assert script.ended_unix_s is None
    assert step.name == "21.3"
    assert before_s - 0.001 <= script.begun_unix_s <= step.begun_unix_s <= step.ended_unix_s <= time.time()


def test_a_spool_that_hangs_costs_no_step_its_end(spool, tmp_path_factory):
    run("test_notes", ("notes.c",), spool, tmp_path_factory, "-DNOTE_LIMIT_MS=3000")
    assert os.listdir(spool) == [".steps"]
    assert not os.listdir(spool / ".steps")


def test_a_job_uses_the_service_level_of_its_name(spool, tmp_path_factory):
    run("test_levels", ("environment.c",), spool, tmp_path_factory)
