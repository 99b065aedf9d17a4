"""Replayed nodes' benchmark: its rows, of times and replays that are given."""

import argparse
import random
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import replayed_nodes

    monkeypatch.setattr(replayed_nodes.programs, "processors", lambda n: tuple(range(n)))
    monkeypatch.setattr(replayed_nodes.programs.Launcher, "find", lambda *args, **more: None)
    return replayed_nodes.Bench(argparse.Namespace(work=tmp_path, mpirun="mpirun"), random.Random(1))


def test_slowdowns_are_of_the_same_round_and_the_curve_is_that_of_one_rank(bench, monkeypatch):
    """The machine is twice as slow in the second of three rounds."""
    rounds = (1.0, 2.0, 1.0)
    slower = {(1, 4, 1): 1.2, (1, 8, 1): 1.8, (2, 4, 1): 1.1, (2, 4, 2): 1.25, (2, 8, 1): 1.5, (2, 8, 2): 2.0}
    taken = {(n, 0, 0): [4.0 / n * speed for speed in rounds] for n in (1, 2)}
    taken |= {key: [4.0 / key[0] * value * speed for speed in rounds] for key, value in slower.items()}
    asked = []

    def replayed(program, curve):
        asked.append(curve)
        return {(4, 1): 1.1, (4, 2): 1.2, (8, 1): 1.5, (8, 2): 1.8}

    program = argparse.Namespace(name="heat2d")
    monkeypatch.setattr(bench, "times", lambda name: (program, taken))
    monkeypatch.setattr(bench, "replayed", replayed)
    rows = list(bench.rows("heat2d"))
    assert asked[0].levels.tolist() == [0, 4, 8] and asked[0].slowdown.tolist() == pytest.approx(
        [1, 1.2, 1.8]
    )
    assert [row[1:3] for row in rows] == [(20.0, 1), (20.0, 2), (45.0, 1), (45.0, 2)]
    assert [row[5] for row in rows] == [pytest.approx([value] * 3) for value in (1.1, 1.25, 1.5, 2.0)]
    assert [row[6] for row in rows] == pytest.approx([0.0, -4.0, 0.0, -10.0], abs=1e-9)


def test_a_hog_that_ends_before_the_program_is_an_error(bench):
    module = sys.modules["replayed_nodes"]
    with pytest.raises(RuntimeError, match="not disturbed"), module.hogs(["no processor"], 0.5):
        time.sleep(5)
