"""Sets of slowdowns to learn from: what was measured once counts once, however often it is given."""

import dataclasses
import itertools

import numpy as np
import pytest
from contention import MACHINE, World
from hypothesis import given, settings, strategies as st

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import LAYOUTS, ROW_COLUMNS, Row, TrainingSet, key_of, merged, training_set
from mpicoloc.errors import DataError
from mpicoloc.pairing import training_sets

WORLD = World(5)


def row(i, j, n=5, key="", value=1.5):
    slowdown = Estimate(value, value - 0.1, value + 0.1, n, "1", "campaign")
    return Row(WORLD.job(i), WORLD.job(j), slowdown, "campaign", key)


def told(found: TrainingSet):
    """Rows as plain values, with the jobs that they name."""
    names = [column.name for column in ROW_COLUMNS if column.name not in ("target", "co_runner", "key")]
    return [
        (found.jobs[each["target"]].id, found.jobs[each["co_runner"]].id, *(each[name] for name in names))
        for each in found.rows
    ]


pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12, unique=True)


@settings(max_examples=50)
@given(pairs, st.lists(st.lists(st.integers(0, 11), max_size=12), min_size=1, max_size=4))
def test_however_often_a_measurement_is_given_it_counts_once(measured, shares):
    rows = [row(i, j, key=key_of("campaign", i, j)) for i, j in measured]
    sets = [training_set([rows[k] for k in share if k < len(rows)], MACHINE) for share in shares]
    found = merged(sets)
    given_once = {k for share in shares for k in share if k < len(rows)}
    assert sorted(told(found)) == sorted(told(training_set([rows[k] for k in sorted(given_once)], MACHINE)))
    assert {job.id for job in found.jobs} == {f"job{i}" for k in given_once for i in measured[k]}
    assert told(merged([found, found])) == told(found)


def test_a_campaign_that_went_on_is_not_a_second_one():
    early, late = (training_set([row(0, 1, n, "turns", value)]) for n, value in ((2, 1.3), (4, 1.4)))
    for sets in itertools.permutations([early, late]):
        (only,) = merged(sets).rows
        assert (only["n"], only["slowdown"]) == (4, 1.4)
    again = training_set([row(0, 1, 4, "turns", 1.45)])
    assert merged([late, again]).rows["slowdown"] == 1.45  # its jobs are known better by now


def test_a_file_keeps_what_was_measured_and_one_of_an_earlier_version_counts_once_too(tmp_path, monkeypatch):
    found = training_set([row(0, 1, key="a"), row(0, 1, key="b"), row(1, 0)], MACHINE)
    training_sets.write_file(found, tmp_path / "t.npz")
    assert len(merged([training_sets.read_file(tmp_path / "t.npz"), found]).rows) == 3
    # An earlier version had no such column.
    monkeypatch.setattr(training_sets, "ROW_COLUMNS", [c for c in ROW_COLUMNS if c.name != "key"])
    training_sets.write_file(training_set([row(0, 1), row(1, 0)], MACHINE), tmp_path / "old.npz")
    monkeypatch.undo()
    assert "rows.key" not in np.load(tmp_path / "old.npz")
    old = training_sets.read_file(tmp_path / "old.npz")
    assert len(merged([old, old]).rows) == 2
    assert told(merged([old, old])) == told(old)


def test_the_same_numbers_measured_twice_are_two_measurements():
    twice = merged([training_set([row(0, 1, key="monday"), row(0, 1, key="tuesday")])])
    assert len(twice.rows) == 2
    assert len(twice.jobs) == 2


def test_a_job_of_another_machine_is_no_copy():
    other = training_set([row(0, 1, key="a")], dataclasses.replace(MACHINE, n_cpus=2))
    with pytest.raises(Exception, match="are of two machines"):
        merged([training_set([row(0, 1, key="a")], MACHINE), other])


def test_slowdowns_on_the_same_processors_are_not_mixed_with_others(tmp_path):
    sets = {layout: training_set([row(0, 1, key=layout or "old")], MACHINE, layout) for layout in LAYOUTS}
    with pytest.raises(DataError, match="fit a model for each"):
        merged([sets["cores"], sets["turns"]])
    training_sets.write_file(merged([sets["turns"], sets[""]]), tmp_path / "t.npz")
    found = training_sets.read_file(tmp_path / "t.npz")
    assert (found.layout, len(found.rows)) == ("turns", 2)
    with pytest.raises(DataError, match="layout must be one of"):
        dataclasses.replace(found, layout="near")
