"""Slowdowns to learn from, out of runs that met by chance."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from production_runs import MACHINE, run

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import Machine, key_of, moments, run_as_json, run_from_json
from mpicoloc.errors import DataError
from mpicoloc.measure.job_scaling import WallTimeSplit, job_slowdown
from mpicoloc.pairing import production
from mpicoloc.pairing.production import layout, rows_of
from mpicoloc.pairing.training_sets import from_production


def met():
    """Jobs 1 and 2 beside each other all the time."""
    return [
        run("1", "a", 0, [("2", 100.0)], slowdown=1.5),
        run("2", "b", 0, [("1", 100.0)], slowdown=1.2),
    ]


def alone():
    """Both jobs by themselves, on another day."""
    return [run("8", "a", 5e5), run("9", "b", 6e5)]


def test_two_jobs_that_met_are_two_rows():
    rows, others = rows_of([*met(), *alone()])
    assert others == {"alone": 2}
    assert [(row.target.program, row.co_runner.program) for row in rows] == [("a", "b"), ("b", "a")]
    assert [row.slowdown.value for row in rows] == pytest.approx([1.5, 1.2])
    assert rows[0].target.values["ipc_mean"] == 1.0
    assert rows[0].co_runner.values["ipc_mean"] == 2.0
    assert {row.source for row in rows} == {"production"}


def test_runs_alone_say_what_a_job_is_like():
    by_itself = run("3", "a", 500, seen={"ipc": moments([1.7])}, wall_s=60.0)
    rows, others = rows_of([*met(), by_itself, alone()[1]])
    assert rows[0].target.values["ipc_mean"] == 1.7
    assert rows[0].target.runtime_s == 60
    assert others == {"alone": 2}


def beside_others(slowdowns):
    """Job a beside b on several days; the longer a took, the more it did in each second of its time alone."""
    for day, slowdown in enumerate(slowdowns):
        start, names = 1e5 * day, (f"a{day}", f"b{day}")
        seen = {"sent_bps": moments([1e6 * slowdown])}
        yield run(names[0], "a", start, [(names[1], 100.0)], slowdown=slowdown, seen=seen)
        yield run(names[1], "b", start, [(names[0], 100.0)], slowdown=1.2)


def as_measured_and_worse(slowdowns, data, job):
    """Rows of one meeting, of job a or b, as it was and had it been as slow as nothing else."""
    day = data.draw(st.integers(0, len(slowdowns) - 1))
    changed = [9.0 if i == day else slowdown for i, slowdown in enumerate(slowdowns)]
    key = key_of("production", f"{job}{day}", 1e5 * day, 100.0)
    return [
        next(row for row in rows_of([*beside_others(found)])[0] if row.key == key)
        for found in (slowdowns, changed)
    ]


@given(st.lists(st.floats(1.1, 3.0), min_size=2, max_size=7), st.data())
def test_what_a_run_suffered_is_not_in_the_features_that_it_is_told_by(slowdowns, data):
    rows = as_measured_and_worse(slowdowns, data, "a")
    assert rows[0].target == rows[1].target
    assert rows[0].slowdown != rows[1].slowdown


@given(st.lists(st.floats(1.1, 3.0), min_size=2, max_size=7), st.data())
def test_nor_is_what_the_other_job_suffered_meanwhile(slowdowns, data):
    """A disturbance during the meeting hits both jobs, so the co-runner's features must not reveal it."""
    rows = as_measured_and_worse(slowdowns, data, "b")
    assert rows[0].co_runner == rows[1].co_runner


@given(st.lists(st.floats(1.1, 3.0), min_size=2, max_size=7))
def test_nor_in_those_of_its_twin_beside_it(slowdowns):
    def twins(first):
        for day, slowdown in enumerate([first, *slowdowns]):
            seen = {"sent_bps": moments([1e6 * slowdown])}
            yield run(f"a{day}", "a", 0.0, [(f"a{day ^ 1}", 100.0)], slowdown=slowdown, seen=seen)

    one, other = (rows_of([*twins(first)])[0] for first in (1.5, 9.0))
    for i in (0, 1):  # in neither's row
        assert (one[i].target, one[i].co_runner) == (other[i].target, other[i].co_runner)


def test_steps_beside_one_run_are_together_not_known():
    """Of three steps of one job beside a run, no two tell of each other: they met the same run."""
    steps = [
        run("b0", "b", start, [("a0", 30.0)], slowdown=1.2, wall_s=30.0, seen={"ipc": moments([start])})
        for start in (0.0, 30.0, 60.0)
    ]
    later = run("b1", "b", 1e6, [("a1", 100.0)], slowdown=1.2, seen={"ipc": moments([7.0])})
    runs = [run("a0", "a", 0, [("b0", 90.0)], slowdown=1.5), *steps, later]
    rows, _ = rows_of([*runs, run("a1", "a", 1e6, [("b1", 100.0)], slowdown=1.4)])
    beside = {row.target.program: row.co_runner.values["ipc_mean"] for row in rows[:1]}
    assert beside == {"a": 7.0}


