"""Fat-trees for tests of the network."""

from hypothesis import settings, strategies as st

from mpicoloc.core.network import Topology

QUICK = settings(max_examples=40, deadline=None, derandomize=True)


@st.composite
def topologies(draw, max_height=3, max_count=4):
    height = draw(st.integers(1, max_height))
    numbers = st.lists(st.integers(1, max_count), min_size=height, max_size=height).map(tuple)
    return Topology(draw(numbers), draw(numbers), (1e9,) * height)
