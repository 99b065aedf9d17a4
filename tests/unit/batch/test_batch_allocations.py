"""Checks of many sizes at once agree with choosing nodes for each size."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.batch.allocation import ALLOCATIONS
from mpicoloc.batch.inputs import of_hosts
from mpicoloc.batch.order import FREE
from mpicoloc.core.network import Topology

TREE = Topology((6, 4, 3), (1, 4, 4), (1e9,) * 3)


@pytest.mark.parametrize("name", [name for name, one in ALLOCATIONS.items() if one.can is not None])
@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_sizes_that_can_begin_are_those_for_which_nodes_are_chosen(name, data):
    machine = of_hosts(TREE, np.arange(data.draw(st.sampled_from([72, 48]))))
    allocation, uses = ALLOCATIONS[name], np.zeros(machine.n_nodes, np.uint8)
    for size in data.draw(st.lists(st.integers(1, 30), max_size=14)):
        if (chosen := allocation.choose(machine, uses, size)) is not None:
            uses[chosen[0]] = chosen[1]
            if data.draw(st.booleans()):  # it ends again
                uses[data.draw(st.permutations(chosen[0].tolist()))[: size // 2]] = FREE
    sizes = np.arange(1, machine.n_nodes + 1)
    expected = [allocation.choose(machine, uses, int(size)) is not None for size in sizes]
    assert allocation.can(machine, uses, sizes).tolist() == expected
