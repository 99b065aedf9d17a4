"""Features of jobs: what they say, and that what was not measured is absent."""

import dataclasses

import numpy as np
import pytest
import sample
from sample import timed_profile

from mpicoloc.core.profile import Interference, MpiSummary, Network, NetworkLevel, Profile, table
from mpicoloc.core.slowdown import Machine, machine_of, program_name
from mpicoloc.errors import DataError
from mpicoloc.pairing.features import FEATURES, job_features

S = 10**9


def test_rates_are_per_second_and_core_with_statistics_over_ranks_and_runs():
    job = job_features([timed_profile(), timed_profile(wall_s=20.0)])
    assert job.runtime_s == 15
    # 1000 and 3000 calls, in 10 s and in 20 s.
    rates = np.array([100, 300, 50, 150])
    found = [job.values[f"calls_per_s_{name}"] for name in ("mean", "min", "max", "sd")]
    assert found == pytest.approx([rates.mean(), rates.min(), rates.max(), rates.std(ddof=1)])


def test_times_come_from_the_cycles():
    values = job_features([timed_profile()]).values
    assert values["mpi_frac_min"] == pytest.approx(0.2)
    assert values["mpi_frac_max"] == pytest.approx(0.4)
    assert values["burst_s_max"] == pytest.approx(0.1)
    assert values["collective_frac_mean"] == pytest.approx(5 / 20)
    assert values["completion_frac_mean"] == pytest.approx(1 / 20)
    assert values["imbalance_mean"] == pytest.approx(8 / 7)


def test_what_was_not_measured_is_absent_and_never_zero():
    empty = Profile(sample.job(), {}, MpiSummary(), Interference(), None)
    assert not {name for name in job_features([empty]).values if name.startswith(("mpi_frac", "ipc", "cpu"))}
    values = job_features([timed_profile()]).values
    assert not {name for name in values if name.startswith(("ipc", "migrations", "injection"))}
    assert values["rss_bytes_mean"] == 2e8  # of the one rank that told
    assert "rss_bytes_sd" not in values


def test_every_feature_is_in_the_list():
    levels = (NetworkLevel(0, 1e6, 1e5, 1e9, 1e-4),)
    network = Network("XGFT(1;4;1)", "low", "all messages", 1, levels)
    shutters = {"verdict": [1], "t1_ns": [S], "during_cycles": [2 * S], "during_instructions": [3 * S]}
    full = dataclasses.replace(timed_profile(shutters=table("shutters", shutters)), network=network)
    values = job_features([full, full]).values
    assert set(values) <= set(FEATURES)
    assert values["ipc_mean"] == 1.5
    assert values["clock_hz_mean"] == 1e9  # of two cores
    assert values["injection_L0_bps_mean"] == 1e5


def test_of_a_shared_run_only_what_it_would_be_alone():
    shared = timed_profile(wall_s=20.0, slowdown=2.0, shared_s=20.0, phase=1)
    job = job_features([shared])
    assert job.runtime_s == 10
    assert job.values["calls_per_s_mean"] == 200
    assert "voluntary_switches_per_s_mean" not in job.values
    assert job.values["mpi_frac_max"] == pytest.approx(0.4)


def test_runs_alone_count_before_those_that_were_not():
    alone, shared = timed_profile(), timed_profile(wall_s=90.0, slowdown=3.0, shared_s=90.0)
    assert job_features([alone, shared]).runtime_s == 10
    assert job_features([shared, timed_profile(wall_s=7.0, shared_s=7.0)]).runtime_s == 30


def test_a_run_that_did_not_end_tells_nothing():
    with pytest.raises(DataError, match="of a complete run"):
        job_features([timed_profile(partial=True)])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/bin/lmp -in in.lj", "lmp"),
        ("python3.11 -u train.py --fast", "train.py"),
        ("python", "python"),
        ("", "unknown"),
    ],
)
def test_a_program_has_a_name(command, name):
    assert program_name(command) == name


def test_a_machine_is_told_apart_by_processor_number_and_memory():
    row = {"hostname": ["n1"], "cpu_model": ["EPYC"], "n_cpus": [64.0], "memory_bytes": [2.0**38]}
    found = machine_of(timed_profile(nodes=table("nodes", row)))
    assert found == Machine("EPYC", 64, 2.0**38)
    assert found.is_like(dataclasses.replace(found, memory_bytes=2.0**38 * 1.01))
    assert not found.is_like(dataclasses.replace(found, n_cpus=32))
    assert not found.is_like(dataclasses.replace(found, memory_bytes=2.0**39))
    assert machine_of(timed_profile()) is None
    assert machine_of(timed_profile(nodes=table("nodes", row | {"n_cpus": [np.nan]}))) is None
