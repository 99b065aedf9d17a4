"""Profiles to export."""

from collections import Counter

import exported
import jobs
import pytest

import mpicoloc


@pytest.fixture(scope="session")
def traced(tmp_path_factory):
    """The profile of a run of four ranks with its last calls, which are all."""
    return exported.run(
        tmp_path_factory.mktemp("export"), jobs.PROGRAMS / "exported.c", 10000, exported.N_ROUNDS
    )


@pytest.fixture(scope="session")
def events(traced):
    """Its calls, as the profile tells them."""
    found = mpicoloc.open(traced).events
    counted = Counter(found["call"])
    n_times = exported.N_RANKS * exported.N_ROUNDS
    assert all(counted[name] == n_times * n for name, n in exported.ROUND.items())
    return found


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The profile of a run of four ranks with a trace of every call."""
    source = jobs.PROGRAMS.parents[2] / "examples" / "heat2d.c"
    return exported.run(tmp_path_factory.mktemp("whole"), source, "all", 64, exported.N_STEPS)
