"""Numbers of the C contract that the pure rooms know, though they cannot import it."""

import pytest

from mpicoloc.core import tables
from mpicoloc.pmpi import contract


@pytest.mark.parametrize(
    ("prefix", "names"), [("MC_PHASE_", tables.PHASES), ("MC_VERDICT_", tables.VERDICTS)]
)
def test_names_stand_in_the_order_of_the_contracts_numbers(prefix, names):
    numbers = {name: getattr(contract.lib, name) for name in dir(contract.lib) if name.startswith(prefix)}
    assert numbers == {f"{prefix}{name.upper()}": i for i, name in enumerate(names)}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("MC_UNIT_SITE", tables.UNIT_SITE),
        ("MC_N_GROUPS", tables.N_SHUTTER_GROUPS),
        ("MC_ONE_SIDED", tables.N_SIZE_CLASSES),
    ],
)
def test_numbers_are_those_of_the_contract(name, number):
    assert number == getattr(contract, name)


def test_every_counter_is_a_column_of_ranks_with_its_unit():
    units = {column.name: column.unit for column in tables.COLUMNS["ranks"]}
    assert {counter.name: counter.unit for counter in contract.counters()}.items() <= units.items()
