"""The Slurm plugin's own parts, without Slurm."""

import os
import stat
import subprocess
import time
from pathlib import Path

import objects
import once
import pytest
from test_tally_c import CSRC, ROOT, SANITIZED

from mpicoloc.store import step_note

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/slurm/spank.h").exists(), reason="no headers of Slurm here"
)


PARTS = ("settings.c", "task.c", "command.c", "notes.c")


def test_names_and_waiting(tmp_path, tmp_path_factory):
    sources = [ROOT / "tests/c/test_spank.c", *(CSRC / "spank" / name for name in PARTS)]
    flags = (*SANITIZED, "-Wno-format-truncation", "-DCLOSING_LIMIT_S=1")
    program = objects.program(
        tmp_path / "test_spank", sources, flags, once.folder(tmp_path_factory) / "objects"
    )
    spool = tmp_path / "spool"
    spool.mkdir()
    before_s = time.time()
    done = subprocess.run([program, spool], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n")
    the_notes_are_read_as_they_were_meant(spool, before_s)


def the_notes_are_read_as_they_were_meant(spool, before_s):
    paths = step_note.paths(str(spool))
    assert sorted(os.listdir(spool / ".steps")) == [os.path.basename(path) for path in paths]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (spool / ".steps", *paths)] == [
        0o700,
        *[0o600] * 3,
    ]
    script, step, of_one_file = map(step_note.read, paths)
    assert (script.name, script.uid, script.n_nodes, script.n_cpus_here) == ("20.batch", 1000, 2, 4)
    assert (script.profile_step, script.ended_unix_s) == ("batch", None)
    assert (step.name, step.profile_step, of_one_file.profile_step) == ("21.3", "3", None)
    assert before_s - 0.001 <= script.begun_unix_s <= step.begun_unix_s <= step.ended_unix_s <= time.time()
