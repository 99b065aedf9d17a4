"""Decisions of the pairing service for given queues, nodes and knowledge of the jobs."""

import dataclasses
import itertools
import json

import pytest
import sample
from slurm_programs import answering

from mpicoloc.cli.main import main
from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, BatchQueue, Snapshot
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import JobFeatures, MeasuredTable
from mpicoloc.errors import UsageError
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Assignment, Commit, Partitions, Release
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client, service

NODES = tuple(BatchNode(name, 4, 2.0**30, True, ("whole", "shared")) for name in ("n1", "n2"))
BOTH = Partitions("whole", "shared")
QUEUES = (BatchQueue("whole", 1, 3600.0), BatchQueue("shared", 10, 3600.0, "FORCE:2"))


def job(number, state=PENDING, **more):
    given = {"partition": "shared", "n_nodes": 1, "n_tasks": 4, "n_cpus": 4, **more}
    return BatchJob(number, "ada", f"job{number}", state, **given)


def steering(policy="blossom", model=None):
    return service.ServiceSettings(BOTH, Rules(policy, prior_slowdown=1.3), model)


def planned(leaders, waiting, how=None, runtime_s=100.0, queues=QUEUES):
    both = (*leaders, *waiting)
    features = {each.id: JobFeatures(str(each.id), each.name, runtime_s, 4, 4, {}) for each in both}
    now = Snapshot(1e9, both, NODES, queues)
    groups = service.plan_groups(leaders, waiting, features, how or steering(), now, {})
    return sorted(group.jobs for group in groups)


def test_a_pair_of_which_nothing_is_known_any_more_is_still_moved(tmp_path):
    said = Assignment((1,), ("n1",))
    waiting = job(1, wanted_nodes=("n1",), is_bound=True, admin_comment=said.text(600.0))
    running = job(7, RUNNING, partition="whole", nodes=("n1",))
    how = service.ServiceSettings(BOTH, Rules("greedy"), MeasuredTable({}))
    found = service.decide_actions(
        Snapshot(1e9, (waiting, running), NODES), service.ProfileHistory(str(tmp_path)), how
    )
    assert found == [Commit(Assignment((1,), ("n2",)), (), (2.0,), "another node is free")]


class Measured(service.ProfileHistory):
    """Of each job how long it takes, and what kinds suffered when they met."""

    def __init__(self, runtime_s, meetings):
        super().__init__("")
        self.runtime_s, self.meetings = runtime_s, meetings

    def features_of(self, job, now_s):
        runtime_s = self.runtime_s[job.id]
        return JobFeatures(str(job.id), job.name, runtime_s, 4, 4, {"rss_bytes_mean": runtime_s})

    def measured_pairs(self, kinds):
        return self.meetings


def test_time_limits_grow_by_what_was_measured_of_a_pair():
    short = job(1, partition="whole", priority=1)
    told = Assignment((2,), ("n1",)).text(600.0)
    long = job(2, RUNNING, start_s=1e9, limit_s=900.0, nodes=("n1",), admin_comment=told)
    others = job(7, RUNNING, partition="whole", nodes=("n2",), start_s=1e9)
    meetings = {
        (short.kind, long.kind): [Estimate(4.0, 3.9, 4.1, 9, "1", "measured")],
        (long.kind, short.kind): [Estimate(1.0, 0.99, 1.01, 9, "1", "measured")] * 9,
    }
    known = Measured({1: 120.0, 2: 600.0, 7: 600.0}, meetings)
    now = Snapshot(1e9, (short, long, others), NODES, QUEUES)
    (commit,) = service.decide_actions(now, known, steering("greedy"))
    assert commit.share.jobs == (2, 1)
    assert commit.slowdowns[0] == 2.0 and 3.9 < commit.slowdowns[1] < 6.0


@pytest.mark.parametrize("policy", ["blossom", "greedy", "fifo-shared"])
def test_leaders_go_with_waiting_jobs_only(policy):
    leaders = [job(i, RUNNING, start_s=1e9 - 10) for i in (1, 2)]
    waiting = [job(i, partition="whole") for i in (3, 4, 5)]
    groups = planned(leaders, waiting, steering(policy))
    assert sorted(i for group in groups for i in group) == [0, 1, 2, 3, 4]
    assert all(not {0, 1} <= set(group) for group in groups)
    assert sum(len(group) == 2 for group in groups) == 2


