"""What the coordinators of several nodes agree on follows from what they all know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoloc.pmpi import contract
from mpicoloc.run import clocks
from mpicoloc.run.agreement import Offer, apart_ns, plan, verdict_of_all

MS = 1_000_000
VALID = contract.MC_VERDICT_VALID


@st.composite
def _offers(draw):
    return [
        Offer(
            n_jobs=draw(st.integers(1, 8)),
            period_ns=draw(st.integers(20, 60_000)) * MS,
            duration_ns=draw(st.integers(200, 100_000)) * 1000,
            now_ns=10**15 + draw(st.integers(0, 500)) * MS,
            bound_ns=draw(st.integers(0, 2 * MS)),
        )
        for _ in range(draw(st.integers(2, 5)))
    ]


@given(_offers(), st.integers(1, 1 << 40), st.integers(0, 3000), st.integers(300, 10_000))
def test_a_plan_leaves_time_to_agree_and_keeps_the_pace(offers, i, since_ms, slack_ms):
    last_ns = offers[0].now_ns - since_ms * MS
    found = plan(offers, i, last_ns, slack_ms * MS)
    if all(offer.n_jobs == 1 for offer in offers):
        assert found is None
        return
    wanted_ns = max(offer.duration_ns for offer in offers)
    if found is None:
        assert apart_ns(offers) > wanted_ns / 4
        return
    period_ns = max(offer.period_ns for offer in offers)
    assert found.t0_ns >= max(offer.now_ns for offer in offers) + slack_ms * MS + 2 * period_ns
    assert found.t0_ns - last_ns >= max(offer.n_jobs * offer.period_ns for offer in offers)
    assert wanted_ns <= found.duration_ns <= 4 * wanted_ns
    # What is left of the shutter when each edge may be this far off is most of it.
    assert 2 * apart_ns(offers) <= found.duration_ns / 4
    assert found == plan(offers[::-1], i, last_ns, slack_ms * MS)


@pytest.mark.parametrize(
    ("own", "others", "whole"),
    [
        (VALID, [VALID, VALID], VALID),
        (VALID, [VALID, contract.MC_VERDICT_MOVED], contract.MC_VERDICT_ELSEWHERE),
        (contract.MC_VERDICT_LATE, [VALID], contract.MC_VERDICT_LATE),
        (contract.MC_VERDICT_MOVED, [contract.MC_VERDICT_SILENT], contract.MC_VERDICT_MOVED),
    ],
)
def test_a_shutter_counts_on_all_nodes_or_on_none(own, others, whole):
    offers = [Offer(verdict=verdict) for verdict in (own, *others)]
    assert verdict_of_all(own, offers) == whole


def test_a_clock_is_known_less_and_less_well():
    found = clocks.Offset(offset_ns=5, error_ns=1000, t_ns=0)
    assert found.bound_ns(0) == 1000
    assert found.bound_ns(10**9) == 1000 + 50_000
