"""Placements: what they cost, and that nothing beats exhaustive search, nor that the bound."""

from itertools import pairwise

import numpy as np
import placements
import pytest
import scipy.optimize
from hypothesis import given, settings, strategies as st

from mpicoloc.core.bubbles import JobRequest
from mpicoloc.core.slowdown import measured_programs
from mpicoloc.errors import DataError, UsageError
from mpicoloc.place import anneal
from mpicoloc.place.anneal import Annealing, Constraints, Replicas, aligned_placement, random_placement
from mpicoloc.place.place import all_placements, lower_bound, place, search, slowdowns_of

QUICK = Annealing(n_restarts=8, n_sweeps=4)


def bubbled(sizes, n_nodes, n_slots=2, seed=0, **more):
    requests, known = placements.jobs(sizes, seed), placements.model(seed)
    return requests, known, anneal.of_bubbles(requests, n_nodes, n_slots, known, **more)


def check_whole(given_problem, slots):
    """Every job has as many nodes as it needs, and no node twice."""
    jobs, counts = np.unique(slots[slots >= 0], return_counts=True)
    assert dict(zip(jobs.tolist(), counts.tolist(), strict=True)) == dict(
        enumerate(given_problem.sizes.tolist())
    )
    for node in slots.tolist():
        taken = [job for job in node if job >= 0]
        assert len(set(taken)) == len(taken)


@st.composite
def cases(draw):
    n_nodes, n_slots = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, n_nodes), min_size=1, max_size=5))
    while sum(sizes) > n_nodes * n_slots:
        sizes.pop()
    return sizes or [1], n_nodes, n_slots, draw(st.integers(0, 50))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_a_random_placement_holds_every_job_once_a_node(case):
    sizes, n_nodes, n_slots, seed = case
    _, _, one = bubbled(sizes, n_nodes, n_slots, seed)
    for start in (random_placement, aligned_placement):
        check_whole(one, start(one, np.random.default_rng(seed)))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_slowdowns_are_those_of_the_paper_one_job_at_a_time(case):
    sizes, n_nodes, n_slots, seed = case
    requests, known, one = bubbled(sizes, n_nodes, n_slots, seed)
    slots = random_placement(one, np.random.default_rng(seed))
    assert slowdowns_of(one, slots) == pytest.approx(placements.evaluate(requests, known, slots))


@given(cases(), st.sampled_from(["sum", "speedup", "worst"]))
@settings(max_examples=30, deadline=None)
def test_what_annealing_counts_step_by_step_is_what_evaluation_from_scratch_says(case, objective):
    sizes, n_nodes, n_slots, seed = case
    _, _, one = bubbled(sizes, n_nodes, n_slots, seed)
    rng = np.random.default_rng(seed)
    replicas = Replicas(one, np.array([random_placement(one, rng) for _ in range(4)]), objective)
    for temperature in (1.0, 0.1, 0.0) * 8:
        for draw in (anneal.proposals, anneal.job_proposals):
            anneal.step(replicas, *draw(replicas, 3, rng), temperature, rng)
    for i in range(4):
        slots = replicas.placements(replicas.job)[i]
        check_whole(one, slots)
        assert replicas.slowdowns(i) == pytest.approx(slowdowns_of(one, slots))
    fresh = Replicas(one, replicas.placements(replicas.job), objective)
    assert replicas.totals() == pytest.approx(fresh.totals())


@given(cases(), st.sampled_from(["sum", "speedup", "worst"]))
@settings(max_examples=30, deadline=None)
def test_annealing_never_beats_exhaustive_search_and_that_never_beats_the_bound(case, objective):
    sizes, n_nodes, n_slots, seed = case
    _, _, one = bubbled(sizes, n_nodes, n_slots, seed)
    best = anneal.cost_of(search(one, objective).slowdown, objective)
    found = anneal.anneal(one, np.random.default_rng(seed), objective, QUICK)
    check_whole(one, found.slots)
    assert anneal.cost_of(found.slowdown, objective) >= best - 1e-9
    least = lower_bound(one, objective)
    least = -least if objective == "speedup" else least
    assert best >= least - 1e-6 * abs(least)


def test_four_jobs_that_fill_eight_nodes_can_meet_in_fifteen_ways():
    """x_ab = x_cd, x_ac = x_bd and x_ad = x_bc, and together they are 4."""
    assert len(all_placements((4, 4, 4, 4), 8, 2, 15)) == 15
    assert all_placements((4, 4, 4, 4), 8, 2, 14) is None, "too many are not searched"


