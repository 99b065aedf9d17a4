"""Sections 3.5.1 and 4.4 of Zacarias et al. 2021: the shape of its figures, on programs made to its levels.

The paper's measured slowdowns are not public. Here 32 programs suffer by sensitivity times pressure, four in
five of them strongly, as programs that each use all cores do; predictions scatter around the truth.
"""

import numpy as np
import pytest
from simulated_deployment import LEVELS, Programs, draw, draw_level, normalised

from mpicoloc.errors import UsageError
from mpicoloc.pairing.policies import Queue, Rules

SHARED, DI, GREEDY, BLOSSOM = (Rules(name) for name in ("fifo-shared", "di", "greedy", "blossom"))
N_PROGRAMS = 32


def programs(rng):
    runtime_s = np.exp(rng.normal(5, 0.6, N_PROGRAMS))
    is_heavy = rng.random(N_PROGRAMS) < 0.8
    sensitivity = np.where(is_heavy, rng.gamma(6, 0.75, N_PROGRAMS), rng.gamma(2, 0.1, N_PROGRAMS))
    pressure = np.where(is_heavy, rng.uniform(0.4, 1.4, N_PROGRAMS), rng.uniform(0.02, 0.2, N_PROGRAMS))
    slowdown = 1 + np.outer(sensitivity, pressure)
    predicted = 1 + (slowdown - 1) * np.exp(rng.normal(0, 0.25, slowdown.shape))
    # One counter tells little of the pressure.
    misses = pressure * np.exp(rng.normal(0, 0.9, N_PROGRAMS))
    return Programs(
        Queue(runtime_s, slowdown),
        Queue(runtime_s, predicted, intensity=misses),
        np.diag(slowdown).copy(),
        np.diag(predicted).copy(),
    )


@pytest.fixture(scope="module", params=[0, 1, 2])
def made(request):
    rng = np.random.default_rng(request.param)
    return programs(rng), rng


def makespans(made, level, rules):
    """Of five queues of 50 jobs, as in Figure 8."""
    drawn, rng = made
    queues = [draw_level(drawn, level, 50, rng) for _ in range(5)]
    return normalised(drawn, queues, rules)


def test_figure_8_high_degradation(made):
    """FIFO shared takes 2.3 times as long as FIFO on average; both strategies are faster than FIFO."""
    shared, greedy, blossom = makespans(made, "high", (SHARED, GREEDY, BLOSSOM)).mean(axis=0)
    assert 1.9 < shared < 2.8
    assert greedy < 1
    assert blossom < 1


def test_figure_8_medium_degradation(made):
    """FIFO shared gains about 23 %."""
    shared, blossom = makespans(made, "medium", (SHARED, BLOSSOM)).mean(axis=0)
    assert 0.7 < shared < 1
    assert blossom < 1


def test_figure_8_low_degradation(made):
    """FIFO shared gains around 40 %; greedy, which fills a place as soon as it is free, is like it."""
    shared, greedy, blossom = makespans(made, "low", (SHARED, GREEDY, BLOSSOM)).mean(axis=0)
    assert 0.5 < shared < 0.7
    assert greedy == pytest.approx(shared, abs=0.07)
    assert blossom < 0.7


def test_figures_1_and_10_random_queues(made):
    """FIFO shared takes almost 50 % longer, DI 7 %; both strategies beat FIFO in each of 20 queues."""
    drawn, rng = made
    queues = [draw(drawn, 50, rng) for _ in range(20)]
    found = normalised(drawn, queues, (SHARED, DI, GREEDY, BLOSSOM))
    shared, di, greedy, blossom = found.mean(axis=0)
    assert shared > 1.3
    assert 1 < di < shared
    assert found[:, 2:].max() < 1
    assert 0.75 < min(greedy, blossom) < 0.97


def test_figure_11_more_servers_with_as_many_jobs_each(made):
    """The gain stays: here planning takes no time of the servers."""
    drawn, rng = made
    for n_servers in (2, 5):
        queues = [draw(drawn, 50 * n_servers, rng) for _ in range(3)]
        assert normalised(drawn, queues, (GREEDY, BLOSSOM), n_servers).max() < 1


def test_section_4_4_1_pairs_of_a_queue_have_its_level(made):
    drawn, rng = made
    for level, (low, high) in LEVELS.items():
        jobs = draw_level(drawn, level, 50, rng)
        queue = drawn.queue(jobs, is_true=True)
        assert len(jobs) == 50
        degraded_s = queue.runtime_s[:, None] * queue.slowdown
        for i in range(0, 50, 2):
            together_s = max(degraded_s[i, i + 1], degraded_s[i + 1, i])
            assert low <= together_s / queue.runtime_s[i : i + 2].sum() < high
    with pytest.raises(UsageError, match="no level 'worse'"):
        draw_level(drawn, "worse", 50, rng)


def test_section_4_3_underestimates_are_what_hurts(made):
    """A model that sees hardly any degradation makes bad pairs; one that sees too much only shares less."""
    drawn, rng = made
    queues = [draw(drawn, 50, rng) for _ in range(5)]
    found = {}
    for factor in (0.05, 1.0, 3.0):
        wrong = Queue(drawn.true.runtime_s, 1 + (drawn.true.slowdown - 1) * factor)
        own = 1 + (drawn.beside_itself - 1) * factor
        biased = Programs(drawn.true, wrong, drawn.beside_itself, own)
        found[factor] = normalised(biased, queues, (BLOSSOM,))
    assert found[1.0].mean() < found[3.0].mean()
    assert found[3.0].max() <= 1
    assert found[0.05].mean() > 1.2
