"""Advice: each rule speaks on strong evidence, with its numbers, and none on weak evidence."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import sample
from hypothesis import given, settings, strategies as st

from mpicoloc.bill.price import price
from mpicoloc.core.profile import Estimate, Interference, MpiSummary, Profile, table
from mpicoloc.measure import advice as rules
from mpicoloc.measure.advice import advice
from mpicoloc.measure.processor import ALONE

N_RANKS = 4


def slowdown_of(value, low, high, n=120):
    return Estimate(value, low, high, n, "1", ALONE if high == low == 1 else "burst-matched")


def profile_of(
    slowdown=(1.0, 1.0, 1.0),
    n=120,
    time_frac=0.2,
    comp_s=(40.0,) * N_RANKS,
    migrations=5.0,
    cpus="0-3",
    n_cpus=8.0,
    wall_s=600.0,
    partial=False,
    cpus_of_a_rank=0.95,
    **found,
):
    """A job of four ranks on half of one node, of which nothing is to be said."""
    ends = None if slowdown is None else slowdown_of(*slowdown, n)
    values = {
        "slowdown": ends, "shared_s": 500.0, "cpu_s": 2300.0, "run_delay_s": 10.0, "coverage_frac": 1.0
    }  # fmt: skip
    interference = Interference(**{**values, **found})
    ranks = {
        "rank": range(N_RANKS), "i_node": [0] * N_RANKS, "n_cores": [4] * N_RANKS,
        "comp_ns": np.array(comp_s) * 1e9, "cpu_s": [cpus_of_a_rank * wall_s] * N_RANKS,
        "migrations": [migrations] * N_RANKS,
    }  # fmt: skip
    tables = {
        "ranks": table("ranks", ranks),
        "nodes": table("nodes", {"hostname": ["n1"], "cpus": [cpus], "n_cpus": [n_cpus]}),
    }
    job = sample.job(n_ranks=N_RANKS, n_cores=4, wall_s=wall_s)
    bill = price(ends, n_cores=4, wall_s=wall_s, rate_su=1.0)
    return Profile(job, tables, MpiSummary(time_frac=time_frac), interference, bill, partial)


SLOWED = {"slowdown": (1.5, 1.4, 1.6)}
UNHARMED = {"slowdown": (1.01, 0.99, 1.03)}
DELAYED = {"cpu_s": 1200.0, "run_delay_s": 1200.0}
FOREIGN = {"foreign_delay_frac": 0.5, "foreign_delay_low_frac": 0.4, "foreign_delay_high_frac": 0.6}
LOST = "the ranks had no processor for 50% of the time that they were ready to run"
STRONG = {
    "whole nodes": (
        SLOWED,
        "if time matters more than the price, ask for whole nodes (Slurm: --exclusive): beside co-runners "
        "the job took 1.500 times as long as alone (1.400 to 1.600, 95 %, 120 shutters), so alone it would"
        " take about 400 s instead of 600 s; whole nodes (8 processors) would cost 0.8889 SU at the same "
        "rate, the job's 4 cores cost 0.2963 SU",
    ),
    "share": (
        UNHARMED,
        "share nodes again (Slurm: without --exclusive): in 500 s beside co-runners the job took 1.010 "
        "times as long as alone (0.990 to 1.030, 95 %, 120 shutters); whole nodes (8 processors) would "
        "cost 1.32 SU at the same rate, the job's 4 cores cost 0.6535 SU",
    ),
    "crowded": (
        {**DELAYED, "cpus": "0-1"},
        "give each rank a processor of its own (Slurm: --ntasks=4 and no --overcommit; mpirun: --bind-to "
        f"core), or start 2 ranks per node: 4 ranks share 2 processors of their node, and {LOST}",
    ),
    "foreign": (
        DELAYED,
        "look for processes without mpicoloc on the job's nodes, give each thread of a rank a processor "
        f"(Slurm: --cpus-per-task), or raise the limit on processor time of its container: {LOST}, and no "
        "job under mpicoloc was beside it",
    ),
    "unbound": (
        {"migrations": 114000.0},
        "bind the ranks (mpirun: --bind-to core; Slurm: --cpu-bind=cores): they migrated 200 times per "
        "second of processor time, which may cost 2 to 5 %, while others delayed them for only 0.4% of the"
        " time that they were ready to run",
    ),
    "fewer": (
        {"time_frac": 0.8},
        "ask for half of the ranks: all 4 spent 80% of their time in MPI, so half of them would take about"
        " 1.20 times as long at 60% of the price, if the time in MPI stays the same",
    ),
    "uneven": (
        {"time_frac": 0.6, "comp_s": (10.0, 10.0, 400.0, 10.0)},
        "give all ranks equal work: rank 2 computed for 400 s and the ranks on average for 107.5 s, while "
        "60% of their time went into MPI",
    ),
    "turns": (
        {**SLOWED, **DELAYED},
        "give each job processors of its own (Slurm: a partition without OverSubscribe; mpirun: --bind-to "
        "none, or other processors for each job), or ask for whole nodes: beside co-runners the job took "
        "1.500 times as long as alone (1.400 to 1.600, 95 %, 120 shutters), so alone it would take about "
        "400 s instead of 600 s; whole nodes (8 processors) would cost 0.8889 SU at the same rate, the "
        "job's 4 cores cost 0.2963 SU",
    ),
}


@pytest.mark.parametrize("name", STRONG)
def test_each_rule_speaks_with_its_numbers_and_alone(name):
    changes, sentence = STRONG[name]
    assert advice(profile_of(**changes)) == (sentence,)


def test_an_ordinary_job_gets_none():
    assert advice(profile_of()) == ()
    assert advice(replace(profile_of(), tables={}, mpi=MpiSummary(), interference=Interference())) == ()


@pytest.mark.parametrize("name", STRONG)
@pytest.mark.parametrize("weak", [{"wall_s": 29.0}, {"partial": True}], ids=str)
def test_none_of_a_short_or_partial_job(name, weak):
    assert advice(profile_of(**STRONG[name][0] | weak)) == ()


WEAK = [
    {"slowdown": (1.5, 0.95, 2.1)},  # the interval has 1 in it
    {"slowdown": (1.2, 1.09, 1.3)},
    {**SLOWED, "n": 29},
    {**SLOWED, "coverage_frac": 0.5},
    {"slowdown": (1.5, 1.5, 1.5)},  # without an interval
    {"slowdown": None},
    {"slowdown": (1.01, 0.9, 1.1)},
    {**UNHARMED, "n": 29},
    {**UNHARMED, "shared_s": 10.0},
    {**UNHARMED, "shared_s": 45.0},  # of 600 s: the slowdown of the shared time may be large
    {"migrations": 115000.0, "cpus_of_a_rank": 4.0},  # ranks of several threads
    {**DELAYED, "cpus": "0-1", "slowdown": (1.08, 1.05, 1.1)},  # co-runners may have had them
    {**UNHARMED, "shared_s": None},
    {**DELAYED, "slowdown": (1.08, 1.05, 1.1)},  # co-runners may have had the processors
    {**DELAYED, "slowdown": (1.08, 1.05, 1.1), **FOREIGN, "foreign_delay_low_frac": 0.01},
    {**DELAYED, "slowdown": None},
    {"cpu_s": 2300.0, "run_delay_s": 100.0},
    {"migrations": 40000.0},
    {"migrations": math.nan},
    {"migrations": 115000.0, "cpu_s": None, "run_delay_s": None},
    {"time_frac": 0.74},
    {"time_frac": None},
    {"time_frac": 0.8, "comp_s": (40.0, 40.0, 60.0, 40.0)},  # neither even nor uneven
    {"time_frac": 0.8, "slowdown": (1.08, 1.05, 1.1)},  # it may be the co-runners
    {"time_frac": 0.45, "comp_s": (10.0, 10.0, 400.0, 10.0)},
    {"time_frac": 0.9, "comp_s": (0.0,) * N_RANKS},
]


@pytest.mark.parametrize("changes", WEAK, ids=str)
def test_none_on_weak_evidence(changes):
    assert advice(profile_of(**changes)) == ()


def test_delays_beside_co_runners_count_if_they_stay_while_these_stand_still():
    [words] = advice(profile_of(**DELAYED, **FOREIGN, slowdown=(1.08, 1.05, 1.1)))
    assert words.startswith("look for processes without mpicoloc on the job's nodes")
    assert words.endswith(
        f"{LOST}, and none for 50% (40% to 60%) of the time that all co-runners stood still"
    )


def test_bound_ranks_are_not_told_to_bind():
    profile = profile_of(**STRONG["unbound"][0])
    ranks = profile.tables["ranks"].copy()
    ranks["n_cores"] = 1
    assert advice(replace(profile, tables={**profile.tables, "ranks": ranks})) == ()


@pytest.mark.parametrize("n_cpus", [math.nan, 4.0, 0.0])
def test_no_price_of_whole_nodes_where_it_is_unknown_or_the_same(n_cpus):
    [words] = advice(profile_of(**SLOWED, n_cpus=n_cpus))
    assert words.endswith("about 400 s instead of 600 s")
    assert advice(replace(profile_of(**SLOWED), price=None)) == (words,)


ends = st.tuples(*[st.floats(0.5, 4.0)] * 3).map(lambda three: (sorted(three)[1], min(three), max(three)))


@settings(max_examples=200, deadline=None)
@given(slowdown=ends, n=st.integers(0, 400), coverage=st.none() | st.floats(0, 1))
def test_sharing_is_never_both_good_and_bad_and_never_on_an_interval_that_leaves_it_open(
    slowdown, n, coverage
):
    _, low, high = slowdown
    enough = n >= rules.MIN_SHUTTERS and (coverage is None or coverage >= rules.MIN_COVERAGE_FRAC)
    said = ["if time matters more than the price, ask for whole nodes"] * (low > rules.LARGE_SLOWDOWN) + [
        "share nodes again"
    ] * (high < rules.SMALL_SLOWDOWN)
    found = advice(profile_of(slowdown=slowdown, n=n, coverage_frac=coverage))
    assert [words.split(" (")[0] for words in found] == said * (enough and low < high)


@settings(max_examples=100, deadline=None)
@given(
    time_frac=st.floats(0, 1), comp_s=st.lists(st.floats(0, 600), min_size=N_RANKS, max_size=N_RANKS),
    cpu_s=st.floats(0, 2400), run_delay_s=st.floats(0, 2400), migrations=st.floats(0, 1e6),
)  # fmt: skip
def test_advice_is_words_of_one_line_whatever_was_measured(**changes):
    found = advice(profile_of(**changes))
    assert all(words.isprintable() and any(letter.isdigit() for letter in words) for words in found)
    assert not any(re.search(r"\b(nan|inf)", words) for words in found)