def test_small_mixes_are_placed_as_well_as_possible():
    """Of Han et al. 2016, section 5.2: 4 applications on 8 hosts."""
    n_good = 0
    for seed in range(20):
        _, _, one = bubbled([4, 4, 4, 4], 8, seed=seed)
        best = search(one).slowdown.sum()
        n_good += anneal.anneal(one, np.random.default_rng(seed)).slowdown.sum() <= 1.005 * best
    assert n_good >= 19


def test_the_same_seed_gives_the_same_placement_and_touches_no_global_state():
    _, _, one = bubbled([3] * 20, 40, seed=3)
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    first, again = (anneal.anneal(one, np.random.default_rng(5), settings=QUICK) for _ in range(2))
    assert np.array_equal(first.slots, again.slots)
    assert np.array_equal(before, np.random.get_state()[1])


def test_a_longer_search_is_no_worse_on_a_large_problem():
    _, _, one = bubbled([4] * 40, 80, seed=1)
    short, long = (
        anneal.anneal(one, np.random.default_rng(0), settings=Annealing(1, n_sweeps)).slowdown.sum()
        for n_sweeps in (1, 60)
    )
    rng = np.random.default_rng(0)
    random = np.mean([slowdowns_of(one, random_placement(one, rng)).sum() for _ in range(5)])
    assert long <= short < random
    assert long <= 1.1 * lower_bound(one)


def test_jobs_apart_whole_nodes_and_limits_are_kept():
    requests, known = placements.jobs([2, 2, 2, 2], 4), placements.model(4)
    free = anneal.of_bubbles(requests, 6, 2, known)
    best = search(free)
    limit = float(best.slowdown[1])
    asked = Constraints(apart=(("j0", "j1"),), at_most={"j1": limit}, whole=("j3",))
    one = anneal.of_bubbles(requests, 6, 2, known, constraints=asked)
    for found in (search(one), anneal.anneal(one, np.random.default_rng(0))):
        assert found.n_broken == 0
        together = [set(node) for node in found.slots.tolist()]
        assert not any({0, 1} <= node for node in together)
        assert all(node <= {3, -1} for node in together if 3 in node)
        assert found.slowdown[1] <= limit + 1e-12 and found.slowdown[3] == 1


def test_constraints_that_nothing_keeps_are_told():
    requests, known = placements.jobs([4, 4, 4, 4], 4), placements.model(4)
    asked = Constraints(at_most=dict.fromkeys(("j0", "j1", "j2", "j3"), 1.0))
    with pytest.raises(DataError, match="no placement meets all constraints: the best one breaks"):
        place(
            lambda end: anneal.of_bubbles(requests, 8, 2, known, constraints=asked, end=end),
            np.random.default_rng(0),
        )


