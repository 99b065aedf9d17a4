"""Files of dead jobs are found and removed; those of living jobs, other versions and other users never."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from rank_files import KEY, write_node, write_rank

from mpicoloc.job import check, init_barrier, leftovers
from mpicoloc.pmpi import contract
from mpicoloc.profile.collect import collect
from mpicoloc.slurm import client, close


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    shm = tmp_path / "shm"
    shm.mkdir()
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(shm))
    return shm


def dead_job(folder, **fields):
    """Segment, node file, log and announcement of a job that ended long ago."""
    write_node()
    write_rank(0, **fields)
    for what in ("log", "init"):
        open(contract.shm_path(KEY, what), "w").close()
    long_ago = time.time() - 2 * leftovers.QUIET_S
    for path in folder.iterdir():
        os.utime(path, (long_ago, long_ago))


def own_owner(is_old=False):
    """This process as `mc_board_owner` names it; old versions knew no namespaces of process numbers."""
    with open("/proc/self/stat") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    tag = 0 if is_old else (os.stat("/proc/self/ns/pid").st_ino - 0xEFFFFFFC) * 0x9E3779B1
    return os.getpid() << 32 | (start ^ tag) & 0xFFFFFFFF


def write_board(path, owner, heartbeat=1):
    """A board of some version with one job on it."""
    board = np.zeros(1, contract.dtype("mc_board"))
    board["magic"], board["n_slots"], board["slot_bytes"] = contract.MC_MAGIC, 2, 64
    board["slots_at_bytes"] = 4096
    slots = np.zeros((2, 8), np.uint64)
    slots[1, :2] = owner, heartbeat
    path.write_bytes(board.tobytes()[:4096].ljust(4096, b"\0") + slots.tobytes())


@pytest.mark.parametrize("name", ["mpicoloc.abi3.board", "mpicoloc.board"])
def test_a_board_stays_while_a_job_on_it_may_live(folder, name):
    """Of versions that gave it no number, any word may name a living process, or a moment just past."""
    path = folder / name
    write_board(path, 1 << 32 | 1, heartbeat=time.monotonic_ns())  # perhaps out of sight, in a container
    assert leftovers.boards(str(folder)) == []
    if name == "mpicoloc.board":
        write_board(path, own_owner(is_old=True))
        assert leftovers.boards(str(folder)) == []
    path.write_bytes(b"whatever")  # of nobody knows what
    assert leftovers.boards(str(folder)) == []
    write_board(path, 1 << 32 | 1)
    assert check.left_behind(remove=True).text == f"removed 1 file of dead jobs: {name}"
    assert not path.exists()


def test_boards_of_other_versions_are_named_with_their_owners(folder):
    write_board(folder / os.path.basename(contract.board_path()), 0)
    assert check.foreign_boards() == []
    path = folder / "mpicoloc.abi9999.board"
    write_board(path, own_owner(), time.monotonic_ns())
    (finding,) = check.foreign_boards()
    assert finding.state == "note" and f"{path} of user {os.geteuid()}" in finding.text
    assert contract.n_foreign() == 1
    write_board(path, own_owner())  # any process may be named: without a sign of life it is nobody's board
    assert contract.n_foreign() == 0


def test_a_job_tells_at_its_end_of_another_version_that_came(folder):
    write_node()
    write_rank(0)
    path = folder / "mpicoloc.abi9999.board"
    for owner, is_told in ((0, False), (own_owner(), True)):
        write_board(path, owner, time.monotonic_ns())
        assert any("another version" in note for note in collect(KEY).facts["notes"]) == is_told


def found(folder, **options):
    return [one.key for one in leftovers.find(str(folder), **options)]


def test_a_dead_job_is_named_and_removed_when_asked(folder):
    dead_job(folder)
    write_board(folder / "mpicoloc.abi1.board", 1 << 32 | 1)  # process 1 began at another time
    write_board(folder / "mpicoloc.abi2.board", own_owner())
    (folder / "other").touch()
    finding = check.left_behind()
    assert finding.state == "note" and KEY in finding.text and "5 files" in finding.text
    assert finding.remedy == "mpicoloc check --clean"
    assert len(list(folder.iterdir())) == 7
    assert check.left_behind(remove=True).text == f"removed 5 files of dead jobs: {KEY}, mpicoloc.abi1.board"
    assert sorted(os.listdir(folder)) == ["mpicoloc.abi2.board", "other"]
    assert check.left_behind().state == "ok"


def test_a_job_with_a_living_rank_is_left_alone(folder):
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    dead_job(folder, pid=os.getpid(), pid_start_ticks=ticks)
    assert found(folder) == []
    dead_job(folder, pid=os.getpid(), pid_start_ticks=ticks + 1)  # the number was given to another process
    assert found(folder) == [KEY]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_job_with_a_living_keeper_or_coordinator_is_left_alone(folder, how):
    dead_job(folder)
    command = [sys.executable, "-c", "print(1, flush=True); input()", *([KEY] if how == "argument" else [])]
    env = {**os.environ, **({"MPICOLOC_KEY": KEY} if how == "environment" else {})}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert found(folder) == []
        process.communicate(b"\n", timeout=30)
    assert found(folder) == [KEY]


def test_recent_signs_of_life_protect(folder):
    dead_job(folder, t_last=time.monotonic_ns())
    assert found(folder) == []
    assert found(folder, quiet_s=0.0) == [KEY]
    dead_job(folder)
    os.utime(contract.shm_path(KEY, "init"))
    assert found(folder) == []


def test_looking_takes_no_memory(shm_dir):
    """In a folder that is full, filling a hole would kill the one who looks."""
    path = write_rank(0)
    with open(path, "r+b") as file:
        file.truncate(4096)
        file.truncate(contract.dtype("mc_segment").itemsize)
    before = os.stat(path).st_blocks
    assert found(shm_dir, quiet_s=0.0) == [KEY]
    assert os.stat(path).st_blocks == before


def test_other_versions_users_and_jobs_are_left_alone(folder, monkeypatch):
    dead_job(folder, abi_version=contract.MC_ABI_VERSION + 1)
    assert found(folder) == []
    dead_job(folder)
    assert found(folder, key=KEY[:-1]) == [] and found(folder, key=KEY) == [KEY]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert found(folder) == []


@pytest.mark.parametrize("what", ["init", "0.seg"])
def test_run_does_not_wait_for_files_that_nobody_will_remove(folder, tmp_path, what):
    """A launcher that is killed while its job starts: the keeper was not there yet, or is dead too."""
    write_rank(0)
    os.rename(contract.shm_path(KEY, "0.seg"), tmp_path / "file")
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }\n'
        f'cp {tmp_path}/file "$MPICOLOC_SHM_DIR/mpicoloc.$MPICOLOC_KEY.{what}"\nkill -9 $$\n'
    )
    mpirun.chmod(0o755)
    started_s = time.monotonic()
    command = [sys.executable, "-m", "mpicoloc", "run", "-n", "1", "--mpirun", str(mpirun), sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 137, done.stderr
    assert os.listdir(folder) == []
    assert time.monotonic() - started_s < 8.0


def test_what_outlives_a_killed_job_is_waited_for(folder, monkeypatch):
    """It is another job's otherwise, or nobody's any more."""
    dead_job(folder, job_id=b"7")
    start = client.Start(7, os.getuid(), 1, 1, False, "7")
    assert close.wait_for_writers(start, str(folder), 60.0), "it is gone"
    command = [sys.executable, "-c", "print(1, flush=True); input()", KEY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert leftovers.processes(leftovers.files(str(folder))) == {process.pid}
        assert not close.wait_for_writers(start, str(folder), 0.3)
        assert close.wait_for_writers(replace(start, job=8), str(folder), 60.0)
        end = threading.Timer(1.0, process.communicate, [b"\n"])
        end.start()
        looks, entries = [], init_barrier.entries
        monkeypatch.setattr(init_barrier, "entries", lambda *what: looks.append(what) or entries(*what))
        assert close.wait_for_writers(start, str(folder), 60.0)
        end.join()
        assert looks.count((str(os.getpid()), "environ")) <= 2, "all of /proc: before the wait and after"
