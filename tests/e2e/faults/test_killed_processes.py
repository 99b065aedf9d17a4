"""Whatever is done to mpicoloc, the program ends as without it, and what is said of the profile is so."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import jobs
import processes
import pytest

from mpicoloc.core.profile import VERDICTS
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * jobs.LIMIT_S + 20)]
AFTER_S = 2.0
IGNORED = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
WAYS = [("preload", "openmpi"), ("preload", "mpich"), ("run", "openmpi"), ("run", "mpich")]


@dataclass
class Ended:
    code: int
    own: list[str]
    """Lines of mpicoloc's, without the one of `run` that says where the profile is or would be."""
    log: str
    out: Path

    def profile(self):
        assert self.out.exists(), self.log
        return hdf5.read(self.out)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The test program of each family."""
    folder = tmp_path_factory.mktemp("endings")
    found = {}
    for name in jobs.FAMILIES:
        (folder / name).mkdir()
        found[name] = jobs.find_mpi(name, folder / name, "endings.c")
    return found


@pytest.fixture
def end(programs, tmp_path, shm_dir):
    """Run a job of two ranks to its end: ``end(way, family, arguments ..., before=commands)``.

    Where something is done `during` the job, it ends some time after that.
    """

    def run(way, family, *arguments, before=(), during=None):
        mpi = programs[family]
        if mpi is None:
            pytest.skip(f"no {family} here, or no shim for it")
        out, over = tmp_path / "job.h5", tmp_path / "over"
        if during is not None:
            arguments = [over]
        command = [*before, mpi.mpirun, *mpi.flags, "-n", "2", "env",
                   f"LD_PRELOAD={mpi.shim}"]  # fmt: skip
        if way == "run":
            command = [*before, sys.executable, "-m", "mpicoloc", "run", "-n", "2", "--mpirun", mpi.mpirun]
        job = jobs.launch([*command, mpi.program, *arguments], tmp_path, out=out)
        try:
            if during is not None:
                during()
                time.sleep(AFTER_S)
                over.touch()
            code = job.process.wait(jobs.LIMIT_S)
        finally:
            job.kill()
        said = job.log
        last = (f"mpicoloc: profile {out}", f"mpicoloc: no profile was written to {out}: ")
        own = [line for line in said.splitlines() if line.startswith("mpicoloc: ")]
        if way == "run":
            own = [line for line in own if not line.startswith(last)]
            n_last = sum(line.startswith(last) for line in said.splitlines())
            assert n_last == 1 or (n_last == 0 and own and not out.exists()), said
        return Ended(code, own, said, out)

    return run


def limited(kib):
    """Prefix that limits the files of a command to `kib` KiB."""
    return ["bash", "-c", f'ulimit -f {kib}; exec "$@"', "bash"]


def left(shm_dir):
    return sorted(path.name for path in shm_dir.iterdir())


@pytest.mark.parametrize(("way", "family"), WAYS)
def test_a_limit_of_file_sizes_below_a_segment_switches_off(end, shm_dir, way, family):
    job = end(way, family, 0.2, before=limited(5000))
    assert job.code == 0, job.log
    (line,) = job.own
    assert "switched off" in line and "ulimit -f" in line
    assert job.log.count("mpicoloc: ") == 1, "`run` adds none"
    assert left(shm_dir) == []
    assert not job.out.exists()


def test_a_launcher_that_a_limit_makes_hang_is_ended(end, shm_dir):
    """Open MPI's own memory is larger; 4.1.4 hangs now and then, and does not hear SIGTERM."""
    job = end("run", "openmpi", 0.2, before=limited(1000))
    assert job.code != 0
    assert left(shm_dir) == []


@pytest.mark.parametrize("family", sorted(jobs.FAMILIES))
def test_the_program_ignores_no_signals_that_python_does(end, family):
    job = end("run", family, 0.2)
    assert job.code == 0, job.log
    (line,) = [line for line in job.log.splitlines() if line.startswith("SigIgn:")]
    assert int(line.split()[1], 16) & IGNORED == 0


