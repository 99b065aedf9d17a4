"""Pairs in a real cluster: two chosen jobs share nodes and no third one does, whoever dies meanwhile."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import pytest
from slurm_jobs import LIMIT_S, ask, daemon

from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing.sharing_plan import Commit, Release
from mpicoloc.slurm import client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def full(cluster, queue):
    """A cluster without an idle node: the busy job of each node."""

    def fill(*wheres):
        busy = {
            where: submit(cluster, "busy", "-w", where, "-N", str(len(where.split(",")))) for where in wheres
        }
        jobs.wait_until(
            lambda: all(queue()[job].state == "RUNNING" for job in busy.values()), "a full cluster"
        )
        return busy

    return fill


def submit(cluster, name, *words, seconds=300):
    given = words if "-N" in words or "-N2" in words else ("-N1", *words)
    return cluster.submit(f"sleep {seconds}", "-p", "whole", "-n4", "-t", "10", "-J", name, *given)


def begin_pair(cluster, queue, step, full, **given):
    """Two jobs that share a node; returns them."""
    busy = full("n1", "n2", "n3", "n4")
    first, second = (submit(cluster, name, **given) for name in "ab")
    (lead,) = step()
    assert lead.share.jobs == (first,)
    (node,) = lead.share.nodes
    cluster.run("scancel", busy[node])
    jobs.wait_until(lambda: queue()[first].nodes == (node,), "the leader to start")
    (join,) = step()
    assert join.share.jobs == (first, second)
    jobs.wait_until(lambda: queue()[second].nodes == (node,), "its partner to join it")
    return first, second


def test_two_jobs_share_a_node_and_a_third_does_not(cluster, queue, step, full):
    first, second = begin_pair(cluster, queue, step, full)
    third = submit(cluster, "c")
    assert step() == step() == []
    assert {queue()[job].limit_s for job in (first, second)} == {1200}
    cluster.run("scancel", first)
    jobs.wait_until(lambda: queue()[first].state == "CANCELLED", "the end of the first")
    assert step() == []
    assert queue()[second].state == "RUNNING", "whoever ends first"
    assert queue()[third].state == "PENDING"
    assert [(line["what"], line["action"]) for line in step.log()] == [("said", "commit")] * 2


def test_jobs_on_two_nodes_share_them(cluster, queue, step, full):
    busy = full("n1,n2", "n3", "n4")
    first, second = (submit(cluster, name, "-N2") for name in "ab")
    assert [type(each) for each in step(is_dry=True)] == [Commit]
    assert {queue()[job].partition for job in (first, second)} == {"whole"}
    (lead,) = step()
    assert lead.share.nodes == ("n1", "n2")
    cluster.run("scancel", busy["n1,n2"])
    jobs.wait_until(lambda: queue()[first].nodes == ("n1", "n2"), "the leader to start")
    step()
    jobs.wait_until(lambda: queue()[second].nodes == ("n1", "n2"), "its partner to join it")


def test_a_requeued_partner_whose_leader_is_gone_runs_alone(cluster, queue, step, full):
    first, second = begin_pair(cluster, queue, step, full)
    cluster.run("scontrol", "requeue", second)
    jobs.wait_until(lambda: queue()[second].state == "PENDING", "it to wait again")
    cluster.run("scancel", first)
    jobs.wait_until(lambda: queue()[first].state == "CANCELLED", "the end of the first")
    assert [(type(each), each.job) for each in step()] == [(Release, second)]
    left = queue()[second]
    assert (left.partition, left.wanted_nodes, left.limit_s, left.admin_comment) == ("whole", (), 600, "")
    # In the second in which it was killed slurmd refuses to start it again, and slurmctld then ends the job.
    time.sleep(1.1)
    cluster.run("scontrol", "update", f"JobId={second}", "StartTime=now")
    jobs.wait_until(lambda: queue()[second].state == "RUNNING", "it to start")


def test_a_leader_that_its_user_holds_or_lets_wait_keeps_no_node(cluster, queue, step, full):
    busy = full("n1", "n2", "n3", "n4")
    first, second, _ = (submit(cluster, name) for name in "aba")
    (lead,) = step()
    assert lead.share.jobs == (first,)
    # A job that is held before Slurm has tried to start it cannot be given back.
    jobs.wait_until(lambda: queue()[first].reason != "None", "a first attempt to start it")
    cluster.run("scontrol", "hold", first)
    assert [each.job for each in step() if isinstance(each, Release)] == [first]
    assert queue()[second].partition == "shared"
    cluster.run("scontrol", "update", f"JobId={second}", f"Dependency=afterok:{busy['n1']}")
    assert [(type(each), each.job) for each in step()] == [(Release, second)]
    left = queue()[second]
    assert (left.partition, left.wanted_nodes, left.waits_for) == ("whole", (), (busy["n1"],))
    assert left.is_chained


def test_nodes_that_are_reserved_are_not_used(cluster, queue):
    words = "ReservationName=ours Nodes=n4 Users=root StartTime=now Duration=5"
    cluster.run("scontrol", "create", "reservation", *words.split())
    try:
        jobs.wait_until(lambda: not is_up("n4"), "the reservation to begin")
        assert is_up("n3")
    finally:
        cluster.run("scontrol", "delete", "ReservationName=ours")


def is_up(name):
    return next(node.is_up for node in client.snapshot().nodes if node.name == name)


def test_jobs_whose_time_cannot_grow_or_that_may_have_more_nodes_are_left_alone(cluster, queue, step, full):
    full("n1", "n2", "n3", "n4")
    for name in "ab":
        submit(cluster, name, "-t", "31")
        submit(cluster, name, "-N", "1-4")
    assert step() == [], "MaxTime of the partition is 60 minutes"


def test_each_job_ends_once_whoever_is_killed_between_the_two_halves_of_a_pair(cluster, queue, known, full):
    busy = full("n1", "n2", "n3", "n4")
    pair = [submit(cluster, name, seconds=1) for name in "ab"]
    cluster.save(pair[0])
    with service(cluster, known):  # its first look says the first half, and there is no second look
        jobs.wait_until(lambda: queue()[pair[0]].partition == "shared", "the leader to be told", LIMIT_S)
    os.kill(daemon(cluster, "slurmctld"), signal.SIGKILL)
    for job in busy.values():
        jobs.wait_until(lambda job=job: cluster.is_told("scancel", job), "slurmctld to be back")
    with service(cluster, known, "--interval-s", "0.3"):
        for job in pair:
            assert cluster.wait(job)["JobState"] == "COMPLETED"
    assert not [job for job in queue().values() if job.state == "PENDING"]
    assert n_ends(cluster, pair) == [1, 1]


def test_what_waits_for_a_node_that_goes_down_is_given_back_by_one_command(cluster, queue, step, full):
    full("n1", "n2", "n3", "n4")
    first, _ = (submit(cluster, name) for name in "ab")
    (lead,) = step()
    (node,) = lead.share.nodes
    other = "n1" if node != "n1" else "n2"
    # As a trigger of slurmctld starts it: with the node's name behind, and nothing open.
    command = f"{sys.executable} -m mpicoloc pair --release {{}} <&- >&- 2>&-"
    assert cluster.is_told("sh", "-c", command.format(other))
    assert queue()[first].wanted_nodes == (node,)
    assert cluster.is_told("sh", "-c", command.format(node))
    left = queue()[first]
    assert (left.partition, left.is_bound, left.limit_s, left.admin_comment) == ("whole", False, 600, "")


def test_users_do_not_put_jobs_beside_others_and_who_wants_to_be_alone_is(cluster, queue, step, full):
    rule = Path(cluster.plan.folder, "job_submit.lua")
    before = rule.read_text()
    full("n1", "n2", "n3", "n4")
    try:
        rewrite(
            rule, slurm_cluster.texts(slurm_cluster.Plan("x", 1, 4, 1, is_guarded=True), ())["job_submit.lua"]
        )
        told = as_user(cluster, "sbatch", "-p", "shared", "-n1", "--wrap", "true")
        assert "jobs come into partition shared by mpicoloc only" in told.stderr
        alone = int(as_user(cluster, "sbatch", "--parsable", "--exclusive", "--wrap", "true").stdout)
        moved = as_user(cluster, "scontrol", "update", f"JobId={alone}", "Partition=shared")
        assert moved.returncode != 0
        assert queue()[alone].partition == "whole"
        assert queue()[alone].admin_comment == "exclusive"
        for name in "ab":
            submit(cluster, name, "--exclusive")
        assert step() == []
        its_user_does_not_move_it(cluster, queue)
    finally:
        rewrite(rule, before)
        cluster.run("scancel", "--full", "-u", "games")


def its_user_does_not_move_it(cluster, queue):
    """A leader begins where it was sent, or goes back to where users' jobs wait."""
    job = int(as_user(cluster, "sbatch", "--parsable", "-N1", "-n4", "--wrap", "true").stdout)
    busy = next(each.id for each in queue().values() if each.state == "RUNNING")
    placed = ("Partition=shared", "ReqNodeList=n1", f"Dependency=afterany:{busy}")
    cluster.run("scontrol", "update", f"JobId={job}", *placed)

    def place():
        """Without what the scheduler says of it meanwhile."""
        return dataclasses.replace(queue()[job], start_s=0.0, reason="")

    before = place()
    for change in ("ReqNodeList=n2", "Dependency=", "NumNodes=2", "NumTasks=1", "Dependency= Partition="):
        told = as_user(cluster, "scontrol", "update", f"JobId={job}", *change.split())
        assert told.returncode != 0, change
    assert place() == before
    for change in ("TimeLimit=5", "Partition=whole ReqNodeList= Dependency="):
        assert as_user(cluster, "scontrol", "update", f"JobId={job}", *change.split()).returncode == 0
    assert queue()[job].partition == "whole"


