"""A slowdown of 1 of a job without co-runners is not called measured: nobody knows who else was there."""

from dataclasses import replace

import sample

import mpicoloc
from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate
from mpicoloc.measure import processor
from mpicoloc.profile import hdf5, summary

WORDS = "slowdown 1 (no co-runner under mpicoloc)"


def test_it_is_told_as_such_wherever_a_slowdown_is(tmp_path, capsys):
    profile = sample.profile()
    found = replace(profile.interference, slowdown=Estimate(1.0, 1.0, 1.0, 0, "1", processor.ALONE))
    alone = str(tmp_path / "alone.h5")
    hdf5.write(replace(profile, interference=found, job=replace(profile.job, n_nodes=1)), alone)
    said = repr(mpicoloc.open(alone))
    assert WORDS in said and "2 ranks on 1 node for" in said
    assert main(["price", alone]) == 0
    assert f"{WORDS}, true" in capsys.readouterr().out
    assert summary.result_words(alone).startswith(f": {WORDS}, price")
