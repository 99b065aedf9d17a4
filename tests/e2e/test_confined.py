"""Jobs that the kernel confines to their processors, as Slurm confines steps: co-runners press for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import bubbled_jobs
import jobs
import pytest

from mpicoloc.bubble.shutters import why_none
from mpicoloc.core.profile import VERDICTS

CPUSETS, CPU = Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup/cpu")
SHARES = 50_000
"""Others that want a processor get a fiftieth of it."""
SECONDS = 15
N_TRIES = 3
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]


def processes_in(group):
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def remove(group):
    """End what is left in the group, all of which this test has started."""
    for pid in processes_in(group):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    jobs.wait_until(lambda: not processes_in(group), f"{group} to be empty")
    group.rmdir()


def make(group, cpu):
    group.mkdir()
    (group / "cpuset.cpus").write_text(str(cpu))
    (group / "cpuset.mems").write_text((CPUSETS / "cpuset.mems").read_text())


@pytest.fixture
def groups():
    """Two groups of one processor each."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("needs two processors")
    made = [CPUSETS / f"mpicoloc-test-{os.getpid()}-{cpu}" for cpu in cpus]
    try:
        for group, cpu in zip(made, cpus, strict=True):
            make(group, cpu)
        yield made
    except OSError as error:
        pytest.skip(f"no cpusets can be made here: {error}")
    finally:
        for group in filter(Path.exists, made):
            remove(group)


@pytest.fixture
def heavy_groups(groups):
    """For each of these, one that has nearly all of its processor; none where that cannot be."""
    made = [CPU / group.name for group in groups]
    try:
        for group in made:
            group.mkdir()
            (group / "cpu.shares").write_text(str(SHARES))
        yield made
    except OSError:
        yield []
    finally:
        for group in filter(Path.exists, made):
            remove(group)


def inside(*groups):
    """Prefix that runs a command in these cgroups."""
    enter = "".join(f'echo $$ >"{group}/cgroup.procs" && ' for group in groups)
    return ["sh", "-c", f'{enter}exec "$@"', "sh"]


@pytest.fixture
def start_pair(groups, heavy_groups, calibrated, tmp_path, started, start):
    """Start two jobs beside each other in groups of their own, with these options each."""
    found = bubbled_jobs.find_mpi(tmp_path)
    for group, other in (groups, groups[::-1]):
        cpu = (other / "cpuset.cpus").read_text().strip()
        done = subprocess.run(
            [*inside(group), "taskset", "-c", cpu, "true"], capture_output=True, timeout=60, check=False
        )
        assert done.returncode != 0, "the other job's processor can be used from here"

    def start_both(seconds, *options, is_heavy=False):
        n = len(started)
        places = zip(groups, heavy_groups, strict=True) if is_heavy and heavy_groups else zip(groups)
        return [
            start(found, "preload", seconds, before=inside(*place), n_ranks=1, name=f"job{n + i}", env=of_job)
            for i, (place, of_job) in enumerate(zip(places, options, strict=True))
        ]

    return start_both


def finish(pair):
    """Their profiles, which bubbles have not harmed."""
    for job in pair:
        assert job.wait() == 0, job.log
    profiles = [job.profile() for job in pair]
    for shutters in (profile.tables["shutters"] for profile in profiles):
        assert set(shutters["bubble_level"]) <= {0.0, 2.0, 4.0, 6.0, 8.0}
        ran = (shutters["bubble_level"] > 0) | (shutters["probe_slowdown"] > 0)
        assert (shutters["verdict"][ran] == VERDICTS.index("bubbled")).all()
    return profiles


def idle_ticks():
    """Time of all processors without work, and all of their time."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[3], sum(ticks)


def is_quiet():
    """Whether nothing else wants the processors."""
    idle, whole = idle_ticks()
    time.sleep(1)
    idle_then, whole_then = idle_ticks()
    return idle_then - idle > 0.9 * (whole_then - whole)


def test_a_co_runner_presses_in_the_shutters_of_a_confined_job(start_pair):
    profiles, was_quiet = [], True
    for i in range(N_TRIES):
        was_quiet &= is_quiet()
        # A bubble takes only what nobody else wants of a processor: others give way from the second time on.
        pair = start_pair(SECONDS, bubbled_jobs.BUBBLES, bubbled_jobs.BUBBLES, is_heavy=i > 0)
        profiles += finish(pair)
        if any((profile.tables["shutters"]["bubble_level"] > 0).any() for profile in profiles):
            return
    n_counted = max(map(bubbled_jobs.n_counted, profiles))
    if n_counted < bubbled_jobs.MIN_COUNTED or not was_quiet:
        pytest.skip(f"others had the processors, or nothing was counted: {n_counted} shutters had counts")
    raise AssertionError(f"no bubble in {N_TRIES} runs: {[why_none(profile) for profile in profiles]}")


def test_a_confined_job_says_that_its_co_runner_has_to_have_bubbles_too(start_pair):
    with_bubbles, _ = finish(start_pair(SECONDS, bubbled_jobs.BUBBLES, {}))
    assert not (with_bubbles.tables["shutters"]["bubble_level"] > 0).any()
    if bubbled_jobs.n_counted(with_bubbles) < bubbled_jobs.MIN_COUNTED:
        pytest.skip("too few shutters had counts on this machine")
    assert "start those jobs with --bubble as well" in why_none(with_bubbles)


def test_no_bubble_outlives_the_keeper_of_who_presses(start_pair):
    before = bubbled_jobs.threads()
    pair = start_pair(60, bubbled_jobs.BUBBLES, bubbled_jobs.BUBBLES)
    keeper = bubbled_jobs.process_of(bubbled_jobs.pressing_thread(before))
    os.kill(keeper, signal.SIGKILL)
    jobs.wait_until(
        lambda: not [one for one in bubbled_jobs.threads() if bubbled_jobs.process_of(one) == keeper],
        "the bubble's threads to end",
    )
    for job in pair:
        assert job.process.poll() is None, job.log
