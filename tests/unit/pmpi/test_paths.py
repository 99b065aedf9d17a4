"""Locations of the installed parts, and who can reach them."""

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mpicoloc.pmpi import paths


@pytest.fixture
def opened():
    """A program below folders, and a link to it, all of them open to everybody."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        tree = Path(folder)
        (tree / "a" / "b").mkdir(parents=True)
        program = tree / "a" / "b" / "python"
        program.write_text("")
        os.symlink(program, tree / "link")
        for path in (tree, tree / "a", tree / "a" / "b", program):
            path.chmod(0o755)
        yield tree


def test_a_closed_folder_above_or_a_file_that_others_may_not_read_is_named(opened):
    for name, mode in (("a/b/python", 0o700), ("a/b", 0o750), ("a", 0o700)):
        assert paths.closed_to_others([str(opened / "link"), str(opened / "a/b/python")]) is None
        (opened / name).chmod(mode)
        path, barrier = paths.closed_to_others([str(opened / "link")])
        assert (path, barrier) == (str(opened / "link"), str(opened / name)), "where the link leads to counts"
        (opened / name).chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.timeout(120)
def test_what_it_says_is_so_for_another_user(opened):
    def can_read():
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", opened / "link"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=60).returncode == 0

    for name, mode in (("a", 0o755), ("a/b/python", 0o700), ("a/b", 0o700), ("a", 0o711)):
        (opened / name).chmod(mode)
        assert can_read() == (paths.closed_to_others([str(opened / "link")]) is None), (name, oct(mode))
        (opened / name).chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("listed", "mask"), [(5, 7), (4, 7), (5, 0), (0, 7)])
def test_an_access_list_may_open_what_the_mode_closes(opened, listed, mask, user=65534):
    def entry(tag, allowed, uid=0xFFFFFFFF):
        return struct.pack("<HHI", tag, allowed, uid)

    folder = opened / "a"
    entries = [entry(0x01, 7), entry(0x02, listed, user), entry(0x04, 0), entry(0x10, mask), entry(0x20, 0)]
    try:
        os.setxattr(folder, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(entries))
    except OSError:
        pytest.skip("this file system has no access lists")
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "cat", opened / "link"]
    done = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=60)
    assert (done.returncode == 0) == (paths.closed_to_others([str(opened / "link")]) is None)


@pytest.mark.timeout(120)
def test_slurm_build_and_up_tell_that_users_cannot_reach_it(opened):
    (opened / "a" / "b").chmod(0o700)
    code = "from mpicoloc.slurm import verb; verb._warn_if_closed(*__import__('sys').argv[1:])"
    command = [sys.executable, "-c", code, opened / "a" / "b" / "python"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert len(done.stderr.splitlines()) == 1
    assert (
        f"cannot reach {opened / 'a' / 'b' / 'python'}, because {opened / 'a' / 'b'} is closed" in done.stderr
    )
