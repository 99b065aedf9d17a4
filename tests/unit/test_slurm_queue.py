"""What squeue of Slurm 22.05.8 wrote, whole, damaged, and in the way of later versions."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.run import slurm_command, slurm_queue

TEXT = (Path(__file__).resolve().parents[1] / "slurm" / "data" / "squeue-22.05.8.json").read_text()
JOBS = {job.id: job for job in slurm_queue.parse(TEXT)}


def test_a_recorded_queue():
    assert list(JOBS) == [4, 25, 26, 27, 28, 29, 30]
    running = JOBS[25]
    assert (running.state, running.nodes, running.n_nodes, running.n_cpus) == ("RUNNING", "n[1-2]", 2, 8)
    assert (running.user, running.name, running.command) == ("ada", "heat", "/home/ada/s.sh 60")
    assert running.time_limit_s == 600 and running.start_unix_s == running.submit_unix_s == 1795366493
    assert JOBS[4].required_nodes == "n1"
    assert JOBS[27].dependency == "afterok:25(unfulfilled)"
    assert JOBS[28].array == "1-3%1"
    assert JOBS[29].eligible_unix_s - JOBS[29].submit_unix_s == 600
    assert JOBS[30].time_limit_s is None
    assert JOBS[26].start_unix_s is None


def test_only_jobs_that_wait_for_room_are_ready():
    assert {id for id, job in JOBS.items() if job.is_held} == {26}
    assert {id for id, job in JOBS.items() if job.is_ready} == {28}


def test_later_versions_write_numbers_as_objects_and_states_as_lists():
    answer = json.loads(TEXT)
    for job in answer["jobs"]:
        job["job_state"] = [job["job_state"], "CONFIGURING"]
        for key in ("time_limit", "node_count", "cpus", "tasks", "priority", "submit_time", "start_time"):
            value = job[key]
            job[key] = {"set": True, "infinite": value is None, "number": value or 0}
    assert {job.id: job for job in slurm_queue.parse(json.dumps(answer))} == JOBS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("[" * 100000, "no JSON"),
        ("{}", "no list"),
        ('{"jobs": [1]}', "is no job"),
        ('{"jobs": [{"job_id": 7}]}', "job 7 is not understood"),
        ('{"jobs": [], "errors": ["plugin"]}', "plugin"),
    ],
)
def test_what_is_no_queue_is_refused(text, words):
    with pytest.raises(DataError, match=words):
        slurm_queue.parse(text)


@given(st.data())
def test_a_damaged_field_is_refused_or_read_but_nothing_else(data):
    answer = json.loads(TEXT)
    job = answer["jobs"][data.draw(st.integers(0, 6))]
    key = data.draw(st.sampled_from(sorted(job)))
    job[key] = data.draw(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.lists(st.none())
        | st.dictionaries(st.sampled_from(["set", "infinite", "number"]), st.booleans() | st.integers())
    )  # fmt: skip
    try:
        found = slurm_queue.parse(json.dumps(answer))
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert len(found) == 7 and all(job.n_cpus >= 0 and job.state for job in found)


def test_an_empty_queue_is_none_and_a_large_one_is_read():
    assert slurm_queue.parse('{"jobs": []}') == ()
    answer = json.loads(TEXT)
    answer["jobs"] = [{**answer["jobs"][1], "job_id": id} for id in range(5000, 0, -1)]
    assert [job.id for job in slurm_queue.parse(json.dumps(answer))] == list(range(1, 5001))


AWAY = "import sys; sys.exit('slurm_load_jobs error: Unable to contact slurm controller (connect failure)')"


def test_a_controller_that_is_away_is_asked_again_until_patience_ends():
    slept = []
    with pytest.raises(EnvironmentFault, match="scontrol ping"):
        slurm_command.ask([sys.executable, "-c", AWAY], (0.5, 1.0), slept.append)
    assert slept == [0.5, 1.0]


def test_an_answer_after_a_restart_counts(tmp_path):
    up = tmp_path / "up"
    code = f"import os, sys\nif os.path.exists({str(up)!r}): sys.exit(print('there'))\n{AWAY}"
    assert slurm_command.ask([sys.executable, "-c", code], (0.5,), lambda _: up.touch()) == "there\n"


def test_a_refusal_is_told_at_once():
    code = "import sys; sys.exit('slurm_update error: Access/permission denied')"
    with pytest.raises(EnvironmentFault, match="permission denied"):
        slurm_command.ask([sys.executable, "-c", code], (9.0,), pytest.fail)
    with pytest.raises(EnvironmentFault, match="where Slurm's programs are"):
        slurm_command.ask(["no-such-squeue"])
