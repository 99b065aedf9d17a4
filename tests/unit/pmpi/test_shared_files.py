"""Files that other users may put where this user's are expected: nobody waits for them or believes them."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rank_files import KEY, write_node, write_rank

from mpicoloc.errors import EnvironmentFault
from mpicoloc.job import check, init_barrier, live
from mpicoloc.pmpi import contract, elf
from mpicoloc.profile import checkpoints
from mpicoloc.profile.collect import CHECKPOINT_TROUBLE, collect

STRANGER = 54321
"""A number that no account has."""
BLOCKED_S = 60
"""None of these tests takes so long unless something waits for good."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of two users")


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    shm = tmp_path / "shm"
    shm.mkdir()
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(shm))
    signal.alarm(BLOCKED_S)  # ends the test run, as nothing else would
    yield shm
    signal.alarm(0)


def fifo(path):
    os.mkfifo(path, 0o666)


def foreign(path):
    Path(path).write_bytes(b"mine")
    os.chown(path, STRANGER, STRANGER)
    os.chmod(path, 0o666)


def link(path):
    os.symlink("/etc/passwd", path)


@pytest.mark.parametrize("put", [fifo, link, os.mkdir, pytest.param(foreign, marks=as_root)])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_RDWR])
def test_only_a_regular_file_of_ones_own_is_opened(folder, put, flags):
    path = folder / "there"
    put(path)
    with pytest.raises(OSError):
        contract.open_shared(path, flags)
    assert not contract.is_own_file(path)


@as_root
def test_a_board_may_be_anybodys(folder):
    foreign(folder / "there")
    with contract.open_shared(folder / "there", is_own=False) as file:
        assert file.read() == b"mine"


def test_what_is_made_is_private(folder):
    with contract.open_shared(folder / "new", os.O_WRONLY | os.O_CREAT) as file:
        file.write(b"text")
    assert (folder / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("put", [fifo, link, os.mkdir])
def test_check_and_top_say_so_of_a_board(folder, put):
    put(contract.board_path())
    finding = check.board()
    assert finding.state == "fail"
    assert contract.board_path() in finding.text
    assert finding.remedy.startswith(f"as user {os.geteuid()} or root")
    with pytest.raises(EnvironmentFault, match="cannot read the board"):
        live.jobs()


def test_names_on_the_board_do_not_reach_the_terminal_as_they_are(folder):
    board = np.zeros(1, contract.dtype("mc_board"))
    board["magic"], board["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    board["size_bytes"] = board.nbytes
    board["slots"]["owner"][0, 2:4], board["slots"]["job_id"][0, 3] = 1, b"\x1b[31mred\nline"
    slot_bytes = contract.dtype("mc_slot").itemsize
    with open(contract.board_path(), "wb") as file:
        file.write(board.tobytes())
        file.flush()
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, board.nbytes - 61 * slot_bytes, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)  # the other one has ended
        assert check.board().text == "1 job on this node: ?[31mred?line"
    assert check.board().text == "0 jobs on this node"


@as_root
@pytest.mark.parametrize("name", ["7.seg", "none.seg", "-1.seg"])
def test_a_segment_of_another_user_is_no_part_of_a_job(folder, name):
    write_node()
    write_rank(0)
    path = Path(contract.shm_path(KEY, name))
    path.write_bytes(Path(contract.shm_path(KEY, "0.seg")).read_bytes())
    os.chown(path, STRANGER, STRANGER)
    os.chmod(path, 0o644)
    assert len(collect(KEY).tables["ranks"]) == 1
    assert [head.world_rank for head in contract.segment_heads(KEY)] == [0]


def test_pipes_in_place_of_a_jobs_small_files_keep_nobody_waiting(folder):
    write_node()
    write_rank(0, out_path=str(folder / "no" / "such" / "folder" / "job.h5").encode())
    for what in ("log", "init", "init-probe", CHECKPOINT_TROUBLE):
        fifo(contract.shm_path(KEY, what))
    announcement = contract.shm_path(KEY, "init")
    assert checkpoints.main([KEY]) == 4
    assert init_barrier.announced(announcement) == [("init", 0)]
    init_barrier.Record(announcement).begin(0)
    assert init_barrier.wait_for_init(KEY, announcement, 1)
    assert len(collect(KEY).tables["ranks"]) == 1
    fifo(contract.shm_path(KEY, "1.seg"))
    segment = contract.map_file(contract.shm_path(KEY, "0.seg"))
    contract.tell_profile(KEY, contract.MC_PROFILE_FAILED, "a line")
    assert contract.text(segment["complaint"]) == "a line"


def test_a_pipe_in_place_of_a_library_that_ran_keeps_nobody_waiting(folder):
    fifo(folder / "liba.so")
    with pytest.raises(OSError, match="not a regular file"):
        elf.build_id(str(folder / "liba.so"))
    write_rank(0)
    path = Path(contract.shm_path(KEY, "0.seg"))
    segment = np.fromfile(path, contract.dtype("mc_segment"), 1)
    segment["modules"]["path"][0, 0] = str(folder / "liba.so").encode()
    segment.tofile(path)
    assert collect(KEY).tables["modules"]["build_id"].tolist() == [b""]


def test_the_command_ends_too(folder):
    fifo(contract.board_path())
    for verb in ("check", "top"):
        done = subprocess.run(
            [sys.executable, "-m", "mpicoloc", verb], capture_output=True, timeout=BLOCKED_S - 2, check=False
        )
        assert done.returncode in (1, 4), done.stderr
