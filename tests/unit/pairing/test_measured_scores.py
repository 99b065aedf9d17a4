"""The measured campaigns in the repository give the scores that the page of benchmarks says."""

import json
from pathlib import Path

import once
import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.pairing import training_sets
from mpicoloc.pairing.training.fitting import fit_model

ROOT = Path(__file__).resolve().parents[3]
CAMPAIGNS = ["apart", "same"]
FITTED = {"apart": "random forest", "same": "similar programs"}
"""Of each campaign one kind besides the baselines: all of them take minutes."""


@pytest.fixture(scope="module", params=CAMPAIGNS)
def campaign(request):
    return request.param


@pytest.fixture(scope="module")
def scores(campaign, tmp_path_factory):
    def fitted():
        learnt = training_sets.read_file(ROOT / "benchmarks" / "data" / f"campaign-{campaign}.npz")
        return fit_model(learnt, kinds=(FITTED[campaign],)).card["scores"]

    found = once.value(once.folder(tmp_path_factory) / "scores" / campaign, fitted)
    return {score["kind"]: score for score in found}


def rows(campaign):
    """The published table of a campaign, in its order, without `(chosen)`."""
    result = json.loads(
        (ROOT / "benchmarks" / "results" / "schedule" / f"scores-{campaign}.json").read_text()
    )
    return {kind: cells for kind, *cells in result["tables"][0]["rows"] if cells[0] is not None}


@pytest.mark.parametrize("kind", ["fitted", "mean", "quantile", "intensity (DI)"])
def test_the_page_has_what_the_campaign_gives(campaign, scores, kind):
    kind = FITTED[campaign] if kind == "fitted" else kind
    searched, r2, _, mae, cost, under, worst, inside, width, r2_known, *_ = rows(campaign)[kind]
    new, known = scores[kind]["new"], scores[kind]["known"]
    # Versions of scikit-learn search a little differently.
    assert scores[kind]["cost"] == pytest.approx(searched, rel=0.05, abs=0.003)
    assert new["r2"] == pytest.approx(r2, abs=0.05)
    assert [new["mae"], new["cost"]] == pytest.approx([mae, cost], rel=0.05, abs=0.003)
    assert [new["under_frac"], new["coverage"]] == pytest.approx([under, inside], abs=0.03)
    assert new["worst_under"] == pytest.approx(worst, rel=0.05, abs=0.03)
    assert new["width"] == pytest.approx(width, rel=0.3, abs=0.1)
    assert known["r2"] == pytest.approx(r2_known, abs=0.3)


def test_the_page_has_the_best_model_first(campaign, scores):
    published = rows(campaign)
    searched = {kind: cost for kind, (cost, *_) in published.items()}
    assert list(searched) == sorted(searched, key=searched.get)
    assert [kind for kind in published if kind in scores] == sorted(
        scores, key=lambda kind: scores[kind]["cost"]
    )
