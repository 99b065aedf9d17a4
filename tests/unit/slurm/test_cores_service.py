"""What the service decides on a partition that gives out cores, and what it refuses."""

import pytest
from slurm_programs import answering

from mpicoloc.cli.main import main
from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, MeasuredTable
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.pairing.cores_plan import Preference
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.slurm import client, cores_service, service

NOW_S = 1e9
NODES = tuple(BatchNode(name, 4, 2.0**30, True, ("cores",), (name,)) for name in ("n1", "n2", "n3"))
QUEUES = (BatchQueue("cores"),)
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
    how = service.ServiceSettings(Partitions("cores", "cores"), rules or Rules(), model, layout="cores")
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
        job(4, "a", prefer="n2", admin_comment=cores_service.MARK),
        job(5, "a", prefer="n1", admin_comment=cores_service.MARK + ' {"mpicoloc": 1}'),
        job(6, "a", prefer="bigmem"),
        job(7, "a", admin_comment="exclusive"),
    ]
    found = decided(*RUNS, *waiting, model=measured(1.8))
    assert found == [Preference(3, ("n2",)), Preference(5, ("n2",))]
    assert cores_service.changes(found[0]) == {"Prefer": "n2", "AdminComment": cores_service.MARK}
    assert cores_service.changes(Preference(3, ())) == {"Prefer": "", "AdminComment": ""}


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
        (text,) = cores_service.advice(now, "cores", CORES)
        assert text.startswith("1 node of cores cannot be preferred, such as n4: add its name")
    else:
        with pytest.raises(UsageError, match="cores has OverSubscribe=FORCE:2"):
            cores_service.advice(now, "cores", CORES)
    with pytest.raises(UsageError, match="SelectType=select/linear"):
        cores_service.advice(now, "cores", {"SelectType": "select/linear"})


def test_a_refused_change_is_told_and_not_tried_again_at_once(tmp_path, monkeypatch, capsys):
    warned = []
    audit = service.AuditLog(str(tmp_path / "audit"), warned.append)
    now = Snapshot(NOW_S, (*RUNS, job(3, "a")), NODES, QUEUES)
    monkeypatch.setattr(client, "snapshot", lambda clock=None: now)
    monkeypatch.setenv("PATH", "")

    def refuse(number, changes, pauses_s=()):
        raise EnvironmentFault(f"scontrol update JobId={number}: Access/permission denied")

    monkeypatch.setattr(client, "update", refuse)
    how = service.ServiceSettings(Partitions("cores", "cores"), Rules(), measured(1.8), layout="cores")
    state, known = service.LoopState(), Known()
    monkeypatch.setattr(Known, "update", lambda self, running=(): None)
    for _ in range(2):
        assert cores_service.run_once(known, how, audit, is_dry=False, state=state) == []
    assert warned == ["scontrol update JobId=3: Access/permission denied"]
    assert '"what": "refused"' in (tmp_path / "audit").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--watch", "--layout", "spread"], "the service knows the layouts turns and cores, not 'spread'"),
        (["--release", "--layout", "near"], "the service knows the layouts turns and cores, not 'near'"),
        (["--release", "--layout", "cores", "--shared", "none"], "Slurm has no partition none: see --shared"),
        (["--watch", "--once", "--layout", "cores"], "which do not give out cores: set OverSubscribe=NO"),
    ],
)
def test_wrong_words_are_refused(tmp_path, monkeypatch, capsys, words, said):
    answering(tmp_path, monkeypatch)
    more = ["--profiles", str(tmp_path), "--prior-slowdown", "1.3"] if "--watch" in words else []
    assert main(["pair", *words, *more]) == 2
    assert said in capsys.readouterr().err
