"""A simulated InfiniBand fabric for the tests with a subnet manager."""

import pytest
from subnet import Subnet

from mpicoloc.core import network


@pytest.fixture
def subnet(request, tmp_path):
    """Of the test module's tree, over links of 1 GB/s."""
    made = Subnet(tmp_path, network.parse_xgft(request.module.TREE, 1e9))
    yield made
    made.close()
