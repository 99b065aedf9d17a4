"""The measured campaign in the repository gives the scores that the documentation tells."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.model.fitting import fit_model
from mpicoloc.store import training

ROOT = Path(__file__).resolve().parents[2]
BEST = "random forest"


@pytest.fixture(scope="module")
def card():
    """Of the kind that the page has first, and the baselines."""
    learnt = training.read(ROOT / "benchmarks" / "data" / "campaign-apart.npz")
    return fit_model(learnt, kinds=(BEST,)).card


@pytest.fixture(scope="module")
def scores(card):
    return {score["kind"]: score for score in card["scores"]}


def told(kind):
    """Columns of the kind's row on the page; the measured campaign's table is the first one."""
    page = (ROOT / "docs" / "explain" / "slowdown-models.md").read_text().partition("\n## Measured\n")[2]
    row = re.search(rf"^\| {re.escape(kind)} \|(.*)\|$", page, re.M)[1]
    return [float(cell) for cell in row.split("|")]


@pytest.mark.parametrize("kind", [BEST, "mean", "quantile", "intensity (DI)"])
def test_the_page_tells_what_the_campaign_gives(scores, kind):
    searched, r2, _, mae, cost, under, worst, inside, width, r2_known, *_ = told(kind)
    new, known = scores[kind]["new"], scores[kind]["known"]
    assert scores[kind]["cost"] == pytest.approx(searched, abs=0.003)
    # Other versions of optuna and scikit-learn search a little differently.
    assert new["r2"] == pytest.approx(r2, abs=0.05)
    assert [new["mae"], new["cost"]] == pytest.approx([mae, cost], abs=0.003)
    assert [new["under_frac"], new["worst_under"], new["coverage"]] == pytest.approx(
        [under, worst, inside], abs=0.03
    )
    assert new["width"] == pytest.approx(width, abs=0.1)
    assert known["r2"] == pytest.approx(r2_known, abs=0.3)


def test_the_page_has_the_best_model_first(scores):
    page = (ROOT / "docs" / "explain" / "slowdown-models.md").read_text().partition("\n## Measured\n")[2]
    assert re.findall(r"^\| ([^|]+) \| -?[0-9]", page, re.M)[0] == BEST
    assert min(scores, key=lambda kind: scores[kind]["cost"]) == BEST
