"""Ranks whose processor somebody else had: the profile tells what they did not get."""

import os
import subprocess
import sys

import jobs
import pytest

from mpicoloc.cli.main import main
from mpicoloc.measure.processor import run_delay_frac

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(jobs.LIMIT_S + 20)]
NAP_US = 50_000
BUSY = "import time; end = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


@pytest.fixture
def mpi(tmp_path):
    """MPICH's ranks poll while they wait, so busy ones are ready to run all the time."""
    return jobs.need_mpi("mpich", tmp_path)


@pytest.fixture
def one_processor():
    """This process, and so what it starts, on one processor of its own choice."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def other(one_processor):
    """A busy process there, in a session of its own.

    Linux shares processors first among sessions, and one that is busy on other processors too, such as that
    of a test run, gets less of this one.
    """
    with subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) as process:
        yield
        process.kill()


@pytest.fixture
def ran(mpi, start):
    """Run a job to its end; its profile, and where that is."""

    def run(*arguments, n_ranks):
        job = start(mpi, "preload", *arguments, n_ranks=n_ranks)
        assert job.wait() == 0, job.log
        return job.profile(), job.out_path

    return run


def shown(path, capsys):
    assert main(["show", str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_what_a_busy_rank_did_not_have_it_waited_for(ran):
    """A quiet run has nothing to tell, and on a machine of any load the two times make the whole.

    More than the whole where threads of the MPI library wait for a processor while another one runs.
    """
    profile, _ = ran("finalize", 2, n_ranks=2)
    ranks, found = profile.tables["ranks"], profile.interference
    assert (ranks["run_delay_s"] >= 0).all()
    together = (ranks["cpu_s"] + ranks["run_delay_s"]) / ranks["wall_s"]
    assert together.min() > 0.9 and together.max() < 1.5, together
    assert found.cpu_s == pytest.approx(ranks["cpu_s"].sum())
    assert found.run_delay_s == pytest.approx(ranks["run_delay_s"].sum())


def test_a_rank_that_sleeps_waits_for_no_processor(ran):
    """Its sleep is no run delay; others on the machine cause some at each of its wakings."""
    profile, _ = ran("finalize", 3, NAP_US, n_ranks=1)
    ranks = profile.tables["ranks"]
    assert (ranks["cpu_s"] < 0.2 * ranks["wall_s"]).all(), "it did not sleep"
    assert profile.interference.run_delay_s < 0.5 * ranks["wall_s"].sum()


def test_a_process_without_mpicoloc_beside_a_job(ran, capsys, other):
    profile, path = ran("finalize", 3, n_ranks=1)
    found = profile.interference
    assert found.slowdown.method == "alone"
    # Half, if both are alone there.
    assert run_delay_frac(found.cpu_s, found.run_delay_s) > 0.05
    text = shown(path, capsys)
    assert "slowdown 1 (no co-runner under mpicoloc)" in text
    assert "processes without mpicoloc, the job's own threads, or a limit on processor time took it" in text


def test_a_process_without_mpicoloc_beside_two_jobs(mpi, start, capsys, other):
    """It has the processor while the co-runner stands still, so the co-runner does not explain it."""
    both = [start(mpi, "preload", "finalize", 8, n_ranks=1, name=name) for name in ("one", "two")]
    assert [job.wait() for job in both] == [0, 0]
    for job in both:
        assert job.profile().interference.foreign_delay_frac > 0.05
        assert "of the time that co-runners stood still: processes without" in shown(job.out_path, capsys)


def test_more_ranks_than_processors(ran, capsys, one_processor):
    profile, path = ran("finalize", 2, n_ranks=6)
    found = profile.interference
    assert run_delay_frac(found.cpu_s, found.run_delay_s) > 0.7  # 5/6, but for what they sleep
    assert found.involuntary_switches > 0
    assert "6 ranks share 1 processor of their node" in shown(path, capsys)
