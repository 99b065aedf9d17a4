"""Host files and rank files, as both families of mpirun read them."""

import pytest

from mpicoloc.errors import DataError
from mpicoloc.job import launcher


def test_each_family_has_its_form():
    assert launcher.hydra(["n0", "n1"], 4) == "n0:4\nn1:4\n"
    assert launcher.openmpi(["n0", "n1"], 4) == "n0 slots=4\nn1 slots=4\n"
    assert launcher.node_list(["n0", "n1"]) == "n0,n1"


def test_a_slot_has_processors_of_its_own():
    """Two ranks a node; the job has the second slot of n0 and the first one of n1."""
    assert launcher.rank_file(["n0", "n1"], [1, 0], 2).splitlines() == [
        "rank 0=n0 slot=2", "rank 1=n0 slot=3", "rank 2=n1 slot=0", "rank 3=n1 slot=1"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "a b", "n0\n", "../x", "n0:4", "-n"])
def test_a_name_that_would_be_read_otherwise_is_refused(name):
    with pytest.raises(DataError, match="cannot be written to a host file"):
        launcher.check_names([name], "host")
