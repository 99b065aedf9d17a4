"""Load of a job on each level, compared with a count message by message; and input that is refused."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from trees import QUICK, topologies

from mpicoloc.core.network import Exchange, Placement, Traffic, TrafficSum, check_placement, parse_xgft
from mpicoloc.core.profile import NetworkLevel
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network import routing, utilisation
from mpicoloc.network.topology import placements

TREE = parse_xgft("XGFT(2;4,2;1,2)", [1e9, 2e9])


@st.composite
def jobs(draw):
    """A tree, a placement and messages in it."""
    topology = draw(topologies())
    n_ranks = draw(st.integers(1, 12))
    hosts = draw(st.lists(st.integers(0, topology.n_hosts - 1), min_size=n_ranks, max_size=n_ranks))
    rank = st.integers(0, n_ranks - 1)
    rows = draw(st.lists(st.tuples(rank, rank, st.integers(0, 1000)), max_size=20))
    return topology, Placement(np.array(hosts)), rows


def traffic_of(placement, rows):
    return Traffic.of(placement.n_ranks, *(np.array([row[i] for row in rows], dtype=int) for i in range(3)))


@QUICK
@given(jobs())
def test_bytes_of_a_level_are_those_of_messages_that_climb_above_it(job):
    topology, placement, rows = job
    expected = [0] * topology.height
    for src, dst, n_bytes in rows:
        for level in range(topology.height):
            apart = placement.hosts[src] // topology.subtree_hosts(level) != placement.hosts[
                dst
            ] // topology.subtree_hosts(level)
            expected[level] += n_bytes * apart
    found = utilisation.level_bytes(topology, placement, traffic_of(placement, rows))
    assert found.tolist() == expected


@QUICK
@given(jobs(), st.sampled_from(["d-mod-k", "s-mod-k", "random:1"]))
def test_loads_of_the_links_of_a_level_add_up_to_its_bytes(job, name):
    topology, placement, rows = job
    traffic = traffic_of(placement, rows)
    loads = utilisation.job_link_loads(topology, placement, traffic, routing.by_name(name))
    expected = utilisation.level_bytes(topology, placement, traffic)
    assert [side.sum() for side in loads.up] == expected.tolist() == [side.sum() for side in loads.down]
    seen = utilisation.available_bps(topology, placement) / topology.capacity_bps
    for level in range(topology.height):
        assert np.count_nonzero(loads.up[level]) <= seen[level]
        assert np.count_nonzero(loads.down[level]) <= seen[level]


@QUICK
@given(jobs(), st.integers(0, 12))
def test_an_exchange_of_all_needs_no_pairs_in_memory(job, n_members):
    topology, placement, rows = job
    members = np.arange(placement.n_ranks)[:n_members]
    exchange = Exchange(placement.n_ranks, members, 3.0)
    lazy = TrafficSum(placement.n_ranks, (exchange, traffic_of(placement, rows)))
    whole = lazy.traffic()
    found, expected = (utilisation.level_bytes(topology, placement, one) for one in (lazy, whole))
    assert found.tolist() == expected.tolist()
    for name in ("d-mod-k", "s-mod-k", "random"):
        found, expected = (
            utilisation.job_link_loads(topology, placement, one, routing.by_name(name))
            for one in (lazy, whole)
        )
        assert all(map(np.array_equal, (*found.up, *found.down), (*expected.up, *expected.down)))


def test_an_all_to_all_of_100_000_ranks_is_told_without_its_pairs():
    topology = parse_xgft("XGFT(3;48,48,48;1,24,24)", 1e9)
    n = 100_000
    placement, everybody = placements.regular(topology, n, 48), Exchange(n, np.arange(n), 8.0)
    sent = utilisation.level_bytes(topology, placement, everybody)
    assert sent[0] == 8 * n * (n - 1)
    loads = utilisation.job_link_loads(topology, placement, everybody)
    assert [side.sum() for side in loads.up] == sent.tolist() == [side.sum() for side in loads.down]


def test_levels_of_a_small_job():
    """Ranks 0 and 1 on one switch, rank 2 on the other; 10 bytes stay below the switch and 30 leave it."""
    placement = Placement([0, 1, 4])
    traffic = Traffic.of(3, [0, 1, 2], [1, 2, 0], [10, 20, 10])
    rows = utilisation.utilisation(TREE, placement, traffic, 2.0)
    assert [row.sent_bytes for row in rows] == [40, 30]
    assert [row.injection_bps for row in rows] == [20, 15]
    assert [row.available_bps for row in rows] == [3e9, 2 * 2 * 2e9]
    assert [row.utilisation_frac for row in rows] == [20 / 3e9, 15 / 8e9]
    unknown = utilisation.utilisation(TREE, placement, traffic, None)
    assert [row.injection_bps for row in unknown] == [None, None]
    assert utilisation.demand_class(unknown) is None


def test_a_level_that_is_not_reached_has_no_bandwidth_and_no_utilisation():
    rows = utilisation.utilisation(TREE, Placement([0, 1]), Traffic.of(2, [0], [1], [10]), 1.0)
    assert (rows[1].available_bps, rows[1].utilisation_frac) == (0, 0)


@pytest.mark.parametrize(
    ("most", "name"), [(0.0, "low"), (0.09, "low"), (0.1, "moderate"), (0.5, "extreme"), (7.0, "extreme")]
)
def test_class_is_that_of_the_most_used_level_above_the_hosts(most, name):
    rows = [NetworkLevel(i, 0, 0, 0, fraction) for i, fraction in enumerate((9.0, most, 0.0))]
    assert utilisation.demand_class(rows) == name


@pytest.mark.parametrize(
    ("placement", "n_ranks", "duration_s", "words"),
    [
        (Placement([0, 1]), 3, 1.0, "the placement has hosts for 2 ranks, but the job has 3"),
        (Placement([0, 8]), 2, 1.0, "rank 1 is on host 8"),
        (Placement([0, 1]), 2, 0.0, "must be above 0 s, got 0.0"),
    ],
)
def test_what_does_not_fit_is_told(placement, n_ranks, duration_s, words):
    with pytest.raises(DataError, match=words):
        utilisation.utilisation(TREE, placement, Traffic.empty(n_ranks), duration_s)


@QUICK
@given(topologies(), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.integers(0, 9))
def test_placements_have_as_many_on_each_switch_and_host_as_asked(topology, n_ranks, k, per_host, seed):
    rng = np.random.default_rng(seed)
    needed = -(-n_ranks // per_host)
    if k <= topology.m[0] and needed <= topology.n_hosts // topology.m[0] * k:
        hosts = placements.by_name(f"f{k}", topology, n_ranks, rng, per_host).hosts
        switches = np.unique(np.unique(hosts) // topology.m[0], return_counts=True)[1]
        assert (switches[:-1] == k).all() and switches[-1] <= k
        assert (np.unique(hosts, return_counts=True)[1][:-1] == per_host).all()
    else:
        with pytest.raises((DataError, UsageError), match=f"placement F{k}"):
            placements.regular(topology, n_ranks, k, per_host)
    if needed <= topology.n_hosts:
        one, two = (
            placements.scattered(topology, n_ranks, np.random.default_rng(seed), per_host) for _ in range(2)
        )
        assert one == two and len(one.distinct_hosts()) == needed
        check_placement(topology, one)
    else:
        with pytest.raises(DataError, match="--ranks-per-host"):
            placements.scattered(topology, n_ranks, rng, per_host)


def test_names_of_placements():
    for name in ("F", "F0x", "G8", "", "8", "F²"):
        with pytest.raises(UsageError, match="is unknown: give Fk"):
            placements.by_name(name, TREE, 1, np.random.default_rng(0))
    with pytest.raises(DataError, match="ranks per host must be >= 1"):
        placements.by_name("RF", TREE, 1, np.random.default_rng(0), 0)


@QUICK
@given(topologies(), st.data())
def test_placements_take_only_hosts_that_are_free(topology, data):
    hosts = range(topology.n_hosts)
    free = np.array(sorted(data.draw(st.sets(st.sampled_from(hosts), max_size=12))), dtype=np.int64)
    n_ranks, seed = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 9))
    for name in ("RF", *(f"F{k}" for k in range(1, topology.m[0] + 1))):
        try:
            found = placements.by_name(name, topology, n_ranks, np.random.default_rng(seed), 1, free)
        except DataError as error:
            assert "fewer ranks" in str(error)
            assert name != "RF" or n_ranks > len(free)
            continue
        assert np.isin(found.hosts, free).all() and len(found.distinct_hosts()) == n_ranks
        if name != "RF":
            counts = np.unique(found.hosts // topology.m[0], return_counts=True)[1]
            assert (counts[:-1] == int(name[1:])).all() and counts[-1] <= int(name[1:])


def loads_of(src, dst, n_bytes):
    return routing.link_loads(TREE, np.array([src]), np.array([dst]), np.array([n_bytes]))


def test_jobs_share_the_links_that_both_load():
    """Jobs 0 and 1 go up by the same link to even hosts; job 2 to an odd one; job 3 stays below."""
    jobs = [loads_of(0, 4, 10), loads_of(1, 6, 10), loads_of(2, 5, 10), loads_of(3, 1, 10)]
    found = utilisation.shared_links(jobs)
    assert found.n_jobs().tolist() == [[0, 0, 0, 0], [1, 1, 0, 0]]
    assert found.n_links[1, 0, 1] == 2, "one up, one down"
    assert found.n_links[0].diagonal().tolist() == [2, 2, 2, 2]
    assert found.pairs() == [(0, 1)]
    links = utilisation.common_links(jobs[0], jobs[1])
    assert {(link.level, link.link, link.way) for link in links} == {(1, 0, "up"), (1, 2, "down")}
    assert [link.n_bytes for link in links] == [(10, 10), (10, 10)]
    assert utilisation.common_links(jobs[0], jobs[2]) == []


def test_mutual_slowdown_lies_between_never_and_always_at_once():
    """Each keeps a level-1 link of 2e9 bytes/s busy for half and a quarter of its time."""
    jobs = [loads_of(0, 4, 1e9), loads_of(1, 6, 5e8)]
    found = utilisation.mutual_slowdown(parse_xgft("XGFT(2;4,2;1,2)", 2e9), jobs, [1.0, 1.0])
    busy = [0.5, 0.25]
    for i, one in enumerate(found):
        assert one.low == 1 and one.high == pytest.approx(1.25, abs=1e-4)
        other_sends = 1 - (1 - busy[1 - i]) / found[1 - i].value
        assert one.value == pytest.approx(1 - busy[i] + busy[i] / (1 - other_sends / 2), abs=1e-4)
    alone = utilisation.mutual_slowdown(TREE, [loads_of(0, 4, 1e9), loads_of(2, 5, 1e9)], [1.0, 1.0])
    assert [estimate.high for estimate in alone] == [1, 1]
    with pytest.raises(DataError, match="above 0 s, got 0"):
        utilisation.mutual_slowdown(TREE, jobs, [1.0, 0.0])


@pytest.mark.parametrize("n_jobs", [2, 3, 4])
def test_jobs_that_never_rest_share_a_link_by_their_hosts(n_jobs):
    tree = parse_xgft("XGFT(2;10,2;1,1)", 1e9)
    hosts = [np.arange(first, first + 1 + i) for i, first in enumerate([0, 1, 3, 6][:n_jobs])]
    jobs, senders = [], []
    for own in hosts:
        placement = Placement(np.concatenate([own, own + 10]))
        n = len(own)
        traffic = Traffic.of(2 * n, np.arange(n), np.arange(n, 2 * n), 2e9 / n)
        jobs.append(utilisation.job_link_loads(tree, placement, traffic))
        senders.append(utilisation.sending_hosts(tree, placement, traffic))
    found = utilisation.mutual_slowdown(tree, jobs, [2.0] * n_jobs)
    assert [one.value for one in found] == pytest.approx([n_jobs] * n_jobs, rel=1e-3)
    found = utilisation.mutual_slowdown(tree, jobs, [2.0] * n_jobs, senders)
    n_hosts = sum(map(len, hosts))
    assert [one.value for one in found] == pytest.approx([n_hosts / len(own) for own in hosts], rel=1e-3)


def test_senders_of_a_link_are_hosts_that_send_much():
    tree = parse_xgft("XGFT(2;4,3;1,2)", 1.0)
    placement = Placement([0, 1, 2, 4, 5, 9, 1])
    exchange = Exchange(7, np.arange(6), 5.0)
    for route in (routing.d_mod_k, routing.s_mod_k):
        found = utilisation.sending_hosts(tree, placement, exchange, route)
        explicit = utilisation.sending_hosts(tree, placement, exchange.traffic(), route)
        for way in ("up", "down"):
            for one, other in zip(getattr(found, way), getattr(explicit, way), strict=True):
                np.testing.assert_allclose(one, other)
    unequal = Traffic.of(7, [0, 1, 2, 6], [3, 3, 3, 3], [1e6, 1e6, 1, 1e6])
    up = utilisation.sending_hosts(tree, placement, unequal).up
    assert up[1][0] == pytest.approx((1 + 2) ** 2 / (1 + 4), abs=1e-4), "host 1 has two ranks"
    assert up[1].sum() == pytest.approx(up[1][0])
