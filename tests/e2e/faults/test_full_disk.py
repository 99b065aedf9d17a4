"""A disk that refuses: the program ends as without us, and the profile is whole, here or elsewhere."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jobs
import pytest

from mpicoloc.profile import hdf5

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * jobs.LIMIT_S),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system"),
]
SIZES_KIB = range(4, 65, 4)

WRITE = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
import sample  # noqa: E402
from mpicoloc.errors import EnvironmentFault
from mpicoloc.profile import hdf5  # noqa: E402

profile = sample.profile(n_shutters=300)
for size in sys.argv[3:]:
    if pid := os.fork():
        print(size, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    path = f"{sys.argv[2]}/{size}/job.h5"
    try:
        hdf5.write(profile, path)
    except EnvironmentFault as error:
        assert "No space left" in str(error) or "quota" in str(error), error
        assert not os.listdir(f"{sys.argv[2]}/{size}")
        sys.exit(4)
    assert hdf5.read(path).tables["shutters"].tobytes() == profile.tables["shutters"].tobytes()
    sys.exit(0)  # with the exit handlers, where a failed write used to crash
"""


@pytest.fixture
def mounted():
    """Mount file systems in memory that only this test sees filled; called with a folder and its options."""
    folders = []

    def mount(folder, options):
        folder.mkdir(parents=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], timeout=10)
        if done.returncode == 0:
            folders.append(folder)
        return done.returncode == 0

    yield mount
    for folder in folders:
        subprocess.run(["umount", "-l", folder], check=True, timeout=10)


def write_to_all(folder, names, before=()):
    command = [*before, sys.executable, "-c", WRITE, os.pathsep.join(sys.path), folder, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S)
    assert done.returncode == 0, done.stderr
    codes = {name: int(code) for name, code in (line.split() for line in done.stdout.splitlines())}
    assert list(codes) == list(names)
    assert set(codes.values()) <= {0, 4}, f"{codes} {done.stderr}"
    return codes


def test_a_profile_is_written_whole_or_refused_whatever_room_there_is(tmp_path, mounted):
    names = [str(size) for size in SIZES_KIB]
    for name in names:
        assert mounted(tmp_path / name, f"size={name}k")
    codes = write_to_all(tmp_path, names)
    assert codes[names[0]] == 4, "too small for any profile"
    assert codes[names[-1]] == 4 or list(codes.values()) == sorted(codes.values(), reverse=True)


def test_a_quota_is_a_full_disk(mounted):
    with tempfile.TemporaryDirectory(prefix="mpicoloc-quota-") as folder:
        os.chmod(folder, 0o755)
        if not mounted(Path(folder) / "8", "mode=777,usrquota,usrquota_block_hardlimit=8k"):
            pytest.skip("this kernel has no quota for tmpfs (Linux 6.6)")
        assert write_to_all(folder, ["8"], jobs.as_user(65533)) == {"8": 4}


@pytest.mark.parametrize("size_kib", [8, 32])
@pytest.mark.parametrize("way", ["run", "preload"])
def test_a_job_whose_disk_is_full_ends_well_and_its_profile_is_elsewhere(
    openmpi, started, tmp_path, shm_dir, monkeypatch, mounted, way, size_kib
):
    full, elsewhere = tmp_path / "full", tmp_path / "elsewhere"
    assert mounted(full, f"size={size_kib}k")
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    out = full / "job.h5"
    if way == "run":
        command = [sys.executable, "-m", "mpicoloc", "run", "-n", "2", "--mpirun", openmpi.mpirun, "--out",
                   out]  # fmt: skip
        done = subprocess.run(
            [*command, openmpi.program, "finalize", "0.3"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=jobs.LIMIT_S,
        )
        code, said = done.returncode, done.stdout + done.stderr
    else:
        job = jobs.start(openmpi, tmp_path, "preload", "finalize", 0.3, out=out)
        started.append(job)
        code, said = job.wait(), job.log
    assert code == 0, said
    (line,) = [line for line in said.splitlines() if "No space left" in line]
    assert line.startswith(f"mpicoloc: profile cannot be written to {out} (") and line.endswith(
        f"so it is in {elsewhere / 'job.h5'}"
    )
    assert not hdf5.read(elsewhere / "job.h5").partial
    assert not list(full.iterdir())
    jobs.assert_nothing_left(shm_dir)
    shutil.rmtree(elsewhere)
