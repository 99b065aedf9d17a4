"""Jobs out of profiles: copies count once, and the steps of one job are taken together."""

import dataclasses

import pytest
import sample
from hypothesis import given, strategies as st

from mpicoloc.core.batch_system import PENDING, BatchJob
from mpicoloc.core.profile import Estimate, Interference, MpiSummary, Profile, table
from mpicoloc.core.slowdown import Machine, Run, moments
from mpicoloc.pairing import production
from mpicoloc.profile import hdf5
from mpicoloc.slurm import service

MACHINE = Machine("EPYC", 64, 2.0**38)


def run(start_s=1000.0, wall_s=100.0, name="7", **changes):
    facts = {"id": name, "command": "./a", "n_ranks": 2, "n_nodes": 1, "n_cores": 2, "start_unix_s": start_s,
             "wall_s": wall_s, "solo_s": wall_s, "shared_s": 0.0, "was_alone": True, "partial": False,
             "machine": MACHINE, "seen": {"calls_per_s": moments([10.0])}}  # fmt: skip
    return Run(**{**facts, **changes})


def test_a_copy_of_a_profile_is_the_same_run():
    own, signed = run(), dataclasses.replace(run(), owner=0)
    cut_off = run(wall_s=40.0, partial=True)
    assert production.distinct([cut_off, own, signed]) == [own]
    later = run(2000.0)
    assert production.distinct([own, later, signed]) == [own, later]
    unknown = [run(0.0, 5.0), run(0.0, 6.0), run(0.0, 5.0)]
    assert production.distinct(unknown) == unknown[:2]


def test_steps_of_one_number_are_one_job():
    first, second = run(1000.0), run(1100.0 + 3600, command="./b")  # which works up for an hour
    next_year = run(3.2e7)
    other = run(1050.0, name="8")
    assert production.runs_by_job([second, next_year, other, first]) == [
        [first, second],
        [other],
        [next_year],
    ]
    # Under `mpicoloc run` each has the number of its process behind that of the job.
    started = [run(1000.0, name="7-4711"), run(1105.0, name="7-4800"), run(1105.0, name="70-1")]
    assert production.runs_by_job(started) == [started[:2], started[2:]]
    assert production.runs_by_job([run(1000.0, name="ada-1"), run(1001.0, name="ada-2")])[1:]


times = st.floats(0.5, 1e4)


@given(st.lists(st.tuples(times, st.floats(0, 1e6), st.floats(1, 4)), min_size=1, max_size=6))
def test_a_job_takes_as_long_as_its_steps_and_does_what_they_did(parts):
    """Amounts over time: what all steps did, over the time of all of them alone."""
    begin_s, made = 1000.0, []
    for solo_s, rate, slowdown in parts:
        estimate = Estimate(slowdown, slowdown, slowdown, 9, "1", "burst")
        shared = {"shared_s": solo_s, "was_alone": False, "slowdown": estimate, "solo_s": solo_s}
        made.append(run(begin_s, solo_s * slowdown, **shared, seen={"calls_per_s": moments([rate] * 2)}))
        begin_s += solo_s * slowdown + 5.0
    whole = production.run_of_steps(made)
    solo_s = sum(part for part, _, _ in parts)
    assert whole.wall_s == pytest.approx(sum(step.wall_s for step in made))
    assert whole.solo_s == pytest.approx(solo_s)
    assert whole.slowdown.value == pytest.approx(whole.wall_s / whole.solo_s)
    found = whole.seen["calls_per_s"]
    assert found.mean == pytest.approx(sum(s * rate for s, rate, _ in parts) / solo_s)
    assert (found.n, found.least) == (2, min(rate for _, rate, _ in parts))
    assert (whole.n_ranks, whole.id, whole.start_unix_s) == (2, "7", 1000.0)


def test_steps_at_the_same_time_are_a_larger_job():
    side_by_side = [run(1000.0, 100.0), run(1020.0, 100.0, n_ranks=3, n_cores=3),
                    run(1150.0, 10.0, n_ranks=4)]  # fmt: skip
    whole = production.run_of_steps(side_by_side)
    assert (whole.n_ranks, whole.n_cores) == (5, 5)
    assert whole.wall_s == pytest.approx(130)
    assert whole.solo_s == pytest.approx(130)


def test_a_job_needs_the_memory_of_its_largest_step():
    small, large = ({"rss_bytes": moments([n_bytes])} for n_bytes in (1e6, 9e9))
    whole = production.run_of_steps([run(1000.0, 100.0, seen=small), run(1100.0, 1.0, seen=large)])
    assert whole.seen["rss_bytes"].mean == 9e9


def test_of_a_job_is_known_what_is_known_of_all_its_steps():
    unknown = run(1100.0, was_alone=False, shared_s=None)
    whole = production.run_of_steps([run(), unknown])
    assert (whole.was_alone, whole.shared_s, whole.slowdown) == (False, None, None)
    beside = run(1100.0, was_alone=False, shared_s=50.0, co_runners=(("7", 9.0), ("8", 40.0)))
    assert production.run_of_steps(
        [run(), beside, dataclasses.replace(beside, start_unix_s=1200.0)]
    ).co_runners == (("8", 80.0),)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_moments_of_parts_of_a_run(values, data):
    lasted_s = [data.draw(st.floats(0.1, 100)) for _ in values]
    found = production.weighted_moments(
        [(moments(part), s) for part, s in zip(values, lasted_s, strict=True)]
    )
    assert found.n == max(map(len, values))
    assert found.least - 1e-6 <= found.mean <= found.largest + 1e-6
    assert found.squares >= 0
    alike = production.weighted_moments([(moments(values[0]), s) for s in lasted_s])
    assert alike.mean == pytest.approx(moments(values[0]).mean, abs=1e-6)
    assert alike.squares == pytest.approx(moments(values[0]).squares, abs=1e-3)


def profile(number, start_s, wall_s, calls, batch_name="train", partial=False):
    facts = {"id": number, "user": "ada", "batch_name": batch_name}
    job = sample.job(start_unix_s=start_s, wall_s=wall_s, **facts)
    ranks = {"rank": [0, 1], "n_calls": [calls] * 2}
    return Profile(
        job, {"ranks": table("ranks", ranks)}, MpiSummary(), Interference(shared_s=0.0), None, partial
    )


def waiting(name="train"):
    return BatchJob(99, "ada", name, PENDING, "shared", 1, 2, 2)


def test_a_job_of_several_steps_is_known_as_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    profiles = {
        "5.0": profile("5", 1e9, 60.0, 600),
        "5.1": profile("5", 1e9 + 61, 180.0, 5400),
        "5.1-signed": profile("5", 1e9 + 61, 180.0, 5400),
        "6.0": profile("6", 2e9, 1.0, 10, "cut"),
        "6.1": profile("6", 2e9 + 2, 1.0, 10, "cut", partial=True),
    }
    for name, each in profiles.items():
        hdf5.write(each, tmp_path / f"{name}.h5")
    known = service.ProfileHistory(str(tmp_path))
    known.update()
    found = known.features_of(waiting(), 3e9)
    assert found.runtime_s == pytest.approx(240)
    assert found.values["calls_per_s_mean"] == pytest.approx(6000 / 240)
    # A job that did not come to its end tells no time, and more steps of a running one may follow.
    assert known.features_of(waiting("cut"), 3e9) is None
    known.update({"5"})
    assert known.features_of(waiting(), 3e9) is None
