"""Whatever happens to a neighbour or to its helpers, a job ends as without us, paused within limits."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import jobs
import pytest

from mpicoloc import config
from mpicoloc.errors import DataError
from mpicoloc.pmpi import contract

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 60)]
NAP_US = 2000
"""Jobs that leave some processor time to others; who shares and pauses does so all the same."""
DUTY_FRAC, MAX_S = (config.BY_KEY[key].default for key in ("shutter.duty_frac", "shutter.max_s"))


@pytest.fixture
def start(openmpi, start):
    return lambda *arguments, way="preload", **options: start(openmpi, way, *arguments, **options)


def running(shm_dir, name):
    return jobs.wait_until(lambda: jobs.running_ranks(shm_dir, name, 2), f"{name} to run")


def assert_paused_within_limits(profile):
    (node,) = profile.tables["nodes"]
    # one pause may begin at the last moment at which the limit allows it
    assert node["paused_s"] <= DUTY_FRAC * profile.job.wall_s + MAX_S
    ranks = profile.tables["ranks"]
    assert all(ranks["paused_ns"] <= 2e9 * MAX_S * (1 + ranks["n_pauses"]))
    assert all(ranks["paused_ns"] <= 2e9 * (DUTY_FRAC * profile.job.wall_s + MAX_S))


def keeper_of(shm_dir, segment):
    with contextlib.suppress(DataError, OSError):  # not there or not complete yet
        return int(contract.map_file(shm_dir / f"mpicoloc.{segment['key'].decode()}.node")["keeper_pid"])
    return 0


def helper_of(shm_dir, segment, which):
    if which == "coordinator":
        return jobs.coordinator_of(segment)
    return jobs.wait_until(lambda: keeper_of(shm_dir, segment), "the keeper to say its number")


@pytest.mark.parametrize(
    ("way", "which"), [("wrap", "coordinator"), ("wrap", "keeper"), ("preload", "keeper")]
)
def test_a_helper_that_is_stopped_for_a_while(start, tmp_path, shm_dir, way, which):
    until_end = ["seven", jobs.LIMIT_S, NAP_US, tmp_path / "end"]
    stopped = start(*until_end, way=way, name="stopped")
    other = start(*until_end, way=way, name="other")
    (rank, _), _ = running(shm_dir, "stopped"), running(shm_dir, "other")
    helper = helper_of(shm_dir, rank, which)
    time.sleep(1.0)
    os.kill(helper, signal.SIGSTOP)
    try:
        time.sleep(2.0)
        assert len(jobs.running_ranks(shm_dir, "other", 2)) == 2
    finally:
        os.kill(helper, signal.SIGCONT)
    time.sleep(1.0)
    (tmp_path / "end").touch()
    for job in (stopped, other):
        assert job.wait() == 7, job.log
        assert_paused_within_limits(job.profile())
    jobs.assert_nothing_left(shm_dir)


def test_a_crowd_of_short_jobs_some_of_them_killed(start, tmp_path, shm_dir, monkeypatch):
    """They begin, end and die at every step of a shutter: those of the job that stays come every 50 ms."""
    monkeypatch.setenv("MPICOLOC_SHUTTER_PERIOD_S", "0.05")
    stays = start("seven", jobs.LIMIT_S, NAP_US, tmp_path / "end", name="stays")
    running(shm_dir, "stays")
    rng, n_killed, n_ended = random.Random(4), 0, 0
    end_s = time.monotonic() + 10
    for i in range(200):
        if time.monotonic() > end_s:
            break
        pair = [start("finalize", 0.2, name=f"short-{i}-{k}", n_ranks=1) for k in range(2)]
        time.sleep(rng.uniform(0.3, 1.0))
        pair[0].kill()
        n_killed += 1
        n_ended += pair[1].wait() == 0
    assert n_killed >= 3
    assert n_ended == n_killed
    (tmp_path / "end").touch()
    assert stays.wait() == 7, stays.log
    profile = stays.profile()
    assert not profile.partial
    assert profile.interference.n_taken > 0
    assert_paused_within_limits(profile)
    jobs.assert_nothing_left(shm_dir)


def test_a_full_shared_memory(start, shm_dir):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(shm_dir)], check=True, timeout=10)
    try:
        job = start("finalize", 1)
        assert job.wait() == 0, job.log
        own = [line for line in job.log.splitlines() if line.startswith("mpicoloc")]
        assert [line for line in job.log.splitlines() if line not in own] == ["computed with 2 ranks"]
        assert len(own) == 1
        assert "no room" in own[0]
        jobs.assert_nothing_left(shm_dir)
    finally:
        subprocess.run(["umount", "-l", str(shm_dir)], check=True, timeout=10)


def test_a_board_from_before_a_reboot(start, shm_dir):
    """Its clock is ahead of ours, and its process numbers are others' by now."""
    first = start("finalize", 2, name="first")
    running(shm_dir, "first")
    board = Path(contract.board_path())
    jobs.wait_until(
        lambda: board.exists() and contract.map_file(board)["slots"]["heartbeat"].any(), "a heartbeat"
    )
    old = bytearray(board.read_bytes())
    assert first.wait() == 0, first.log
    slots = contract.map_file(board)["slots"] if board.exists() else None
    assert slots is None
    words = memoryview(old).cast("Q")
    owner = next(i for i, word in enumerate(words) if word >> 32 in range(2, 1 << 22) and i > 4)
    words[owner] = 1 << 32 | 1
    now_ns = time.monotonic_ns()
    for i, word in enumerate(words):
        if abs(word - now_ns) < 30e9:
            words[i] = word + 10**15
    board.write_bytes(old)
    board.chmod(0o666)
    second = start("finalize", 3, name="second")
    assert second.wait() == 0, second.log
    profile = second.profile()
    assert profile.interference.slowdown.method == "alone"
    assert not len(profile.tables["corunners"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a time namespace")
def test_neighbours_whose_clocks_differ(start, tmp_path, shm_dir, monkeypatch):
    """A container may have a monotonic clock of its own, and share the memory of its node."""
    until_end = ["seven", jobs.LIMIT_S, NAP_US, tmp_path / "end"]
    here = start(*until_end, name="here")
    monkeypatch.setattr(jobs, "as_user", lambda uid: ["unshare", "-T", "--monotonic", "100000", "--fork"])
    there = start(*until_end, name="there")
    nodes = jobs.node_files(shm_dir, 2)
    jobs.wait_until(lambda: all(node["shared_ns"] > 1.5e9 for node in nodes), "time that is shared")
    (tmp_path / "end").touch()
    for job in (here, there):
        assert job.wait() == 7, job.log
        profile = job.profile()
        assert not profile.partial
        assert profile.interference.slowdown is None, "it was not alone, and heard nothing of the other"
        assert profile.interference.shared_s > 1
        assert_paused_within_limits(profile)
    with contextlib.suppress(FileNotFoundError):
        Path(contract.board_path()).unlink()
    jobs.assert_nothing_left(shm_dir)