@pytest.mark.timeout(200)
def test_a_service_goes_on_by_itself_when_slurmctld_was_killed_meanwhile(
    cluster, queue, known, full, tmp_path
):
    busy = full("n1", "n2", "n3", "n4")
    first, second = (submit(cluster, name, seconds=15) for name in "ab")
    cluster.save(first)
    log = tmp_path / "pairs.jsonl"
    watching = service(cluster, known, "--interval-s", "0.3", "--audit", log)
    with watching:
        jobs.wait_until(lambda: queue()[first].partition == "shared", "the leader to be told", 60)
        os.kill(daemon(cluster, "slurmctld"), signal.SIGKILL)
        killed_s = time.time()
        jobs.wait_until(lambda: cluster.is_told("scontrol", "ping"), "slurmctld to be back")
        # Of nodes that have not answered it yet the service gives its jobs back, and says it again later.
        jobs.wait_until(lambda: all(node.is_up for node in client.snapshot().nodes), "all nodes", 60)
        jobs.wait_until(lambda: queue()[first].partition == "shared", "the leader to be told", 60)
        (node,) = queue()[first].wanted_nodes
        cluster.run("scancel", busy[node])
        for job in (first, second):
            assert cluster.wait(job)["JobState"] == "COMPLETED"
        assert watching.process.poll() is None, "it is the same process"
    said = [json.loads(line) for line in log.read_text().splitlines()]
    pairs = [line for line in said if line.get("share", {}).get("jobs") == [first, second]]
    assert [line["what"] for line in pairs] == ["said"]
    assert pairs[0]["unix_s"] > killed_s
    assert n_ends(cluster, (first, second)) == [1, 1]


