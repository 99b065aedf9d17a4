"""A simulated InfiniBand fabric for the tests with a subnet manager."""

import pytest
from subnet import Subnet, cabled


@pytest.fixture
def subnet(request, tmp_path):
    """Of the test module's tree, over links of 1 GB/s, or of the cables that the test is parametrised by."""
    cables = request.param if hasattr(request, "param") else (request.module.TREE,)
    made = Subnet(tmp_path, cabled(*cables))
    yield made
    made.close()
