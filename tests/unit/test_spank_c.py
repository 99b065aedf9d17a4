"""The Slurm plugin's own parts, without Slurm."""

import subprocess
from pathlib import Path

import objects
import once
import pytest
from test_tally_c import CSRC, ROOT, SANITIZED

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/slurm/spank.h").exists(), reason="no headers of Slurm here"
)


def test_names_and_waiting(tmp_path, tmp_path_factory):
    sources = [ROOT / "tests/c/test_spank.c", CSRC / "spank/settings.c", CSRC / "spank/task.c"]
    flags = (*SANITIZED, "-Wno-format-truncation", "-DCLOSING_LIMIT_S=1")
    program = objects.program(
        tmp_path / "test_spank", sources, flags, once.folder(tmp_path_factory) / "objects"
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok\n")
