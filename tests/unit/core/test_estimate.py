import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import sample

from mpicoloc.core.profile import COLUMNS, Estimate, Profile, dtype, table
from mpicoloc.errors import DataError


@pytest.mark.parametrize(
    ("value", "low", "high", "n"),
    [(1.0, 1.1, 1.2, 3), (1.3, 1.1, 1.2, 3), (math.nan, 0, 1, 3), (1, 0, math.inf, 3), (1, 0, 2, -1),
     (1, 0, 2, 2.5)],
)  # fmt: skip
def test_an_estimate_that_contradicts_itself_is_refused(value, low, high, n):
    with pytest.raises(DataError):
        Estimate(value, low, high, n, "1", "test")


def test_an_estimate_takes_numpy_numbers_and_cannot_be_changed():
    estimate = Estimate(np.float64(1.5), np.float32(1.0), 2, np.int64(7), "1", "test")
    assert (type(estimate.value), type(estimate.n)) == (float, int)
    with pytest.raises(FrozenInstanceError):
        estimate.value = 2.0


@pytest.mark.parametrize("name", COLUMNS)
def test_every_table_can_be_empty_and_is_read_only(name):
    array = table(name)
    assert len(array) == 0
    assert array.dtype == dtype(name)
    assert not array.flags.writeable


def test_a_table_is_built_from_its_columns():
    array = table("corunners", {"job_id": ["a", "grün"], "overlap_s": [1.0, 2.0]})
    assert array["job_id"][1].decode() == "grün"
    assert array["i_node"].tolist() == [0, 0]
    with pytest.raises(DataError, match="unknown column"):
        table("corunners", {"job": ["a"]})
    with pytest.raises(DataError, match="one length"):
        table("corunners", {"job_id": ["a"], "overlap_s": [1.0, 2.0]})


def test_a_profile_holds_every_table_read_only():
    profile = sample.profile()
    assert set(profile.tables) == set(COLUMNS)
    with pytest.raises(ValueError, match="read-only"):
        profile.tables["ranks"]["rank"][0] = 9
    with pytest.raises(DataError, match="unknown table"):
        Profile(profile.job, {"rank": table("ranks")}, profile.mpi, profile.interference, None)
    with pytest.raises(DataError, match="columns"):
        Profile(profile.job, {"ranks": table("nodes")}, profile.mpi, profile.interference, None)
