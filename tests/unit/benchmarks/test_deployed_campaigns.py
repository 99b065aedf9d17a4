"""Simulated deployment of the measured campaigns gives what the page of benchmarks says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / "benchmarks" / "results" / "deployment.json"
LIMIT_S = 300


@pytest.fixture(scope="module", params=["apart", "same"])
def campaign(request):
    return request.param


@pytest.fixture(scope="module")
def found(campaign):
    """Of the baselines, in whose answers no version of a library has a part."""
    training = ROOT / "benchmarks" / "data" / f"campaign-{campaign}.npz"
    command = [sys.executable, ROOT / "benchmarks" / "deployment.py", training, "--json", "--kinds"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    return {row["predicted_by"]: [*row["mean"].values()] for row in json.loads(out)}


def published(campaign, name):
    """Means in the columns of that campaign."""
    rows = {name: cells for name, *cells in json.loads(RESULT.read_text())["tables"][0]["rows"]}
    begin = 2 * ["apart", "same"].index(campaign)
    return [cell for cell in rows[name][begin : begin + 2] if cell is not None]


@pytest.mark.parametrize("name", ["FIFO shared", "assumed", "as measured", "mean", "intensity (DI)"])
def test_the_page_has_what_the_deployment_gives(campaign, found, name):
    on_page = "assumed: 1.3 for each pair" if name == "assumed" else name
    assert found[name] == pytest.approx(published(campaign, on_page), abs=0.004)


@pytest.mark.parametrize("name", ["learnt as it goes", "learnt before"])
def test_the_page_has_what_learning_gives(campaign, found, name):
    """Which of the pairs that tie is tried first, another version may choose differently."""
    assert found[name] == pytest.approx(published(campaign, name), abs=0.05)


def test_learning_shortens_what_is_assumed_too_well(found):
    assumed, first, later = (found[name] for name in ("assumed", "learnt as it goes", "learnt before"))
    for each in range(2):
        assert later[each] <= first[each] + 0.01 <= assumed[each] + 0.02


def test_whoever_knows_each_pair_is_best(found):
    best = max(found["as measured"])
    assert all(best <= min(made) + 0.002 for name, made in found.items() if name != "as measured")