def test_jobs_pair_with_those_on_as_many_nodes():
    waiting = [job(i, partition="whole", n_nodes=1 + i % 2, n_cpus=4 + 4 * (i % 2)) for i in (1, 2, 3, 4)]
    assert planned([], waiting) == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("memory_bytes", "groups"), [(0.5, [(0, 1)]), (0.6, [(0,), (1,)]), (float("inf"), [(0,), (1,)])]
)
def test_two_jobs_share_no_node_that_has_less_memory_than_both_ask_for(memory_bytes, groups):
    waiting = [job(i, partition="whole", memory_bytes=memory_bytes * 2**30) for i in (1, 2)]
    assert planned([], waiting) == groups
    leader = job(1, RUNNING, start_s=1e9 - 10, memory_bytes=memory_bytes * 2**30)
    assert planned([leader], waiting[1:]) == groups


def test_a_leader_that_is_nearly_over_takes_nobody():
    old = job(1, RUNNING, start_s=1e9 - 95)
    assert planned([old], [job(2, partition="whole")]) == [(0,), (1,)]


def test_a_job_whose_time_limit_cannot_grow_runs_alone():
    waiting = [job(i, partition="whole", limit_s=2000.0) for i in (1, 2)]
    assert planned([], waiting) == [(0,), (1,)]
    assert planned([], waiting, queues=()) == [(0, 1)]


def test_partitions_that_keep_pairs_apart_are_told():
    def told(*queues, **settings):
        return service.configuration_advice(Snapshot(1e9, (), NODES, queues), BOTH, settings)

    assert told(*QUEUES) == []
    (line,) = told(BatchQueue("whole", 1), BatchQueue("shared", 1, sharing="FORCE:2"))
    assert "PriorityTier=1 of partition shared is not above 1" in line
    (line,) = told(BatchQueue("whole", 1), BatchQueue("shared", 10))
    assert "OverSubscribe=NO of partition shared: no partner starts" in line
    (line,) = told(BatchQueue("whole", 1))
    assert "no partition shared" in line
    (line,) = told(*QUEUES, PreemptType="preempt/partition_prio")
    assert "may preempt jobs of whole" in line
    (line,) = told(*QUEUES, PreemptMode="SUSPEND,GANG")
    assert "suspended in turn" in line
    (line,) = told(*QUEUES, SelectTypeParameters="CR_CORE_MEMORY", DefMemPerNode="UNLIMITED")
    assert "gets all memory of its node" in line
    fine = {"SelectTypeParameters": "CR_CORE_MEMORY", "DefMemPerCPU": "2000", "PreemptType": "preempt/none"}
    assert told(*QUEUES, **fine) == []


def test_comments_of_others_at_most_jobs_are_told():
    def told(*comments):
        jobs = [job(i, partition="whole", admin_comment=text) for i, text in enumerate(comments, 1)]
        now = Snapshot(1e9, tuple(jobs), NODES, QUEUES)
        return service.configuration_advice(now, BOTH, {})

    assert told() == told("", "site") == told("", '{"mpicoloc":{}}', "site") == []
    (line,) = told("", "site", "site", "other")
    assert line.startswith("3 of 4 jobs that wait in whole have an AdminComment not from mpicoloc ('site')")


BESIDE = Commit(Assignment((7, 1), ("n1",)), (), (2.0, 2.0), "")


def pair_to_be():
    leader = job(
        7, RUNNING, nodes=("n1",), limit_s=600.0, admin_comment=Assignment((7,), ("n1",)).text(600.0)
    )
    return Snapshot(1e9, (leader, job(1, partition="whole", limit_s=600.0)), NODES, QUEUES)


def updates(folder):
    lines = (folder / "said").read_text().splitlines()
    return [tuple(word for word in line.split() if word.startswith(("JobId", "TimeL"))) for line in lines]


def refuse(folder, number, words):
    """From now on nothing is changed of that job."""
    scontrol = folder / "scontrol"
    text = f"*JobId={number}*) echo '{words}' >&2; exit 1;;"
    scontrol.write_text(
        scontrol.read_text().replace('case "$1" in', f'case "$*" in {text} esac; case "$1" in')
    )


def test_a_leader_has_its_time_back_when_its_partner_is_refused(slurm):
    refuse(slurm, 1, "slurm_update error: Access/permission denied")
    warned = []
    refused = service.apply_action(BESIDE, pair_to_be(), BOTH, service.AuditLog(None, warned.append))
    assert refused == 1
    assert updates(slurm) == [("JobId=7", "TimeLimit=20"), ("JobId=7", "TimeLimit=10")]
    (line,) = warned
    assert "permission denied" in line


def test_a_partner_is_not_to_blame_when_its_leader_has_ended(slurm):
    refuse(slurm, 7, "slurm_update error: Job/step already completing or completed")
    audit = service.AuditLog(None, lambda text: None)
    assert service.apply_action(BESIDE, pair_to_be(), BOTH, audit) == 7
    assert not (slurm / "said").exists(), "the partner is where it was"


