"""Slowdowns from replayed jobs: who suffers, and what is refused."""

import pytest

from mpicoloc.core.network import Topology
from mpicoloc.core.slowdown import JobFeatures, MeasuredTable
from mpicoloc.errors import DataError
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.experiment import ReplayedJobs
from mpicoloc.replay.network import of_fabric
from mpicoloc.replay.programs import patterns
from mpicoloc.replay.programs.builder import ProgramBuilder, shared


def network(slimming=1):
    return of_fabric(Fabric(Topology((4, 4), (1, slimming), (1e9, 1e9))), "d-mod-k")


def features(name, n=4):
    return JobFeatures(name, name, 1.0, n, n, {})


def quiet():
    builder = ProgramBuilder()
    builder.compute(1_000_000)
    return shared("quiet", builder.build(), 4)


def model(slimming=1, **more):
    programs = {features("loud").kind: patterns.alltoall(4, 1 << 18), features("quiet").kind: quiet()}
    return ReplayedJobs(programs, network(slimming), **more)


def test_a_job_that_does_not_communicate_neither_suffers_nor_hurts():
    assert model().predict(features("quiet"), [features("loud")]).value == 1
    assert model().predict(features("loud"), [features("quiet")]).value == 1


def test_jobs_on_a_slimmed_tree_hurt_each_other_more():
    slim, full = (model(slimming).predict(features("loud"), [features("loud")]).value for slimming in (1, 4))
    assert slim > 1.2
    assert slim > full >= 1


def test_the_interval_is_over_placements():
    one = model(n_placements=1).predict(features("loud"), [features("loud")])
    assert one.low == one.value == one.high
    many = model(n_placements=4).predict(features("loud"), [features("loud")])
    assert many.n == 4
    assert many.low <= many.value <= many.high


def test_an_unknown_job_is_told_or_asked_of_another_model():
    with pytest.raises(DataError, match=r"no trace of new .* is known"):
        model().predict(features("new"), [features("loud")])
    other = MeasuredTable({})
    with pytest.raises(DataError, match="was not measured"):
        model(otherwise=other).predict(features("new"), [features("loud")])


def test_jobs_that_do_not_fit_are_told():
    with pytest.raises(DataError, match="need 20 hosts, but the network has 16"):
        model().predict(features("loud"), [features("loud")] * 4)


def test_no_placements_are_refused():
    with pytest.raises(DataError, match="at least 1"):
        model(n_placements=0)
