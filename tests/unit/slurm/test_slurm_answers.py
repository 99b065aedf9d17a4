"""Reading the answers of Slurm's commands: recordings of Slurm 22.05, newer formats, and failures."""

import contextlib
import copy
import json
import math
import sys
from pathlib import Path

import pytest
from slurm_programs import UPDATE, answering, stand_in

from mpicoloc.core.batch_system import BatchQueue
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.slurm import client

ANSWERS = json.loads((Path(__file__).parent / "slurm_answers.json").read_text())


def test_jobs_and_nodes_are_as_slurm_says():
    found = client.parsed(ANSWERS["squeue"], ANSWERS["sinfo"], 1795366100.0)
    jobs = {job.name: job for job in found.jobs}
    waiting, pinned, running = jobs["F"], jobs["H"], jobs["r1"]
    assert (waiting.state, waiting.partition, waiting.n_tasks, waiting.limit_s) == (
        "PENDING", "whole", 4, 600
    )  # fmt: skip
    assert not waiting.is_bound
    assert pinned.wanted_nodes == ("n2",)
    assert pinned.is_bound
    assert (running.state, running.nodes) == ("RUNNING", ("n3",))
    assert waiting.submit_s > 1.7e9 and running.start_s >= running.submit_s
    assert waiting.kind == ("root", "F", 4)
    (node, *_) = found.nodes
    assert (node.name, node.n_cpus, node.memory_bytes, node.is_up) == ("n1", 4, 1000 * 2**20, True)
    assert set(node.partitions) == {"shared", "whole"}


def test_the_memory_that_a_job_asks_for_where_jobs_get_no_more():
    row = {**ANSWERS["squeue"]["jobs"][3], "cpus": 4, "node_count": 2}
    asked = [(None, None), (700, None), (None, 300), (500, 300), (0, 0)]
    forms = [lambda n: n, number]
    for form in forms:
        rows = [{**row, "memory_per_node": form(a), "memory_per_cpu": form(b)} for a, b in asked]
        found = client.parsed({"jobs": rows}, ANSWERS["sinfo"], 0.0, has_memory=True).jobs
        assert [job.memory_bytes / 2**20 for job in found] == [math.inf, 700, 600, 600, math.inf]
        found = client.parsed({"jobs": rows}, ANSWERS["sinfo"], 0.0).jobs
        assert {job.memory_bytes for job in found} == {0}


@pytest.mark.parametrize(
    ("state", "flags"),
    [("down", []), ("idle", ["DRAIN"]), ("idle", ["NOT_RESPONDING"]), ("idle", ["RESERVED"])],
)
def test_a_node_that_takes_no_jobs_is_not_up(state, flags):
    answer = copy.deepcopy(ANSWERS["sinfo"])
    answer["nodes"][0] |= {"state": state, "state_flags": flags}
    assert not client.parsed(ANSWERS["squeue"], answer, 0.0).nodes[0].is_up


def test_a_job_that_takes_more_nodes_than_it_needs_is_not_placed():
    rows = [{**ANSWERS["squeue"]["jobs"][3], "node_count": 1, "max_nodes": n} for n in (0, 1, 4, 0xFFFFFFFE)]
    rows += [{**rows[0], "max_nodes": number(n)} for n in (None, 1, 4, math.inf)]
    rows += [{**rows[-2], "flags": ["JOB_IMPLICIT_MAX_NODES"]}]
    found = client.parsed({"jobs": rows}, ANSWERS["sinfo"], 0.0).jobs
    assert [job.is_bound for job in found] == 2 * [False, False, True, False] + [False]


def test_processors_of_a_task_and_unlimited_tasks_are_no_conditions():
    """Answers of Slurm 24.11 about `-c2`."""
    row = {**ANSWERS["squeue"]["jobs"][3], "tasks_per_core": number(math.inf)}
    rows = [{**row, "tres_per_task": text} for text in ("", "cpu=2", "cpu:2", "cpu=2,gres/gpu=1")]
    found = client.parsed({"jobs": rows}, ANSWERS["sinfo"], 0.0).jobs
    assert [job.is_bound for job in found] == [False, False, False, True]
    assert not any(job.is_shaped for job in found)


