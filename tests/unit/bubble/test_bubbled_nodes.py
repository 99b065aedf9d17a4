"""Runs with bubbles on some of the nodes: real launchers and processes, bubbles that only sleep."""

import os
import subprocess
import sys
import time

import pytest

from mpicoloc.bubble.propagation_runs import BubbledNodes, bubble_command
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.job import launcher

HOSTS = ("localhost", "127.0.0.1")
APP = """
import os, sys, pathlib
names = sorted(path.name for path in pathlib.Path(sys.argv[1]).glob('bubble-*'))
pathlib.Path(sys.argv[2], f'rank-{os.getpid()}').write_text(' '.join(names))
"""
BUBBLE = """
import os, sys, pathlib, time
pathlib.Path(sys.argv[1], f'bubble-{sys.argv[2]}-{os.getpid()}').touch()
time.sleep(60)
"""


@pytest.fixture
def mpirun():
    path = os.path.join(os.path.dirname(sys.executable), "mpirun")
    found = launcher.identify(path) if os.path.exists(path) else None
    if found is None:
        pytest.skip("no mpirun beside this Python")
    return found


def nodes(mpirun, tmp_path, app=APP, **more):
    (tmp_path / "seen").mkdir(exist_ok=True)
    words = [sys.executable, "-c", app, str(tmp_path), str(tmp_path / "seen")]
    return BubbledNodes(
        mpirun,
        HOSTS,
        words,
        2,
        lambda level: [sys.executable, "-c", BUBBLE, str(tmp_path), f"{level:g}"],
        limit_s=30,
        **more,
    )


def running(tmp_path):
    """Processes of bubbles that are there."""
    pids = [path.name.rpartition("-")[2] for path in tmp_path.glob("bubble-*")]
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/cwd")]


def until(is_so, limit_s=20):
    end_s = time.monotonic() + limit_s
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.05)
    return is_so()


@pytest.mark.timeout(120)
def test_bubbles_run_beside_the_program_on_as_many_nodes_and_none_is_left(mpirun, tmp_path):
    assert nodes(mpirun, tmp_path, settle_s=2.0).time_s([3, 0]) > 0
    seen = [path.read_text().split() for path in (tmp_path / "seen").iterdir()]
    assert len(seen) == 4
    assert [len(names) for names in seen] == [1] * 4 and seen[0][0].startswith("bubble-3-")
    assert until(lambda: not running(tmp_path))


@pytest.mark.timeout(120)
def test_each_node_may_have_a_bubble_of_its_own_level(mpirun, tmp_path):
    nodes(mpirun, tmp_path, settle_s=2.0).time_s([2, 5.5])
    seen = [path.read_text().split() for path in (tmp_path / "seen").iterdir()]
    assert all([name.split("-")[1] for name in names] == ["2", "5.5"] for names in seen)
    assert until(lambda: not running(tmp_path))


@pytest.mark.timeout(120)
def test_a_program_that_fails_is_told_and_leaves_no_bubble(mpirun, tmp_path):
    with pytest.raises(EnvironmentFault, match="ended with code"):
        nodes(mpirun, tmp_path, app="raise SystemExit(3)", settle_s=0.5).time_s([8, 8])
    assert until(lambda: not running(tmp_path))


def test_more_nodes_than_there_are_cannot_be_disturbed(mpirun, tmp_path):
    with pytest.raises(DataError, match="there are 2 nodes, but got 3"):
        nodes(mpirun, tmp_path).time_s([1, 1, 1])
    with pytest.raises(DataError, match=r"must be in \[0, 8\], got 9"):
        nodes(mpirun, tmp_path).time_s([9, 0])
    with pytest.raises(UsageError, match="need hosts, ranks, a program"):
        BubbledNodes(mpirun, [], ["app"], 1)


def test_the_usual_bubble_is_that_of_the_verb():
    words = bubble_command(3.5, "1")
    assert words[-5:] == ["run", "--level", "3.5", "--cores", "1"]
    assert subprocess.run([words[0], "-c", "import mpicoloc"], check=False, timeout=30).returncode == 0
