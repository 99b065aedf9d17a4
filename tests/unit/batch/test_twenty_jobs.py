"""The tutorial's twenty jobs as Slurm ran them, three ways, end in simulation when they ended in Slurm.

`twenty_jobs.json` is the accounting of whole runs of docs/tutorial/slurm-day.md: of each job the program, the
node, and when it was submitted, began and ended, s.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import day_simulated
import numpy as np
import pytest

RUNS = json.loads(Path(__file__).with_name("twenty_jobs.json").read_text())
NEAR_FRAC = 0.10
"""Of the makespan."""


@dataclass(frozen=True)
class Ended:
    name: str
    node: str
    submit_s: float
    start_s: float
    end_s: float


def jobs_of(run, way):
    return [Ended(*row) for row in RUNS[run][way]]


@pytest.mark.parametrize("run", range(len(RUNS)))
@pytest.mark.parametrize("way", ["exclusive", "shared", "pairs"])
def test_every_job_ends_within_a_tenth_of_the_makespan(run, way):
    jobs = jobs_of(run, way)
    assert len(jobs) == 20
    solo_s = day_simulated.alone_s(jobs_of(run, "exclusive"))
    found = day_simulated.ends_s(way, jobs, solo_s)
    real = np.array([job.end_s for job in jobs])
    makespan_s = real.max() - min(job.start_s for job in jobs)
    assert np.abs(found - real).max() <= NEAR_FRAC * makespan_s


def test_what_a_job_lost_beside_others_is_taken_from_its_time():
    """10 s of work: 4 s alone, 9 s beside another that costs 1.5, so 6 s of work in these."""
    solo_s = {"a": 10.0, "b": 6.0}
    jobs = [Ended("a", "n1", 0, 0, 13), Ended("b", "n1", 0, 4, 13)]
    assert day_simulated.slowdowns(jobs, solo_s) == {"a": 1.5, "b": 1.5}
    assert day_simulated.work_s(jobs, {"a": 1.5, "b": 1.5}) == pytest.approx([10, 6])


def test_a_second_job_comes_as_long_after_its_partner_as_it_did():
    """Exact: both slow each other by 1.5, the second comes 4 s after the first; then a third has the node."""
    jobs = [Ended("a", "n1", 0, 0, 13), Ended("b", "n1", 0, 4, 13), Ended("a", "n1", 0, 15, 25)]
    found = day_simulated.ends_s("pairs", jobs, {"a": 10.0, "b": 6.0})
    assert day_simulated.gap_s(jobs, day_simulated.leaders(jobs)) == 2
    # The first two have their node for 2 s of work more each, and do 1 / 1.5 s of it a second together.
    assert found == pytest.approx([14, 14, 26])
