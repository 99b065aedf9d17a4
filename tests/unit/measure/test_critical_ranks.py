"""From the ranks to the job: each kind of coupling, with a truth that follows from the ranks' times."""

import numpy as np
import pytest
import sample
from hypothesis import given, strategies as st
from renewal import simulate

from mpicoloc.core.profile import Estimate, table
from mpicoloc.measure.burst import BURST_MODEL_ERROR
from mpicoloc.measure.estimate import interference
from mpicoloc.measure.job_scaling import WallTimeSplit, job_slowdown
from mpicoloc.profile.merge import complete

JOB_S = 60.0


def rng(seed=0):
    return np.random.default_rng(seed)


def working(rank, slowdown, seconds=JOB_S, seed=0):
    """Cycles of a rank that works for so long, shutters included, slowed throughout."""
    run = simulate(rng(seed + rank), solo_s=[1e-3, 4e-4], slowdown=[slowdown] * 2, cv=0.2, duration_s=seconds)
    cycles = run.cycles.copy()
    cycles["rank"] = rank
    return cycles


def one_wait(rank, seconds, lane=0):
    """A call in which a rank waits for the others until the end."""
    columns = {"rank": [rank], "lane": [lane], "from_site": [7], "to_site": [8], "n": [1]}
    return table("cycles", {**columns, "mpi_ns": [round(seconds * 1e9)]})


def found(*cycles, n_nodes=1, shared_s=JOB_S, i_node=(0, 0)):
    tables = {**sample.tables(), "cycles": np.concatenate(cycles)}
    tables["ranks"] = tables["ranks"].copy()
    tables["ranks"]["i_node"] = i_node
    tables["nodes"] = np.repeat(tables["nodes"], n_nodes)
    tables["nodes"]["shared_s"] = shared_s
    return complete(sample.job(n_nodes=n_nodes), tables, rng=rng())


def assert_is(slowdown, truth, tolerance=0.03):
    assert slowdown.value == pytest.approx(truth, rel=tolerance)
    assert slowdown.low * 0.99 <= truth <= slowdown.high * 1.01


@pytest.mark.parametrize("slowdown", [1.0, 1.03, 1.06, 1.09, 1.12, 1.3, 2.0])
def test_a_rank_that_ends_early_and_waits_does_not_dilute_the_slowdown_of_the_one_it_waits_for(slowdown):
    profile = found(
        working(0, slowdown), working(1, 1.0, JOB_S / slowdown), one_wait(1, JOB_S - JOB_S / slowdown)
    )
    # solo and paused time count at full speed and as lost; both are short
    assert_is(profile.interference.slowdown, slowdown)
    ranks = profile.tables["ranks"]
    assert ranks["wait_frac"] == pytest.approx([0, 1 - 1 / slowdown], abs=0.02)
    assert ranks["slowdown"] == pytest.approx([slowdown, 1], rel=0.03)
    assert ranks["counts"].tolist() == [1, slowdown < 1.02]
    assert (ranks["slowdown_low"] <= ranks["slowdown"]).all() and (ranks["slowdown_high"] < 2.2).all()


@pytest.mark.parametrize("slowdown", [1.05, 1.1, 1.5])
def test_one_of_many_ranks_is_disturbed(slowdown):
    others = [working(rank, 1.0, JOB_S / slowdown) for rank in range(1, 8)]
    profile = found(working(0, slowdown), *others, i_node=(0, 0))
    assert_is(profile.interference.slowdown, slowdown)


@pytest.mark.parametrize("slowdown", [1.0, 1.5, 2.0])
def test_ranks_that_wait_shortly_for_the_disturbed_one(slowdown):
    """Cycles of the undisturbed rank are as long as those of the other, the rest of each a short wait."""
    waiting = working(1, slowdown)
    waiting["mpi_ns"] = (waiting["comp_ns"] * (1 - 1 / slowdown)).astype(np.uint64)
    waiting["comp_ns"] -= waiting["mpi_ns"]
    profile = found(working(0, slowdown), waiting)
    assert_is(profile.interference.slowdown, slowdown)
    assert profile.tables["ranks"]["counts"].tolist() == [1, 1]


def test_helper_threads_that_wait_do_not_hide_the_one_that_works():
    profile = found(working(0, 2.0), one_wait(0, JOB_S, lane=1), i_node=(0, 0))
    assert_is(profile.interference.slowdown, 2.0)


def test_a_rank_that_has_ended_is_like_one_that_waits():
    profile = found(working(0, 2.0), working(1, 1.0, 30.0))
    assert_is(profile.interference.slowdown, 2.0)