def test_a_job_that_ran_once_teaches_nothing():
    rows, others = rows_of(met())
    assert not rows
    assert others == {"no other run of the same job": 2}
    rows, others = rows_of([*met(), alone()[0]])
    assert not rows
    assert others == {"alone": 1, "no other run of the same job": 1, "no other run of the co-runner": 1}


def test_a_job_that_was_alone_half_of_the_time_suffered_more_in_the_other_half():
    first, second = met()
    # 100 s: 40 s alone, 60 s of company in which 40 s of work were done.
    first = dataclasses.replace(
        first,
        shared_s=60.0,
        co_runners=(("2", 60.0),),
        solo_s=80.0,
        slowdown=Estimate(1.25, 1.24, 1.26, 9, "1", "b"),
    )
    rows, _ = rows_of([first, second, *alone()])
    assert rows[0].slowdown.value == pytest.approx(1.5)


@given(st.floats(0.25, 1.0), st.floats(1.0, 4.0), st.floats(0.0, 0.3))
def test_of_a_part_of_a_run_is_learnt_what_shutters_measured_in_it(shared_frac, slowdown, half):
    shared_s = 100 * shared_frac
    phase = Estimate(slowdown, slowdown * (1 - half), slowdown * (1 + half), 40, "1", "burst")
    whole = job_slowdown(phase, WallTimeSplit(100 - shared_s, shared_s, 0.0, 0.0))
    first, second = met()
    beside = {"shared_s": shared_s, "co_runners": (("2", shared_s),)}
    rows, _ = rows_of([dataclasses.replace(first, slowdown=whole, **beside), second, *alone()])
    found = rows[0].slowdown
    assert (found.low, found.value, found.high) == pytest.approx((phase.low, phase.value, phase.high))


REASONS = {
    "alone": {"co_runners": (), "shared_s": 0.0, "was_alone": True},
    "slowdown not measured": {"slowdown": None},
    "did not come to its end": {"partial": True},
    "most of the time alone": {
        "shared_s": 24.0,
        "co_runners": (("2", 24.0),),
        "slowdown": Estimate(1.1, 1.05, 1.15, 40, "1", "burst"),
    },
    "several co-runners": {"co_runners": (("2", 60.0), ("5", 60.0))},
    "no profile of the co-runner": {"co_runners": (("77", 100.0),)},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_teaches_nothing_is_counted_with_its_reason(reason):
    first, second = met()
    rows, others = rows_of([dataclasses.replace(first, **REASONS[reason]), second, *alone()])
    assert others[reason] == 1 + 2 * (reason == "alone")
    assert all(row.target.program == "b" for row in rows)


def test_beside_several_jobs_there_is_a_row_for_each_that_was_told_apart():
    first, second = met()
    by = {
        name: Estimate(value, value - 0.1, value + 0.1, 0, "1", "partial")
        for name, value in (("2", 1.3), ("5", 1.2))
    }
    crowded = dataclasses.replace(first, co_runners=(("2", 100.0), ("5", 80.0)), slowdown_by=by)
    others = [run("5", "c", 0, [("1", 80.0)], wall_s=80.0), run("6", "c", 7e5)]
    rows, others = rows_of([crowded, second, *others, *alone()])
    mine = [row for row in rows if row.target.program == "a"]
    assert [(row.co_runner.program, row.slowdown.value) for row in mine] == [("b", 1.3), ("c", 1.25)]
    assert len({row.key for row in rows}) == len(rows)
    assert others["several co-runners"] == 0


def test_what_one_co_runner_costs_falls_into_the_time_beside_it():
    """50 s of work alone, and 50 s in the 100 s beside both, all of it due to one."""
    first, _ = met()
    by = {"2": Estimate(1.5, 1.4, 1.6, 0, "1", "partial")}
    crowded = dataclasses.replace(first, wall_s=150.0, solo_s=100.0, shared_s=100.0, slowdown_by=by,
                                  slowdown=Estimate(1.5, 1.4, 1.6, 40, "1", "count"))  # fmt: skip
    alone_with_it = dataclasses.replace(crowded, co_runners=(("2", 100.0),))
    crowded = dataclasses.replace(crowded, co_runners=(("2", 100.0), ("5", 100.0)))
    assert [production.beside(one)[0][1].value for one in (crowded, alone_with_it)] == pytest.approx(
        [2.0, 2.0]
    )


def test_a_copy_of_a_profile_teaches_nothing_new():
    first, second = met()
    copies = [dataclasses.replace(run, owner=0) for run in (first, second)]
    rows, others = rows_of([first, *copies, second, *alone()])
    assert len(rows) == 2
    assert others == {"given twice": 2, "alone": 2}
    assert rows[0].key != rows[1].key
    assert [row.key for row in rows] == [row.key for row in rows_of([*met(), *alone()])[0]]


def test_a_co_runner_that_changed_midway_is_not_one():
    first, second = met()
    steps = [
        dataclasses.replace(second, command=name, start_unix_s=s) for name, s in (("b", 0.0), ("c", 50.0))
    ]
    _, others = rows_of([first, *steps])
    assert others["several steps of the co-runner"] == 1


def test_another_job_of_the_same_number_is_not_taken_for_the_co_runner():
    rows, others = rows_of([met()[0], run("2", "c", start=1e6)])
    assert not rows
    assert others["no profile of the co-runner"] == 1


def test_profiles_of_another_machine_are_refused_or_left_out():
    stranger = run("9", "z", machine=Machine("POWER9", 44, 2.0**38))
    with pytest.raises(DataError, match=r"the profiles are of 2 machines \(EPYC, 64 CPUs, 256 GiB; POWER9"):
        from_production([*met(), stranger])
    found, others = from_production([*met(), stranger], "epyc")
    assert found.machine == MACHINE
    assert others["of another machine"] == 1
    with pytest.raises(DataError, match="no profile of a machine 'arm'"):
        from_production(met(), "arm")


def test_a_run_travels_as_json():
    for one in met():
        assert run_from_json(json.loads(json.dumps(run_as_json(one)))) == one


@given(st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), min_size=1, max_size=4))
def test_moments_of_parts_are_those_of_the_whole(parts):
    found = moments(parts[0])
    for part in parts[1:]:
        found = found + moments(part)
    whole = np.concatenate(parts)
    assert (found.n, found.least, found.largest) == (len(whole), whole.min(), whole.max())
    assert found.mean == pytest.approx(whole.mean(), abs=1e-6)
    if len(whole) > 1:
        assert found.sd == pytest.approx(whole.std(ddof=1), rel=1e-6, abs=1e-3)


