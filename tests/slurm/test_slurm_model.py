"""The tutorial of a model for the queue: what it predicts, and what the pairing service makes of it."""

import json
import sys

import pytest
import slurm_jobs  # noqa: F401 it makes the next ones importable
from pages import LAB, ROOT, of_cluster

from mpicoloc.lab import slurm_cluster

sys.path.insert(0, str(ROOT / "examples" / "slurm-model"))

import beside

PAGE = ROOT / "docs" / "tutorial" / "slurm-model.md"
pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The folder in which the page's blocks ran, and what each said."""
    folder = tmp_path_factory.mktemp("model")
    blocks, last, shell = of_cluster(PAGE, folder)
    try:
        said = [shell.run(block, 200) for block in blocks]
        shell.run(last)
        yield folder, said
    finally:
        slurm_cluster.stop(LAB)


@pytest.fixture(scope="module")
def compared(page):
    """Pairs with the later program: the two names, measured slowdown, predicted slowdown."""
    from mpicoloc.pairing import model_file, training_sets

    folder, _ = page
    model = model_file.read(folder / "slowdowns.model")
    assert "heat2d" not in model.card["training"]["programs"]
    found = training_sets.read_file(folder / "measured" / "heat2d.npz")
    return list(beside.compared(model, found))


def test_the_later_program_is_in_every_pair_that_the_model_is_asked_about(page, compared):
    assert len(compared) == 15
    assert all("heat2d" in (target, co_runner) for target, co_runner, _, _ in compared)
    assert all(f"{measured:.2f}" in page[1][3] for _, _, measured, _ in compared)


def test_the_model_knows_that_sharing_is_slow_and_that_it_knows_no_more(compared):
    assert sum(told.value > 1.8 for _, _, _, told in compared) == len(compared)
    assert all(told.low <= measured <= told.high for _, _, measured, told in compared)
    assert all(told.high > 5 * told.low for _, _, _, told in compared)


def test_the_assumption_pairs_and_the_model_does_not(page):
    folder, said = page
    would = [json.loads(line) for line in (folder / "assumed.jsonl").read_text().splitlines()]
    assert [(line["what"], len(line["share"]["jobs"])) for line in would] == [("would say", 1)]
    assert said[-1].split("\n")[1:] == [""] and "to share with" in said[-1]
    assert not (folder / "chosen.jsonl").exists()