@pytest.mark.parametrize(
    ("sizes", "nodes", "asked", "error", "words"),
    [
        ([9], 8, {}, DataError, "job 'j0' needs 9 nodes, but there are 8"),
        ([8, 8, 1], 8, {}, DataError, "the jobs need 17 slots, but 8 nodes with 2 slots each have 16"),
        ([], 8, {}, UsageError, "no job to place"),
        ([1], 0, {}, UsageError, "nodes and slots must be at least 1"),
        ([5, 4], 8, {"apart": (("j0", "j1"),)}, UsageError, "cannot be kept apart: they need 5 and 4 nodes"),
        ([1, 1], 8, {"apart": (("j0", "j0"),)}, UsageError, "cannot be kept apart from itself"),
        ([1, 1], 8, {"whole": ("x",)}, UsageError, "a constraint names job 'x'"),
        ([1, 1], 8, {"at_most": {"j0": 0.9}}, UsageError, "must be at least 1, got 0.9"),
        (
            [5, 4],
            8,
            {"whole": ("j0",)},
            UsageError,
            "take 5 nodes, and the others at least 4 more, but there are 8",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_in_one_line(sizes, nodes, asked, error, words):
    with pytest.raises(error, match=words) as caught:
        anneal.of_bubbles(
            placements.jobs(sizes), nodes, 2, placements.model(), constraints=Constraints(**asked)
        )
    assert "\n" not in str(caught.value)


def test_any_model_of_pairs_can_be_placed_by():
    pairs = {("a", "a"): 1.4, ("a", "b"): 1.0, ("b", "a"): 1.1, ("b", "b"): 1.3}
    table, features = measured_programs({pair: (x, np.nan, np.nan) for pair, x in pairs.items()}, ["a", "b"])
    requests = [JobRequest(str(i), name, 2) for i, name in enumerate("aabb")]
    one = anneal.of_model(requests, 4, 2, table, features)
    found = search(one)
    assert found.slowdown == pytest.approx([1.0, 1.0, 1.1, 1.1])
    assert lower_bound(one) == pytest.approx(4.2)
    assert anneal.anneal(one, np.random.default_rng(0)).slowdown.sum() == pytest.approx(4.2)
    with pytest.raises(DataError, match="was not measured"):
        anneal.of_model(requests, 4, 2, measured_programs({}, ["a", "b"])[0], features)


def test_intervals_of_curves_and_scores_are_carried_to_the_jobs():
    requests, known = placements.jobs([2, 2], 1), placements.model(1)
    placed = place(lambda end: anneal.of_bubbles(requests, 2, 2, known, end=end), np.random.default_rng(0))
    assert placed.gap_frac == 0 and placed.method == "exhaustive"
    assert placed.value == pytest.approx(sum(one.value for one in placed.slowdowns))
    for one in placed.slowdowns:
        assert one.low < one.value < one.high
    assert placed.nodes_of(0) == [0, 1]


@pytest.mark.parametrize("objective", anneal.OBJECTIVES)
def test_annealing_keeps_jobs_apart_for_every_objective(objective):
    requests, known = placements.jobs([2] * 36, 5), placements.model(5)
    free = anneal.of_bubbles(requests, 40, 2, known)
    together = anneal.anneal(free, np.random.default_rng(1), objective).slots.tolist()
    pairs = {tuple(sorted(node)) for node in together if -1 not in node and node[0] != node[1]}
    asked = Constraints(apart=tuple((f"j{a}", f"j{b}") for a, b in sorted(pairs)[:12]))
    one = anneal.of_bubbles(requests, 40, 2, known, constraints=asked)
    assert search(one, objective) is None
    found = anneal.anneal(one, np.random.default_rng(2), objective)
    assert found.n_broken == 0


@given(cases(), st.sampled_from(["sum", "speedup", "worst"]))
@settings(max_examples=20, deadline=None)
def test_broken_constraints_are_those_that_counting_by_hand_finds(case, objective):
    sizes, n_nodes, n_slots, seed = case
    requests, known, _ = bubbled(sizes, n_nodes, n_slots, seed)
    ids = [one.id for one in requests]
    apart = [job for job, two in enumerate(pairwise(sizes)) if sum(two) <= n_nodes]
    asked = Constraints(tuple((ids[job], ids[job + 1]) for job in apart), dict.fromkeys(ids, 1.05))
    one = anneal.of_bubbles(requests, n_nodes, n_slots, known, constraints=asked)
    found = anneal.anneal(one, np.random.default_rng(seed), objective, QUICK)
    met = sum({job, job + 1} <= set(node) for node in found.slots.tolist() for job in apart)
    assert found.n_broken == met + (found.slowdown > 1.05 * (1 + 1e-12)).sum()


@pytest.mark.parametrize("objective", anneal.OBJECTIVES)
def test_a_solver_that_gives_up_leaves_a_weaker_bound(monkeypatch, objective):
    _, _, one = bubbled([2, 2, 3, 1], 4)
    usual = lower_bound(one, objective)
    real = scipy.optimize.linprog
    monkeypatch.setattr(
        scipy.optimize, "linprog", lambda *given, **more: real(*given, **more, options={"maxiter": 0})
    )
    weaker = lower_bound(one, objective)
    assert np.isfinite(weaker)
    assert weaker >= usual if objective == "speedup" else weaker <= usual


@pytest.mark.parametrize(("sizes", "n_nodes", "n_slots"), [([1] * 25, 64, 16), ([40, 40, 40, 40], 64, 3)])
def test_a_search_without_an_end_in_sight_is_given_up(sizes, n_nodes, n_slots):
    one = anneal.of_bubbles(placements.jobs(sizes, 4), n_nodes, n_slots, placements.model(4))
    assert search(one) is None