def test_moments_leave_out_what_is_not_known():
    assert moments([np.nan, 2.0]).n == 1
    assert moments([np.nan]) is None


def placed(first, second, n_cores=2):
    """Both jobs twice, on these processors of one node."""
    for day in (0, 1):
        for one, beside in zip(met(), "21", strict=True):
            cpus = {"n1": first if one.command == "a" else second}
            beside = ((f"{beside}-{day}", 100.0),)
            more = {"n_cores": n_cores, "cpus": cpus, "co_runners": beside, "start_unix_s": 1e6 * day}
            yield dataclasses.replace(one, id=f"{one.id}-{day}", **more)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("0-1", "2-3", "cores"),
        ("0-1", "0-1", "turns"),
        ("0,2", "0,2", "turns"),
        ("0-3", "0-3", ""),  # room for both: the system moves them as it likes
        ("0-2", "2-4", ""),
        ("", "0-1", ""),
        ("0-1", "many", ""),
    ],
)
def test_a_row_knows_whether_both_had_the_same_processors(first, second, expected):
    rows, _ = rows_of([*placed(first, second)])
    assert [row.layout for row in rows] == [expected] * 4
    assert from_production([*placed(first, second)])[0].layout == expected


def test_on_several_nodes_all_must_be_alike():
    def on(cpus):
        return run("1", cpus=cpus, n_cores=4, n_nodes=2)

    one, other = on({"n1": "0-1", "n2": "0-1"}), on({"n1": "0-1", "n2": "0-1", "n3": "7"})
    assert layout(one, [other]) == "turns"
    assert layout(one, [on({"n1": "0-1", "n2": "2-3"})]) == ""
    assert layout(one, [on({"n7": "0-1"})]) == ""


def test_slowdowns_on_the_same_processors_are_not_mixed_with_others():
    apart = [*placed("0-1", "2-3")]
    same = [
        dataclasses.replace(
            one,
            id=f"9{one.id}",
            start_unix_s=1e8 + one.start_unix_s,
            co_runners=tuple((f"9{name}", s) for name, s in one.co_runners),
        )
        for one in placed("0-1", "0-1")
    ]
    with pytest.raises(
        DataError, match=r"4 slowdowns .* separate .* 4 .* same processors: choose one kind with"
    ):
        from_production([*apart, *same])
    for word in ("cores", "turns"):
        found, others = from_production([*apart, *same], layout=word)
        assert (found.layout, len(found.rows)) == (word, 4)
        assert others["of another layout"] == 4