def test_a_job_that_waits_for_more_than_the_end_of_others():
    said = {
        "": False,
        "afterany:5(unfulfilled),afterany:16(unfulfilled)": False,
        "afterok:5(unfulfilled)": True,
        "afterany:5(unfulfilled)?afternotok:6(unfulfilled)": True,
        "singleton(unfulfilled)": True,
    }
    rows = [{**ANSWERS["squeue"]["jobs"][3], "dependency": text} for text in said]
    found = client.parsed({"jobs": rows}, ANSWERS["sinfo"], 0.0).jobs
    assert [job.is_chained for job in found] == list(said.values())


def number(value):
    """As Slurm 23.02 and later write most numbers; None: not set."""
    is_infinite = value == math.inf
    return {
        "set": value is not None and not is_infinite,
        "infinite": is_infinite,
        "number": 0 if value is None or is_infinite else value,
    }


WRAPPED_LATER = ("submit_time", "start_time")


def newer_job(row, version):
    """A job of a recorded answer in the form of data_parser v0.0.39 (Slurm 23.02) or v0.0.41 (24.05)."""
    given = ("time_limit", "node_count", "tasks", "cpus", "priority", "array_job_id", "het_job_id")
    wrapped = {name: number(row[name]) for name in (*given, *(WRAPPED_LATER if version >= 41 else ()))}
    states = {"job_state": [row["job_state"]], "shared": [], "exclusive": ["true"], "oversubscribe": False}
    return {**row, **wrapped, **states, "hold": False}


def newer_node(row):
    state = {"state": [row["state"].upper(), *row["state_flags"]], "next_state_after_reboot": ["INVALID"]}
    kept = {name: value for name, value in row.items() if name != "state_flags"}
    return {**kept, **state, "free_mem": number(21822), "boot_time": number(1795362314)}


@pytest.mark.parametrize("version", [39, 41])
def test_newer_versions_of_slurm_say_the_same_in_another_form(version):
    old = client.parsed(ANSWERS["squeue"], ANSWERS["sinfo"], 0.0)
    jobs = {"jobs": [newer_job(row, version) for row in ANSWERS["squeue"]["jobs"]], "errors": []}
    nodes = {"nodes": [newer_node(row) for row in ANSWERS["sinfo"]["nodes"]], "errors": []}
    assert client.parsed(jobs, nodes, 0.0) == old


def test_words_of_newer_versions():
    row = newer_job(ANSWERS["squeue"]["jobs"][0], 41)
    rows = [
        {**row, "job_state": ["COMPLETED", "COMPLETING"], "time_limit": number(math.inf)},
        {**row, "job_state": ["RUNNING", "CONFIGURING"], "time_limit": number(None)},
        {**row, "job_state": ["PENDING"], "het_job_id": number(7)},
        {**row, "job_state": ["PENDING"], "dependency": "afterany:5(unfulfilled),afterany:16(unfulfilled)"},
    ]
    node = newer_node(ANSWERS["sinfo"]["nodes"][0])
    states = [["IDLE"], ["DOWN", "NOT_RESPONDING"], ["IDLE", "DRAIN"], ["ALLOCATED", "PLANNED"]]
    found = client.parsed({"jobs": rows}, {"nodes": [{**node, "state": state} for state in states]}, 0.0)
    assert [job.state for job in found.jobs] == ["COMPLETING", "RUNNING", "PENDING", "PENDING"]
    assert [job.limit_s for job in found.jobs[:2]] == [math.inf, math.inf]
    assert [job.is_bound for job in found.jobs] == [False, False, True, True]
    assert found.jobs[3].waits_for == (5, 16)
    assert [node.is_up for node in found.nodes] == [True, False, False, True]


