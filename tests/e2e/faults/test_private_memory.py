"""Jobs that have a /dev/shm of their own, as containers and Slurm's job_container/tmpfs give it."""

import os
import subprocess
import sys

import jobs
import pytest

from mpicoloc.profile import hdf5

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * jobs.LIMIT_S + 40),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts what it likes"),
]
OWN_MEMORY = 'mount -t tmpfs -o mode=1777 none "$0"; exec "$@"'
OWN_NUMBERS = ["--pid", "--fork", "--kill-child", "--mount-proc"]
NAP_US = 2000


def apart(folder, *namespaces):
    """Prefix that runs a command with its own tmpfs at `folder`, and in these further namespaces."""
    return ["unshare", "--mount", *namespaces, "sh", "-ec", OWN_MEMORY, folder]


@pytest.fixture
def mpich(tmp_path):
    """Of Open MPI two launchers of one process number on one host are in each other's way, in /tmp."""
    return jobs.need_mpi("mpich", tmp_path)


@pytest.fixture
def start_apart(start, mpich, tmp_path, shm_dir):
    def start_one(name, way="preload", *namespaces, until=None):
        words = ["finalize", jobs.LIMIT_S, NAP_US, until or tmp_path / "end"]
        return start(mpich, way, *words, name=name, before=apart(shm_dir, *namespaces))

    return start_one


def company(job):
    return job.profile().tables["corunners"]["job_id"].tolist()


@pytest.mark.serial
@pytest.mark.parametrize("namespaces", [[], OWN_NUMBERS], ids=["memory", "memory_and_numbers"])
@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_jobs_with_memory_of_their_own_measure_each_other(start_apart, tmp_path, way, namespaces):
    first, second = (start_apart(name, way, *namespaces) for name in ("first", "second"))
    with pytest.raises(subprocess.TimeoutExpired):
        first.process.wait(12)
    (tmp_path / "end").touch()
    for job, other in ((first, b"second"), (second, b"first")):
        assert job.wait() == 0, job.log
        profile = job.profile()
        assert not profile.partial
        assert company(job) == [other]
        assert profile.interference.n_used > 0, profile.notes
        assert profile.interference.shared_s > 5


def test_the_board_goes_on_when_the_job_that_made_it_ends(start_apart, tmp_path):
    """It lies in the first job's memory, which nobody else has."""
    ends = {name: tmp_path / f"end-{name}" for name in ("first", "second", "third")}
    first, second = (start_apart(name, until=ends[name]) for name in ("first", "second"))
    with pytest.raises(subprocess.TimeoutExpired):
        first.process.wait(4)
    ends["first"].touch()
    assert first.wait() == 0, first.log
    third = start_apart("third", until=ends["third"])
    with pytest.raises(subprocess.TimeoutExpired):
        third.process.wait(4)
    ends["third"].touch()
    assert third.wait() == 0, third.log
    ends["second"].touch()
    assert second.wait() == 0, second.log
    assert company(first) == [b"second"]
    assert company(third) == [b"second"]
    assert sorted(company(second)) == [b"first", b"third"]


def test_a_job_that_may_have_company_out_of_sight_is_not_called_alone(mpich, tmp_path, monkeypatch):
    """Neither /dev/shm nor the network is the node's; a folder that is named is the node's."""
    for named in ("", "/dev/shm"):
        out = tmp_path / f"job{len(named)}.h5"
        given = {"MPICOLOC_SHM_DIR": named} if named else {}
        run = [sys.executable, "-m", "mpicoloc", "run", "-n", "2", "--out", out, "--mpirun", mpich.mpirun]
        command = [*apart("/dev/shm", "--net"), *run, "--", mpich.program, "finalize", "0.5", NAP_US]
        job = jobs.launch(command, tmp_path, out=out, env=given)
        assert job.wait() == 0, job.log
        found = hdf5.read(out)
        assert (found.interference.slowdown is None) == (not named)
        assert any("neither /dev/shm nor the network" in note for note in found.notes) == (not named)
        if not named:
            assert "out of sight" in found.interference.reason
            price = subprocess.run([sys.executable, "-m", "mpicoloc", "price", str(out)], capture_output=True,
                                   text=True, timeout=jobs.LIMIT_S, check=False)  # fmt: skip
            assert "not measured" in price.stdout + price.stderr


def test_jobs_with_the_same_process_number_have_a_profile_each(mpich, tmp_path, started):
    run = [sys.executable, "-m", "mpicoloc", "run", "-n", "2", "--mpirun", mpich.mpirun, "--", mpich.program]
    script = 'unset MPICOLOC_OUT MPICOLOC_JOB_ID; exec "$@"'
    for name in ("first", "second"):
        command = [*apart("/dev/shm", *OWN_NUMBERS), "sh", "-c", script, "sh", *run, "finalize", "1", NAP_US]
        started.append(jobs.launch(command, tmp_path, name=name))
    assert [job.wait() for job in started] == [0, 0], started[0].log + started[1].log
    assert len(list(tmp_path.glob("mpicoloc-*.h5"))) == 2


def test_the_proc_of_another_namespace_switches_off_with_one_line(start, openmpi, shm_dir):
    """MPICH itself ends there."""
    before = apart(shm_dir, *OWN_NUMBERS[:-1])
    job = start(openmpi, "preload", "finalize", "0.2", before=before)
    assert job.wait() == 0, job.log
    (line,) = [line for line in job.log.splitlines() if line.startswith("mpicoloc: ")]
    assert "switched off" in line and "unshare --mount-proc" in line


@pytest.mark.parametrize(("namespaces", "is_sure"), [([], True), (["--net"], False)])
def test_check_tells_whether_jobs_are_out_of_sight(namespaces, is_sure):
    command = [*apart("/dev/shm", *namespaces), sys.executable, "-m", "mpicoloc", "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=False)
    (line,) = [line for line in done.stdout.splitlines() if " co-runners " in line]
    assert line.startswith("ok" if is_sure else "note"), done.stdout
    assert is_sure or "MPICOLOC_SHM_DIR=/dev/shm" in done.stdout
