"""Jobs of different users share a node's board, and cannot harm each other with it."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jobs
import pytest

from mpicoloc import config
from mpicoloc.pmpi import contract

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.serial,
    pytest.mark.timeout(jobs.LIMIT_S + 40),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts jobs of two users"),
]
USERS = {"first": 54321, "second": 54322}
"""Numbers that no account has."""
ACCESS = {"read": '< "$1"', "write": '>> "$1"'}


@pytest.fixture
def places(shm_dir):
    """A folder of each user; what all share is as /dev/shm is, open to all and sticky."""
    shm_dir.chmod(0o1777)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        found = {"": Path(folder)}
        for name, uid in USERS.items():
            found[name] = Path(folder, name)
            found[name].mkdir()
            shutil.chown(found[name], uid, uid)
        yield found


@pytest.fixture
def start(openmpi, started, places):
    """Start a user's job, which goes on until there is a file "end"."""

    def start_one(name, way):
        options = {"name": name, "uid": USERS[name]}
        words = ["finalize", jobs.LIMIT_S, 0, places[""] / "end"]
        started.append(jobs.start(openmpi, places[name], way, *words, **options))
        return started[-1]

    return start_one


def may(uid, access, path):
    """Whether a user may open a file so."""
    command = [*jobs.as_user(uid), "sh", "-c", f": {ACCESS[access]}", "sh", str(path)]
    return subprocess.run(command, capture_output=True, timeout=jobs.LIMIT_S, check=False).returncode == 0


def wait_running(shm_dir, *started):
    for job in started:
        name = job.out_path.stem
        jobs.wait_until(lambda name=name: jobs.running_ranks(shm_dir, name, 2), f"{name} to run: {job.log}")


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_users_share_the_board_and_nothing_else(start, places, shm_dir, way):
    first, second = start("first", way), start("second", way)
    wait_running(shm_dir, first, second)
    for path in (
        *shm_dir.glob("*.seg"),
        *shm_dir.glob("*.node"),
        *shm_dir.glob("*.log"),
        Path(contract.board_path()),
    ):
        (other,) = (uid for uid in USERS.values() if uid != path.stat().st_uid)
        is_board = path.suffix == ".board"
        assert {access: may(other, access, path) for access in ACCESS} == dict.fromkeys(ACCESS, is_board), (
            path.name
        )
    nodes = [contract.map_file(path) for path in shm_dir.glob("*.node")]
    jobs.wait_until(lambda: all(node["n_shutters"] for node in nodes), "a shutter of each")
    (places[""] / "end").touch()
    for job, other in ((first, b"second"), (second, b"first")):
        assert job.wait() == 0, job.log
        profile = job.profile()
        assert not profile.partial
        assert other in profile.tables["corunners"]["job_id"].tolist()
        assert profile.interference.n_taken > 0
    # only its owner may remove the board, and may have ended first
    jobs.wait_until(
        lambda: all(path.suffix == ".board" for path in shm_dir.iterdir()), "the jobs' files to go"
    )


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_a_hostile_user_costs_samples_and_the_duty_limit_at_most(start, places, shm_dir, way):
    hostile = places[""] / "scribble"
    source = jobs.PROGRAMS / "scribble.c"
    subprocess.run(["cc", "-O1", str(source), "-o", str(hostile)], check=True, timeout=jobs.LIMIT_S)
    victim, other = start("first", way), start("second", way)
    wait_running(shm_dir, victim, other)
    command = [*jobs.as_user(USERS["second"]), str(hostile), contract.board_path(), "3"]
    written = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=True).stdout
    assert int(written) > 1000
    (places[""] / "end").touch()
    assert victim.wait() == 0, victim.log
    assert victim.log.strip().splitlines()[0] == "computed with 2 ranks"
    other.wait()
    profile = victim.profile()
    assert not profile.partial
    ranks, (node,) = profile.tables["ranks"], profile.tables["nodes"]
    duty_frac, max_s = (config.BY_KEY[key].default for key in ("shutter.duty_frac", "shutter.max_s"))
    # one pause may begin at the last moment at which the limit allows it
    assert node["paused_s"] <= duty_frac * profile.job.wall_s + max_s
    assert all(ranks["paused_ns"] <= 1.5e9 * (duty_frac * profile.job.wall_s + max_s))
