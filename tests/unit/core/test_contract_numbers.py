"""Numbers of the C contract that the pure rooms know, though they cannot import it."""

import pytest

from mpicoloc import config
from mpicoloc.core import counters, profile
from mpicoloc.pmpi import contract


@pytest.mark.parametrize(
    ("prefix", "names"), [("MC_PHASE_", profile.PHASES), ("MC_VERDICT_", profile.VERDICTS)]
)
def test_names_stand_in_the_order_of_the_contracts_numbers(prefix, names):
    numbers = {name: getattr(contract.lib, name) for name in dir(contract.lib) if name.startswith(prefix)}
    assert numbers == {f"{prefix}{name.upper()}": i for i, name in enumerate(names)}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("MC_UNIT_SITE", profile.UNIT_SITE),
        ("MC_N_GROUPS", profile.N_SHUTTER_GROUPS),
        ("MC_ONE_SIDED", profile.N_SIZE_CLASSES),
        ("MC_N_PMU", counters.MOST),
    ],
)
def test_numbers_are_those_of_the_contract(name, number):
    assert number == getattr(contract, name)


def test_every_counter_is_a_column_of_ranks_with_its_unit():
    units = {column.name: column.unit for column in profile.COLUMNS["ranks"]}
    assert {counter.name: counter.unit for counter in contract.counters()}.items() <= units.items()


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        ("MC_NAME_LEN", ["nodes.hostname", "corunners.job_id"]),
        ("MC_TEXT_LEN", ["nodes.meter_reason", "nodes.cpus"]),
        ("MC_REGION_LEN", ["regions.name"]),
    ],
)
def test_texts_of_the_contract_fit_into_their_columns(length, texts):
    for text in texts:
        table, name = text.split(".")
        assert profile.dtype(table)[name].itemsize >= getattr(contract, length)


def test_meters_are_those_of_the_contract():
    meters = {name.removeprefix("MC_METER_").lower() for name in dir(contract.lib) if "MC_METER_" in name}
    assert meters == set(config.BY_KEY["meter"].choices) - {"auto"}
