"""Numbers of Jokanovic 2014 that need no trace, each named after its figure or equation."""

from itertools import pairwise

import numpy as np
import pytest

from mpicoloc.core.network import Placement, TimedMessages, parse_xgft, slimmed
from mpicoloc.network import utilisation
from mpicoloc.network.topology import placements

GBIT_BPS = 1e9 / 8
LINK_BPS = 10 * GBIT_BPS  # Table 3.1
SLIMMINGS = (1, 2, 4, 8, 16)


def tree(slimming):
    return slimmed(parse_xgft("XGFT(3;16,16,8;1,16,16)", LINK_BPS), slimming)


def test_equation_2_1_mean_of_the_bytes_in_transit():
    """The integral over time, added up in windows, is the sum of bytes times time over all messages."""
    rng = np.random.default_rng(1)
    n, start_s = 500, 3 * np.random.default_rng(2).random(500)
    made = TimedMessages(
        np.zeros(n, int), np.ones(n, int), start_s, start_s + rng.random(n) ** 4, rng.integers(1, 10**6, n)
    )
    end_s = made.end_s.max()
    steps = np.linspace(0, end_s, 200_001)
    begun = np.concatenate(([0], np.cumsum(made.n_bytes[np.argsort(made.start_s)])))
    ended = np.concatenate(([0], np.cumsum(made.n_bytes[np.argsort(made.end_s)])))
    in_transit = (
        begun[np.searchsorted(np.sort(made.start_s), steps)]
        - ended[np.searchsorted(np.sort(made.end_s), steps)]
    )
    mean = utilisation.mean_bytes_in_transit(made, end_s)
    assert mean == pytest.approx(in_transit.mean(), rel=1e-3)
    found = utilisation.windows(tree(4), Placement([0, 1]), made, 0.01)
    integral = found.in_transit_bytes.sum() * found.window_s
    assert mean == pytest.approx(integral / end_s)


def test_table_3_1_system_of_2048_hosts_and_its_contention_ratios():
    assert tree(16).n_hosts == 2048
    assert [tree(s).contention_ratio(1) for s in SLIMMINGS] == [16, 8, 4, 2, 1]
    assert tree(16).m[0] + tree(16).w[1] == 32, "ports of a switch"


@pytest.mark.parametrize(
    ("slimming", "switches", "links"),
    [
        (1, (128, 8, 1), (2048, 128, 8)),
        (2, (128, 16, 4), (2048, 256, 32)),
        (4, (128, 32, 16), (2048, 512, 128)),
        (8, (128, 64, 64), (2048, 1024, 512)),
        (16, (128, 128, 256), (2048, 2048, 2048)),
    ],
)
def test_figure_3_1_bandwidth_of_each_level_for_each_slimming(slimming, switches, links):
    """From w links up at each switch: level 1 has 16 x 8 of them, level 2 has 8 x w, and so on."""
    topology = tree(slimming)
    assert tuple(topology.n_nodes(level) for level in (1, 2, 3)) == switches
    assert utilisation.total_bps(topology).tolist() == [n * LINK_BPS for n in links]


# First-level switches and second-level subtrees that a job on Fk populates, by hand: k hosts a switch, 16
# switches a subtree.
POPULATED = {
    256: {"F16": (16, 1), "F8": (32, 2), "F4": (64, 4), "F2": (128, 8)},
    512: {"F16": (32, 2), "F8": (64, 4), "F4": (128, 8)},
}


@pytest.mark.parametrize("slimming", SLIMMINGS)
@pytest.mark.parametrize(("figure", "n_ranks"), [("3.4", 256), ("3.5", 512)])
def test_figures_3_4_and_3_5_bandwidth_available_to_a_job(slimming, figure, n_ranks):
    """S links leave a first-level switch, S x S a subtree of level 2; one such subtree alone uses none."""
    rng = np.random.default_rng(0)
    for name, (switches, subtrees) in POPULATED[n_ranks].items():
        placement = placements.by_name(name, tree(slimming), n_ranks, rng)
        level_2 = subtrees * slimming**2 * LINK_BPS if subtrees > 1 else 0
        expected = [n_ranks * LINK_BPS, switches * slimming * LINK_BPS, level_2]
        assert utilisation.available_bps(tree(slimming), placement).tolist() == expected


def test_figure_3_4_a_job_of_256_on_f16_never_uses_level_2():
    placement = placements.regular(tree(2), 256, 16)
    assert utilisation.available_bps(tree(2), placement)[2] == 0


def test_figure_3_4_a_job_that_is_more_spread_sees_more_and_the_less_so_in_slimmer_trees():
    def seen(name, slimming):
        placement = placements.by_name(name, tree(slimming), 256, np.random.default_rng(0))
        return utilisation.available_bps(tree(slimming), placement)[1:]

    gain = {s: np.diff([seen(name, s) for name in ("F16", "F8", "F4", "F2")], axis=0) for s in SLIMMINGS}
    assert (gain[1] > 0).all()
    for slimmer, wider in pairwise(SLIMMINGS):
        assert (gain[slimmer] < gain[wider]).all()
    for slimming in SLIMMINGS:
        assert seen("F4", slimming)[0] < seen("RF", slimming)[0] <= seen("F2", slimming)[0]


def test_equations_4_1_and_4_2_agree_on_equal_fragments():
    topology = tree(4)
    for per_switch in (1, 2, 4, 8, 16):
        placement = placements.regular(topology, 32 * per_switch, per_switch)
        bound = utilisation.most_sharing_jobs(topology, placement)
        n_hosts = placement.n_ranks
        assert bound[1] == utilisation.most_sharing_jobs_of_fragments(n_hosts, per_switch, topology.m[:1])
        assert bound[2] == utilisation.most_sharing_jobs_of_fragments(n_hosts, n_hosts // 2, topology.m[:2])
        assert bound[1] == 32 * 16 - n_hosts, "populated switches x m - N"


def test_a_job_shares_no_link_of_a_level_that_it_never_uses():
    """The equations are for levels that it uses."""
    topology = tree(4)
    assert utilisation.most_sharing_jobs(topology, placements.regular(topology, 64, 4)).tolist() == [
        0,
        192,
        0,
    ]
    assert utilisation.most_sharing_jobs(topology, placements.regular(topology, 8, 8)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("n_hosts", [2, 3, 8])
def test_equations_4_3_and_4_4_worst_cases_of_one_host_in_each_subtree(n_hosts):
    topology, m = tree(4), 16
    one_per_switch = Placement(np.arange(n_hosts) * m)
    assert utilisation.most_sharing_jobs(topology, one_per_switch)[1] == n_hosts * (m - 1)
    one_per_subtree = Placement(np.arange(n_hosts) * m**2)
    assert utilisation.most_sharing_jobs(topology, one_per_subtree)[2] == n_hosts * (m**2 - 1)


@pytest.mark.parametrize(
    ("hosts", "bounds", "per_link"),
    [((0, 2, 4, 6), (4, 4), (1, 2)), ((0, 4), (2, 6), (1, 3))],
    ids=["left", "right"],
)
def test_figure_4_6_worst_cases_in_a_small_tree(hosts, bounds, per_link):
    topology = parse_xgft("XGFT(3;2,2,2;1,1,1)", LINK_BPS)
    placement = Placement(np.array(hosts))
    assert tuple(utilisation.most_sharing_jobs(topology, placement)[1:]) == bounds
    assert tuple(utilisation.most_sharing_jobs_per_link(topology, placement)[1:]) == per_link
