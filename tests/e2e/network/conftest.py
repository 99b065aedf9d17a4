"""A simulated InfiniBand fabric for the tests with a subnet manager."""

import pytest
from subnet import Subnet, cabled


@pytest.fixture
def subnet(request, tmp_path):
    """A subnet of the test module's tree over links of 1 GB/s, or of the cables of the test's parameter."""
    cables = request.param if hasattr(request, "param") else (request.module.TREE,)
    made = Subnet(tmp_path, cabled(*cables))
    yield made
    made.close()