def test_a_rank_with_more_work_sets_the_time_that_the_job_would_have_taken():
    """Rank 1 has work for 45 s and is not disturbed; rank 0 has it for 30 s and takes 60."""
    profile = found(working(0, 2.0), working(1, 1.0, 45.0), one_wait(1, 15.0))
    assert_is(profile.interference.slowdown, 60 / 45, 0.05)


def test_ranks_that_share_out_their_work_as_it_comes_slow_down_in_proportion():
    profile = found(working(0, 2.0), working(1, 1.0))
    assert_is(profile.interference.slowdown, 2 / (1 / 2 + 1))


def test_a_thread_that_waits_for_messages_all_the_time_counts_for_nothing():
    profile = found(working(0, 2.0), working(1, 2.0), one_wait(0, JOB_S, lane=1))
    assert_is(profile.interference.slowdown, 2.0)
    assert profile.tables["ranks"]["wait_frac"] == pytest.approx([0, 0], abs=0.02)


def test_one_of_two_nodes_without_company_waits_shortly_for_the_other():
    """Its cycles are as long as those of the slowed rank, half of each a wait, all alone on their node."""
    alone = working(1, 2.0)
    alone["mpi_ns"] = alone["comp_ns"] // 2
    alone["comp_ns"] -= alone["mpi_ns"]
    alone["phase"] = 2
    profile = found(working(0, 2.0), alone, n_nodes=2, shared_s=[JOB_S, 0.0], i_node=(0, 1))
    assert_is(profile.interference.slowdown, 2.0)


def test_one_of_two_nodes_without_company_has_most_of_the_work():
    alone = working(1, 1.0)
    alone["phase"] = 2
    profile = found(
        working(0, 2.0, 30.0), one_wait(0, 30.0), alone, n_nodes=2, shared_s=[JOB_S, 0.0], i_node=(0, 1)
    )
    assert_is(profile.interference.slowdown, 1.0)


def test_work_that_was_never_disturbed_is_not_known_exactly():
    """Rank 1 has a node of its own and work for 45 s, which no shutter has measured."""
    alone = working(1, 1.0, 45.0)
    alone["phase"] = 2
    slowdown = found(
        working(0, 2.0), alone, one_wait(1, 15.0), n_nodes=2, shared_s=[JOB_S, 0.0], i_node=(0, 1)
    ).interference.slowdown
    assert slowdown.low < 60 / 45 < slowdown.high
    assert np.log(slowdown.high / slowdown.low) == pytest.approx(4 * BURST_MODEL_ERROR)


@given(
    st.floats(0.8, 5),
    st.floats(0.01, 0.5),
    st.floats(0, 50),
    st.floats(1, 50),
    st.floats(0, 120),
    st.floats(0, 0.3),
)
def test_the_interval_of_a_job_holds_its_slowdown_and_has_a_width(s, half, alone_s, corun_s, work_s, spread):
    """Whichever time counts: that of the co-run phase, or the most work of another rank."""
    phase = Estimate(s, s * np.exp(-half), s * np.exp(half), 9, "1", "burst-matched")
    split = WallTimeSplit(alone_s, corun_s, 0.1, 0.2)
    job = job_slowdown(phase, split, (work_s, work_s * (1 + spread), work_s * (1 - spread)))
    assert job.low <= job.value <= job.high and job.low < job.high
    solo_s = alone_s + 0.1 + corun_s / s
    total_s = alone_s + corun_s + 0.3
    longest_s = max(solo_s, min(work_s, total_s)) if work_s * (1 - spread) > solo_s else solo_s
    assert job.value == pytest.approx(total_s / longest_s)


def test_a_cycle_that_was_not_seen_whole_does_not_say_that_its_rank_was_alone():
    """A job that calls MPI to begin and to end has one cycle, too long to tell its phases."""
    one = table("cycles", {"rank": [1], "phase": [2], "n": [1], "comp_ns": [round(JOB_S * 1e9)]})
    assert_is(found(working(0, 2.0), one).interference.slowdown, 2.0)


def test_without_shutters_no_wait_is_called_long():
    waits = one_wait(0, 30.0)
    tables = {**sample.tables(n_shutters=0), "cycles": np.concatenate([working(1, 1.0, 30.0), waits])}
    assert complete(sample.job(), tables, rng=rng()).tables["ranks"]["wait_frac"] == pytest.approx(
        0, abs=0.02
    )


def test_where_nothing_is_known_of_a_rank_its_columns_say_so():
    ranks = complete(sample.job(), {**sample.tables(), "cycles": table("cycles")}, rng=rng()).tables["ranks"]
    assert all(
        np.isnan(ranks[name]).all() for name in ("wait_frac", "slowdown", "slowdown_low", "slowdown_high")
    )
    few = interference(sample.job(), {**sample.tables(), "cycles": working(5, 1.5)}, rng=rng())
    assert few.slowdown is not None  # a rank that left no segment