def test_nothing_more_is_said_of_a_queue_that_may_be_another_one(slurm):
    """Slurm that was away for one command: what was decided before is not said after it."""
    scontrol = slurm / "scontrol"
    words = "echo 'Unable to contact slurm controller' >&2; exit 1"
    away = f"[ -e {slurm}/was ] || {{ touch {slurm}/was; {words}; }}"
    scontrol.write_text(scontrol.read_text().replace("update)", f"update) {away};"))
    audit = service.AuditLog(None, pytest.fail)
    with pytest.raises(client.ControllerAway):
        service.apply_action(BESIDE, pair_to_be(), BOTH, audit)
    assert not (slurm / "said").exists()
    assert service.apply_action(BESIDE, pair_to_be(), BOTH, audit) is None


SHARE = Assignment((1,), ("n1",))
SENT = {"wanted_nodes": ("n1",), "waits_for": (7,), "admin_comment": SHARE.text(600.0, (7,)),
        "limit_s": 1200.0}  # fmt: skip
GIVEN_BACK = {"Partition": "whole", "ReqNodeList": "", "Dependency": "", "AdminComment": "",
              "TimeLimit": "10"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, ()),
        ({"waits_for": (999,)}, ("Dependency",)),
        ({"is_chained": True}, ("Dependency",)),
        ({"wanted_nodes": ("n2",)}, ("ReqNodeList",)),
        ({"partition": "debug"}, ("Partition", "ReqNodeList", "Dependency", "TimeLimit")),
    ],
)
def test_who_is_given_back_keeps_what_others_have_said(slurm, changes, left):
    now = Snapshot(1e9, (job(1, **{**SENT, **changes}),), NODES, QUEUES)
    service.change_jobs(Release(1, 600.0, "asked for"), now, BOTH)
    said = dict(word.split("=", 1) for word in (slurm / "said").read_text().split()[1:])
    assert said.pop("JobId") == "1"
    assert said == {name: text for name, text in GIVEN_BACK.items() if name not in left}


def test_it_says_at_the_job_what_the_job_waits_for(slurm):
    now = Snapshot(1e9, (job(1, partition="whole", limit_s=600.0),), NODES, QUEUES)
    service.change_jobs(Commit(SHARE, (7, 8), (2.0,), ""), now, BOTH)
    assert "AdminComment=mpicoloc share 1 on n1 limit 10 after 7:8 " in (slurm / "said").read_text()


def test_nothing_is_given_back_in_partitions_that_slurm_does_not_have(slurm):
    with pytest.raises(UsageError, match="no partition common"):
        service.release_jobs(Partitions("whole", "common"), service.AuditLog(None, pytest.fail))


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Programs that say what Slurm 22.05 said once, and keep what they are told in `said`."""
    return answering(tmp_path, monkeypatch)


def test_a_service_without_a_place_for_its_index_says_so(slurm, monkeypatch, capsys):
    (slurm / "profiles").mkdir()
    words = ["pair", "--watch", "--once", "--dry-run", "--prior-slowdown", "1.3", "--profiles"]
    for cache, is_said in (("cache", False), ("partitions", True)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(slurm / cache))
        assert main([*words, str(slurm / "profiles")]) == 0
        assert ("no index can be kept" in capsys.readouterr().err) == is_said


@pytest.mark.parametrize("reading_s", [0.1, 100.0])
def test_what_is_decided_is_of_the_queue_after_the_profiles_were_read(slurm, reading_s):
    folder = slurm / "profiles"
    folder.mkdir()
    for name in "FG":
        made = sample.job(id=name, user="root", batch_name=name, n_ranks=4)
        hdf5.write(dataclasses.replace(sample.profile(), job=made), folder / f"{name}.h5")

    class Slow(service.ProfileHistory):
        """Whoever reads long finds that one of two jobs has left."""

        def update(self, running=()):
            super().update(running)
            answer = json.loads((slurm / "squeue.json").read_text())
            answer["jobs"] = [row for row in answer["jobs"] if row["name"] != "G"]
            (slurm / "squeue.json").write_text(json.dumps(answer))

    times_s = itertools.chain([1.8e9], itertools.repeat(1.8e9 + reading_s))
    audit = service.AuditLog(None, pytest.fail)
    found = service.run_once(Slow(str(folder)), steering(), audit, is_dry=True, clock=lambda: next(times_s))
    assert len([each for each in found if isinstance(each, Commit)]) == (
        reading_s < service.SNAPSHOT_AGE_MAX_S
    )


def test_nodes_that_take_no_jobs_have_no_room():
    now = Snapshot(1e9, (), (NODES[0], BatchNode("tiny", 1, 1.0, True, ("debug",))))
    how = service.ServiceSettings(BOTH, Rules("greedy"), None)
    assert service._smallest_room(now, how).n_cores == 8
