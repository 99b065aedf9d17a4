"""The proofs of `mpicoloc batch`: AccaSim's EASY in our engine, and the thesis's log."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pages import ROOT

from mpicoloc.batch import allocation, engine, inputs, log_files, order
from mpicoloc.core.network import Topology

sys.path.insert(0, str(ROOT / "benchmarks" / "batch"))

import easy_of_accasim
import thesis_log

N_NODES = 10
MACHINE = inputs.of_hosts(Topology((N_NODES,), (1,), (1e9,)), np.arange(N_NODES))
RULES = {
    "fills": (
        [(0, 100, 100, 6), (0, 10, 50, 4), (1, 20, 20, 8), (2, 40, 200, 4), (3, 5, 5, 2), (3, 5, 5, 3)],
        [0, 0, 100, 120, 10, 15],
        [0, 0, 100, 10, 50, 55],
    ),
    "waits": (
        [(0, 60, 100, 6), (0, 60, 100, 4), (1, 20, 20, 8), (120, 5, 5, 1)],
        [0, 0, 60, 120],
        [0, 0, 120, 120],
    ),
    "keeps": (
        [(0, 10, 200, 5), (0, 100, 100, 5), (1, 20, 20, 10), (2, 150, 150, 5)],
        [0, 0, 100, 120],
        [0, 0, 160, 10],
    ),
}
"""By rule: jobs (submission, run time, limit, s, and nodes), and when each begins: EASY, and with the rule.

fills: the third job is reserved for 100 s; the fourth would outlast that on four nodes, two of them spare.
waits: the machine is empty from 60 s on, and nothing happens until 120 s; the third is reserved for 100 s.
keeps: the third is reserved for 200 s, and for 100 s once the first has ended early.
"""


def workload(rows):
    lines = [
        f"{i} {s} -1 {r} {n} -1 -1 {n} {e} -1 1 1 1 1 1 1 -1 -1" for i, (s, r, e, n) in enumerate(rows, 1)
    ]
    return inputs.workload(log_files.parse_swf(lines, "log")[0], 1, N_NODES)


def begins_s(work, next_job):
    run = easy_of_accasim.LateSimulation(work, MACHINE, next_job, allocation.named("first-available"))
    return run.run().start_s.tolist()


@pytest.mark.parametrize("rule", easy_of_accasim.RULES)
def test_what_each_rule_of_accasim_changes(rule):
    """By hand."""
    rows, easy_s, changed_s = RULES[rule]
    assert begins_s(workload(rows), order.named("easy")) == easy_s
    assert begins_s(workload(rows), easy_of_accasim.Easy([rule])) == changed_s


@settings(max_examples=100, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 30), st.integers(1, 10)),
        min_size=1,
        max_size=25,
    )
)
def test_without_any_of_these_rules_it_is_easy(jobs):
    work = workload(sorted(jobs))
    schedule = engine.simulate(work, MACHINE, order.named("easy"), allocation.named("first-available"))
    assert begins_s(work, easy_of_accasim.Easy(())) == schedule.start_s.tolist()


def test_the_drawn_log_has_what_the_thesis_tells_of_its_own():
    submit_s, run_s, limit_s, n_nodes = thesis_log.draw(0)
    assert len(submit_s) == 49_107
    used_frac = (run_s * n_nodes).sum() / (3096 * 32 * 86400)
    assert used_frac == pytest.approx(0.84, abs=0.001)
    is_big = n_nodes > 18
    assert is_big.mean() == pytest.approx(0.05, abs=0.005)
    assert (n_nodes[is_big] % 18 == 0).mean() == pytest.approx(0.02, abs=0.01)
    assert (np.log2(n_nodes) % 1 == 0).mean() > 0.9
    n_subtrees = -(-n_nodes[is_big] // 324)
    assert (run_s[is_big] * n_subtrees).sum() <= 390 * 86400
    assert (np.diff(submit_s) >= 0).all() and submit_s.max() + run_s.max() <= 32 * 86400
    assert (limit_s >= run_s).all() and run_s.min() >= 1 and n_nodes.min() >= 1


def test_the_same_seed_draws_the_same_log(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        columns = thesis_log.draw(seed, n_jobs=thesis_log.MIN_JOBS)
        thesis_log.write_log(tmp_path / name, range(1, thesis_log.MIN_JOBS + 1), *columns)
    texts = [(tmp_path / name).read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]
    assert len(log_files.parse_swf(texts[0].split("\n"), "a")[0]) == thesis_log.MIN_JOBS