def n_ends(cluster, pair):
    """Number of entries of each job in Slurm's log of completed jobs."""
    ended = [line.split()[0] for line in Path(cluster.plan.folder, "log/jobs.txt").read_text().splitlines()]
    return [ended.count(f"JobId={job}") for job in pair]


def rewrite(file, text):
    """slurmctld reads a rule again that is younger than the one it knows."""
    youngest_s = file.stat().st_mtime + 2
    file.write_text(text)
    os.utime(file, (youngest_s, youngest_s))


def as_user(cluster, *words):
    rights = ["setpriv", "--reuid=games", "--regid=nogroup", "--clear-groups"]
    return ask([*rights, *words], env=cluster.env, cwd="/", timeout=jobs.LIMIT_S)


class service:
    """The pairing service as a process, which ends by SIGKILL."""

    def __init__(self, cluster, known, *words):
        flags = ["--profiles", known.folder, "--prior-slowdown", "1.5",
                 *map(str, words or ("--interval-s", "60"))]  # fmt: skip
        self.command = [sys.executable, "-m", "mpicoloc", "pair", "--watch", *flags]
        self.env = cluster.env

    def __enter__(self):
        self.process = subprocess.Popen(self.command, env=self.env, stdout=subprocess.DEVNULL)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(jobs.LIMIT_S)