@pytest.mark.parametrize(("way", "family"), WAYS)
def test_a_filter_that_refuses_openat_after_init(end, shm_dir, way, family):
    job = end(way, family, 0.2, "filter")
    assert (job.code, job.own) == (0, []), job.log
    assert not job.profile().partial
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace of processes")
@pytest.mark.parametrize(("way", "family"), WAYS)
def test_a_namespace_of_processes_that_ends_with_the_launcher(end, shm_dir, way, family):
    job = end(way, family, 0.5, before=["unshare", "-p", "-f", "-m", "--mount-proc"])
    assert (job.code, job.own) == (0, []), job.log
    assert left(shm_dir) == [], "at once: nobody is left who could remove anything"
    assert not job.profile().partial


@pytest.mark.parametrize(("way", "family"), WAYS)
def test_files_in_memory_that_somebody_deletes(end, shm_dir, way, family):
    def delete():
        jobs.wait_until(lambda: len(list(shm_dir.glob("*.seg"))) == 2, "the segments")
        jobs.wait_until(lambda: list(shm_dir.glob("*.node")), "the node file")
        time.sleep(2.0)
        for path in shm_dir.iterdir():
            path.unlink(missing_ok=True)

    job = end(way, family, during=delete)
    assert (job.code, job.own) == (0, []), job.log
    profile = job.profile()
    assert not profile.partial
    assert (profile.tables["call_sites"]["n"].sum()) > 20
    jobs.assert_nothing_left(shm_dir)


@pytest.mark.parametrize(("way", "family"), WAYS)
def test_the_keeper_is_killed(end, shm_dir, way, family):
    """The coordinator writes the profile, or another keeper that the first rank starts."""

    def kill():
        jobs.wait_until(lambda: len(list(shm_dir.glob("*.seg"))) == 2, "the segments")
        jobs.wait_until(lambda: jobs.keeper_of(shm_dir), "the keeper")
        time.sleep(0.5)
        os.kill(jobs.keeper_of(shm_dir), signal.SIGKILL)

    job = end(way, family, during=kill)
    assert (job.code, job.own) == (0, []), job.log
    profile = job.profile()
    assert not profile.partial
    assert "keeper" in profile.interference.reason
    assert profile.interference.slowdown is None
    assert profile.price.discount_frac == 0.0
    jobs.wait_until(lambda: not list(shm_dir.glob("*.seg")) and not list(shm_dir.glob("*.node")), "the end")


@pytest.mark.parametrize("how", ["once", "always"])
def test_the_writer_is_killed(end, shm_dir, how):
    """As where memory is short: it is tried again, then a part is left, of which a profile is made."""
    is_over = threading.Event()
    killed = []

    def hunt():
        while not is_over.is_set() and not (how == "once" and killed):
            for pid in writers(shm_dir):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.005)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        job = end("preload", "openmpi", 0.3)
    finally:
        is_over.set()
        hunter.join()
    assert job.code == 0, job.log
    assert killed
    jobs.assert_nothing_left(shm_dir)
    if how == "once":
        assert job.own == []
        assert not job.profile().partial
        return
    (line,) = job.own
    assert "killed twice" in line and f"`mpicoloc recover {job.out}`" in line
    assert not job.out.exists()
    recover = [sys.executable, "-m", "mpicoloc", "recover", job.out]
    subprocess.run(recover, check=True, timeout=jobs.LIMIT_S, capture_output=True)
    assert job.profile().job.n_ranks == 2


def writers(shm_dir):
    """Processes that write a profile of a job there, as they have begun Python."""
    own = f"MPICOLOC_SHM_DIR={shm_dir}".encode()
    return processes.matching(cmdline=[b"mpicoloc.profile.assemble"], environ=[own])


@pytest.mark.parametrize(("way", "family"), WAYS)
def test_a_program_that_does_not_call_init_gets_one_line(end, shm_dir, way, family):
    job = end(way, family, 0, "no-init")
    assert job.code == 5, job.log
    if (way, family) != ("run", "openmpi"):  # whose launcher may end the coordinator before it can say so
        (line,) = job.own
        assert "no profile was written: " in line and "MPI_Init" in line
        assert job.log.count("mpicoloc: ") == 1, "`run` adds none"
    assert left(shm_dir) == []


@pytest.mark.parametrize("family", sorted(jobs.FAMILIES))
def test_a_job_of_no_time_says_why_nothing_was_measured(end, family):
    profile = end("preload", family, 0).profile()
    found = [note for note in profile.notes if "node agent" in note]
    assert found in ([], ["no node agent watched this job: the job ended before it had started"])
    assert VERDICTS.index("elsewhere") not in profile.tables["shutters"]["verdict"]