def test_nodes_come_from_scontrol_where_sinfo_adds_them_up(monkeypatch, tmp_path):
    """Programs that say what those of Slurm 24.05 do."""
    answers = {
        "squeue": {"jobs": [newer_job(row, 41) for row in ANSWERS["squeue"]["jobs"]]},
        "sinfo": {"sinfo": [{"node": {"state": ["IDLE"]}, "nodes": {"nodes": ["n1"], "total": 1}}]},
        "nodes": {"nodes": [newer_node(row) for row in ANSWERS["sinfo"]["nodes"]]},
    }
    for name, answer in answers.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(answer))
    (tmp_path / "partitions").write_text(PARTITIONS)
    scontrol = 'case "$*" in *nodes) cat {0}/nodes.json;; *) cat {0}/partitions;; esac'
    scripts = {"squeue": "cat {0}/squeue.json", "sinfo": "cat {0}/sinfo.json", "scontrol": scontrol}
    stand_in(tmp_path, monkeypatch, scripts)
    found = client.snapshot(lambda: 5.0)
    old = client.parsed(ANSWERS["squeue"], ANSWERS["sinfo"], 5.0)
    assert (found.jobs, found.nodes) == (old.jobs, old.nodes)
    assert found.queue("shared") == BatchQueue("shared", 10, 3600.0, "FORCE:2")


# As Slurm 22.05 says it, some fields left out.
PARTITIONS = """PartitionName=whole AllowGroups=ALL Default=YES MaxTime=UNLIMITED Nodes=n[1-2] PriorityTier=1
PartitionName=shared Default=NO MaxTime=01:00:00 Nodes=n[1-2] PriorityTier=10 OverSubscribe=FORCE:2
PartitionName=long MaxTime=2-12:00:30 PriorityTier=1
"""


def test_partitions_tell_their_order_and_their_longest_time():
    whole, shared, long = client.partitions(PARTITIONS)
    assert (whole.name, whole.tier, whole.max_s) == ("whole", 1, math.inf)
    assert (shared.name, shared.tier, shared.max_s) == ("shared", 10, 3600.0)
    assert long.max_s == (60 * 60 + 0) * 60 + 30
    assert client.partitions("") == ()


@pytest.mark.parametrize(
    "answer",
    [{}, {"jobs": None}, {"jobs": [{}]}, {"jobs": [{"job_id": "x"}]}, [], {"errors": ["no"], "jobs": []}],
)
def test_an_answer_of_another_kind_is_told(answer):
    with pytest.raises(DataError, match="Slurm's answer cannot be parsed"):
        client.parsed(answer, ANSWERS["sinfo"], 0.0)


def test_without_slurm_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match="squeue is not installed here"):
        client.snapshot()


AWAY = "import sys; sys.exit('slurm_load_jobs error: Unable to contact slurm controller (connect failure)')"


def test_a_controller_that_is_away_is_asked_again_until_patience_ends():
    slept = []
    with pytest.raises(EnvironmentFault, match="scontrol ping"):
        client.run_program([sys.executable, "-c", AWAY], (0.5, 1.0), slept.append)
    assert slept == [0.5, 1.0]


def test_an_answer_after_a_restart_counts(tmp_path):
    up = tmp_path / "up"
    code = f"import os, sys\nif os.path.exists({str(up)!r}): sys.exit(print('there'))\n{AWAY}"
    assert client.run_program([sys.executable, "-c", code], (0.5,), lambda _: up.touch()) == "there\n"


def test_a_refusal_is_told_at_once():
    code = "import sys; sys.exit('slurm_update error: Access/permission denied')"
    with pytest.raises(EnvironmentFault, match="permission denied"):
        client.run_program([sys.executable, "-c", code], (9.0,), pytest.fail)


@pytest.mark.parametrize("n_refusals", [2, 9])
def test_a_job_that_slurm_is_busy_with_is_changed_a_little_later(tmp_path, monkeypatch, n_refusals):
    busy = "slurm_update error: Resource temporarily unavailable for job 7"
    refuse = f'[ $(wc -l < {{0}}/said) -gt {n_refusals} ] || {{{{ echo "{busy}" >&2; exit 1; }}}}'
    answering(tmp_path, monkeypatch, f"{UPDATE}; {refuse}")
    monkeypatch.setattr(client, "_BUSY_PAUSES_S", (0.0, 0.0))
    expected = (
        pytest.raises(EnvironmentFault, match="temporarily") if n_refusals > 2 else contextlib.nullcontext()
    )
    with expected:
        client.update(7, {"Partition": "shared"})
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["update JobId=7 Partition=shared"] * 3
