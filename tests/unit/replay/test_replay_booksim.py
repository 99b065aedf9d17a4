"""Uniform random traffic beside BookSim 2: equal latencies in short queues; saturation is not reproduced.

At higher loads the models mean different things (docs/explain/replay.md): a BookSim router moves one flit of
an input in a cycle and its allocators miss matches, here an input feeds all outputs at once, or with an input
speedup of 1 one output after the other.
"""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))

import replay_uniform

ROWS = {
    (row["topology"], int(row["packet_flits"]), float(row["offered_flits_per_cycle"])): row
    for row in replay_uniform.booksim()
}
CASES = [(tree, flits) for tree in replay_uniform.TREES for flits in (1, 8)]


def measured(tree, flits, load, **switch):
    return replay_uniform.measure(replay_uniform.TREES[tree], flits, load, n_cycles=4000, **switch)


@pytest.mark.parametrize(("tree", "flits"), CASES)
def test_latency_at_low_load(tree, flits):
    expected = float(ROWS[tree, flits, 0.1]["packet_latency_cycles"])
    assert measured(tree, flits, 0.1).latency_cycles == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("tree", replay_uniform.TREES)
def test_latency_of_single_flits_at_moderate_load(tree):
    expected = float(ROWS[tree, 1, 0.3]["packet_latency_cycles"])
    assert measured(tree, 1, 0.3).latency_cycles == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("tree", "flits"), CASES)
def test_below_saturation_all_is_accepted_and_latency_grows_with_load_but_less_than_there(tree, flits):
    points = {load: measured(tree, flits, load) for load in (0.1, 0.5, 0.7)}
    latencies = [point.latency_cycles for point in points.values()]
    assert latencies == sorted(latencies)
    for load, point in points.items():
        assert point.accepted_flits == pytest.approx(load, rel=0.05)
        assert point.latency_cycles < 1.05 * float(ROWS[tree, flits, load]["packet_latency_cycles"])


@pytest.mark.parametrize(("tree", "flits"), CASES)
def test_saturation_is_not_below_that_of_routers_with_slower_crossbars(tree, flits):
    there = float(ROWS[tree, flits, 0.9]["accepted_flits_per_cycle"])
    assert there < measured(tree, flits, 0.9).accepted_flits <= 0.92


def test_an_input_speedup_of_1_brings_saturation_of_long_packets_nearer():
    there = float(ROWS["4-ary 2-tree", 8, 0.9]["accepted_flits_per_cycle"])
    free, limited = (measured("4-ary 2-tree", 8, 0.9, input_speedup=x) for x in (math.inf, 1.0))
    assert there < limited.accepted_flits < free.accepted_flits
    assert limited.latency_cycles > free.latency_cycles
