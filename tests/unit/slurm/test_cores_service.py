"""Decisions of the service on a partition that gives out cores, and settings that it refuses."""

from dataclasses import replace

import pytest
from slurm_programs import answering

from mpicoloc.cli.main import main
from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, MeasuredTable
from mpicoloc.errors import UsageError
from mpicoloc.pairing.cores_plan import MARK, Preference, released
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.slurm import cores_service, service

NOW_S = 1e9
NODES = tuple(BatchNode(name, 4, 2.0**30, True, ("cores",), (name,)) for name in ("n1", "n2", "n3"))
QUEUES = (BatchQueue("cores"),)
CORES_ONLY = Partitions("cores", "cores")
CORES = {"SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core"}


class Known(service.ProfileHistory):
    """All jobs have profiles; nobody has met."""

    def __init__(self):
        super().__init__("")

    def features_of(self, job, now_s):
        return JobFeatures(str(job.id), job.name, 100.0, 2, 2, {})

    def measured_pairs(self, kinds):
        return {}


def job(number, name, state=PENDING, **more):
    given = {"partition": "cores", "n_nodes": 1, "n_tasks": 2, "n_cpus": 2, "start_s": NOW_S, **more}
    return BatchJob(number, "ada", name, state, **given)


def decided(*jobs, rules=None, model=None):
    how = service.ServiceSettings(CORES_ONLY, rules or Rules(), model, layout="cores")
    return cores_service.decide(Snapshot(NOW_S, jobs, NODES, QUEUES), Known(), how)


def measured(slowdown):
    """Jobs a slow each other down."""
    one = Estimate(1.0, 1.0, 1.0, 1, "1", "measured")
    pairs = {("a x2", "a x2"): Estimate(slowdown, slowdown, slowdown, 1, "1", "measured")}
    names = ("a x2", "b x2")
    return MeasuredTable({(x, y): pairs.get((x, y), one) for x in names for y in names})


RUNS = job(1, "a", RUNNING, nodes=("n1",)), job(2, "b", RUNNING, nodes=("n2",))


def test_preferences_and_comments_of_others_stay():
    waiting = [
        job(3, "a"),
        job(4, "a", prefer="n2", admin_comment=MARK),
        job(5, "a", prefer="n1", admin_comment=MARK + ' {"mpicoloc": 1}'),
        job(6, "a", prefer="bigmem"),
        job(7, "a", admin_comment="exclusive"),
    ]
    found = decided(*RUNS, *waiting, model=measured(1.8))
    assert found == [Preference(3, ("n2",)), Preference(5, ("n2",))]
    assert found[0].changes() == {"Prefer": "n2", "AdminComment": MARK}
    now = Snapshot(NOW_S, (*RUNS, *waiting), NODES, QUEUES)
    assert released(now) == [Preference(4, ()), Preference(5, ())]
    assert released(now, ["n1"]) == [Preference(5, ())]
    assert Preference(3, ()).changes() == {"Prefer": "", "AdminComment": ""}


def test_a_careful_service_that_only_assumes_slowdowns_has_preferences():
    for is_cautious in (False, True):
        rules = Rules(prior_slowdown=1.5, is_cautious=is_cautious)
        assert decided(*RUNS, job(3, "a"), rules=rules) == [Preference(3, ("n3",))]


@pytest.mark.parametrize(("sharing", "is_right"), [("NO", True), ("FORCE:1", True), ("FORCE:2", False)])
def test_settings_that_contradict_the_layout_are_refused(sharing, is_right):
    now = Snapshot(
        NOW_S,
        (),
        (*NODES, BatchNode("n4", 4, 1.0, True, ("cores",))),
        (BatchQueue("cores", sharing=sharing),),
    )
    if is_right:
        (text,) = cores_service.advice(now, CORES_ONLY, CORES)
        assert text.startswith("1 node of cores cannot be preferred, such as n4: add its name")
    else:
        with pytest.raises(UsageError, match="cores does not give out cores \\(OverSubscribe=FORCE:2"):
            cores_service.advice(now, CORES_ONLY, CORES)
    with pytest.raises(UsageError, match="SelectType=select/linear"):
        cores_service.advice(now, CORES_ONLY, {"SelectType": "select/linear"})
    with pytest.raises(UsageError, match="SelectTypeParameters=CR_SOCKET"):
        cores_service.advice(
            now, CORES_ONLY, CORES | {"SelectTypeParameters": "CR_SOCKET,CR_CORE_DEFAULT_DIST_BLOCK"}
        )
    with pytest.raises(
        UsageError, match="Slurm has no partition cores: give the partition of the jobs as --shared"
    ):
        cores_service.advice(replace(now, queues=()), CORES_ONLY, CORES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch", "--layout", "spread"], "spread needs the slowdowns of all pairs: leave out --prior"),
        (["--release", "--layout", "near"], "--layout must be turns, cores or spread, got 'near'"),
        (["--release", "--layout", "cores", "--shared", "none"], "Slurm has no partition none: see --alone"),
        (
            ["--watch", "--layout", "cores", "--policy", "greedy"],
            "chooses nodes, not pairs: leave out --policy",
        ),
        (
            ["--watch", "--once", "--layout", "cores"],
            "partition shared does not give out cores (OverSubscribe=FORCE:2, SelectType=, ",
        ),
    ],
)
def test_wrong_words_are_refused(tmp_path, monkeypatch, capsys, words, said):
    answering(tmp_path, monkeypatch)
    more = ["--profiles", str(tmp_path), "--prior-slowdown", "1.3"] if "--watch" in words else []
    assert main(["pair", *words, *more]) == 2
    assert said in capsys.readouterr().err
