"""Scores of what production teaches, in a world where programs are alike and only luck differs."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import Machine, Run, moments
from mpicoloc.pairing.training.fitting import fit_model
from mpicoloc.pairing.training_sets import from_production

N_PROGRAMS = 24
MACHINE = Machine("EPYC", 64, 2.0**38)


def run(program, beside, meeting, slowdown):
    """A run that shared its node all the time; its features know how much it was slowed down."""
    return Run(
        id=f"{program}.{meeting}",
        command=f"app{program}",
        n_ranks=2,
        n_nodes=1,
        n_cores=2,
        start_unix_s=1e5 * meeting,
        wall_s=100.0,
        solo_s=100.0 / slowdown,
        shared_s=100.0,
        was_alone=False,
        partial=False,
        slowdown=Estimate(slowdown, slowdown * 0.98, slowdown * 1.02, 40, "1", "burst"),
        co_runners=((f"{beside}.{meeting}", 100.0),),
        machine=MACHINE,
        seen={"sent_bps": moments([1e6 * slowdown])},
    )


def luck(seed):
    """Each program beside the next one and the next but one; whatever went wrong went wrong for both."""
    rng = np.random.default_rng(seed)
    pairs = [(i, (i + step) % N_PROGRAMS) for step in (1, 2) for i in range(N_PROGRAMS)]
    for meeting, (one, other) in enumerate(pairs):
        lost = 0.3 * np.exp(rng.normal(0, 0.5))
        for program, beside in ((one, other), (other, one)):
            yield run(program, beside, meeting, 1 + lost * np.exp(rng.normal(0, 0.1)))


@pytest.mark.parametrize("seed", range(3))
def test_luck_that_both_jobs_had_teaches_nothing(seed):
    """Neither job's profile of the run tells what the other one lost in it."""
    learnt, others = from_production([*luck(seed)])
    assert len(learnt.rows) == 4 * N_PROGRAMS and not others
    card = fit_model(learnt, n_trials=0, kinds=("elastic net",)).card
    r2 = {score["kind"]: score["new"]["r2"] for score in card["scores"]}
    assert r2["elastic net"] < 0.05
    assert r2["intensity (DI)"] < 0.05
