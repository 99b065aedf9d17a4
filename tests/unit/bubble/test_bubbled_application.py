"""A program that is measured beside a bubble: nothing of it stays behind."""

import os
import time
from pathlib import Path

import pytest

from mpicoloc.bubble import application

LIMIT_S = 30


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("trap", ["exit 0", ":"])
def test_children_that_their_root_forgets_end_as_well(tmp_path, monkeypatch, trap):
    monkeypatch.setattr(application, "_END_LIMIT_S", 0.5)
    told = tmp_path / "pid"
    script = (
        f"trap '{trap}' TERM; (trap '' TERM; exec sleep 600) & echo $! > {told}.new; mv {told}.new {told}; "
    )
    command = ["bash", "-c", f"{script} while :; do wait; done"]
    app = application.Application(command, os.sched_getaffinity(0), os.environ, to_stderr=True)
    end_s = time.monotonic() + LIMIT_S
    while not told.exists() and time.monotonic() < end_s:
        time.sleep(0.01)
    child = int(told.read_text())
    assert is_running(child)
    assert app.end() is None
    while is_running(child) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_running(child)
