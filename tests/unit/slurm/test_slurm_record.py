"""Records of steps, made from the output of Slurm's commands, and the files that hold them."""

import json
import os
import stat
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from slurm_programs import stand_in
from slurm_step import JOB, KEY, STEP, record, squeue, write_note

from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.slurm import client, records, records as slurm_record
from mpicoloc.slurm.client import Start
from mpicoloc.slurm.records import StepNote


def test_a_step_has_its_own_cpus_and_the_script_those_of_the_job():
    step, script = record(), record([squeue()], "batch")
    assert (step.n_nodes, step.n_cpus, step.ran_s) == (1, 2, 80.25)
    assert (script.n_nodes, script.n_cpus, script.ran_s) == (2, 8, 81.25)
    assert {(each.job_n_cpus, each.job_ran_s) for each in (step, script)} == {(8, 81.25)}
    assert (step.user, step.account, step.array_task, step.cluster) == ("ada", None, None, "lab")
    assert step.run != script.run and step.name == "11.0"


@pytest.mark.parametrize(
    ("tres", "billing"),
    [
        ("cpu=8,mem=16G,node=2,billing=20", 20.0),
        ("cpu=8,node=2,billing=2.5,gres/gpu=1", 2.5),
        ("cpu=8", None),
        ("", None),
    ],
)
def test_a_record_has_what_slurm_bills(tres, billing):
    assert record([squeue(**{"tres-alloc": tres}), STEP]).job_billing == billing


def test_tasks_of_arrays_and_restarts_are_told():
    found = record([squeue(ArrayJobID="7", ArrayTaskID="4", RestartCnt="2", Account="chem"), STEP])
    assert (found.array_job, found.array_task, found.restarts, found.account) == (7, 4, 2, "chem")


@pytest.mark.parametrize(
    ("used", "ran_s"), [("1:00", 61.0), ("0:00", 1.0), ("1-00:00:07", 80.25), ("1:00:00", 80.25)]
)
def test_time_in_which_the_job_was_suspended_does_not_count(used, ran_s):
    assert record([squeue(TimeUsed=used), STEP]).ran_s == ran_s


def test_names_of_the_users_choice_change_nothing():
    line = " ".join(f"{name}={value}" for name, value in JOB.items())
    forged = squeue(Account="x\n" + line), STEP.replace("Name=sh", "Name=x\nStepId=11.0 Nodes=1 CPUs=0 ")
    assert replace(record(forged), account=None) == record()
    with_columns = squeue(Account="x\n" + squeue(NumCPUs="1"))
    assert record([with_columns], "batch").n_cpus == 8


def test_what_is_not_there_or_not_understood_is_told():
    with pytest.raises(EnvironmentFault, match="no job 11 of user 1000"):
        record([squeue(UserID="1001"), STEP])
    for told in ([squeue(TimeUsed="INVALID"), STEP], [squeue(), "Step 11.0"], [squeue(RestartCnt=""), STEP]):
        with pytest.raises(DataError, match="tested with squeue"):
            record(told)


def test_what_is_no_step_is_refused(tmp_path):
    start = Start(11, 1000, 1795377520, 1795377523, True, "11")
    with pytest.raises(UsageError, match="give its number"):
        slurm_record.record_ended_step(start, "../0", KEY, str(tmp_path), 1.0)


def kept(tmp_path, monkeypatch, scontrol, row=None, *, is_noted=True):
    """The record of step 11.0, whose note is there, that this answer of scontrol's makes."""
    stand_in(tmp_path, monkeypatch, {"scontrol": scontrol})
    spool = tmp_path / "spool"
    (spool / ".steps").mkdir(parents=True, exist_ok=True)
    note = StepNote(11, "0", 1000, 1, 3, 1795377524.5, 1795377604.25)
    if is_noted:
        write_note(spool, note)
    write_note(spool, replace(note, step="1"))
    start = client.parse_start(row or squeue(), 11, 1000)
    path = slurm_record.record_ended_step(start, "0", KEY, str(spool), 1795377604.25)
    assert path == f"{spool}/11.1795377520.0.json"
    assert [note.step for note in slurm_record.read_notes(str(spool), start)] == ["1"], "others stay"
    assert slurm_record.record_ended_step(start, "0", KEY, str(spool), 1.0) is None
    return records.read_record(path).record


def test_a_step_has_a_record_whether_it_left_a_profile_or_not(tmp_path, monkeypatch):
    assert kept(tmp_path, monkeypatch, f"echo '{STEP.strip()}'") == replace(
        record(), user=client.user_name(1000), profile="11.1795377520.0.h5"
    )


@pytest.mark.parametrize(
    "scontrol", ["echo Job step 11.0 not found >&2; exit 1", "echo Job step 11.0 not found"]
)
def test_of_a_step_that_slurm_has_forgotten_the_note_tells(tmp_path, monkeypatch, scontrol):
    found = kept(tmp_path, monkeypatch, scontrol)
    assert (found.n_cpus, found.n_nodes, found.ran_s) == (3, 1, 79.75)
    assert (found.job_start_unix_s, found.step_start_unix_s) == (1795377523.0, 1795377524.5)


def test_while_a_requeued_job_leaves_slurm_tells_neither_its_start_nor_its_time(tmp_path, monkeypatch):
    row = squeue(StateCompact="CG", RestartCnt="3", StartTime="1795377605", TimeUsed="0:00")
    found = kept(tmp_path, monkeypatch, f"echo '{STEP.strip()}'", row)
    assert (found.restarts, found.ran_s, found.job_start_unix_s) == (2, 79.75, 1795377524.0)


def test_only_steps_that_slurm_has_begun_have_profiles(tmp_path, monkeypatch):
    """A user may lay as many files as there are names: one that runs has a note, later a record."""
    kept(tmp_path, monkeypatch, f"echo '{STEP.strip()}'")
    start = client.parse_start(squeue(), 11, 1000)
    found = [(f"{step}.h5", start.name(step)) for step in ("0", "1", "2", "batch")]
    known, others = slurm_record.split_by_known_steps(found, str(tmp_path / "spool"), start)
    assert (known, others) == (found[:2], found[2:])
    later = client.parse_start(squeue(SubmitTime="1795377620", StartTime="1795377621"), 11, 1000)
    found = [("0.h5", later.name("0"))]
    assert slurm_record.split_by_known_steps(found, str(tmp_path / "spool"), later) == ([], found), (
        "of another start"
    )


def test_without_note_and_answer_there_is_no_record(tmp_path, monkeypatch):
    with pytest.raises(EnvironmentFault, match="not found"):
        kept(tmp_path, monkeypatch, "echo Job step 11.0 not found >&2; exit 1", is_noted=False)


def test_a_record_is_written_once_for_its_owner_only(tmp_path):
    path = str(tmp_path / "11.1.0.json")
    assert records.write_sealed(path, record(), KEY)
    assert not records.write_sealed(path, replace(record(), ran_s=1.0), KEY)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["11.1.0.json"]
    found = records.read_record(path)
    assert found.record == record() and found.reason(KEY) == ""
    assert "another key" in found.reason(b"k" * 32)
    assert records.read_record(str(tmp_path / "none.json")) is None
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        records.write_sealed(str(tmp_path / "none" / "a.json"), record(), KEY)


@given(st.sampled_from(sorted(records.seal(record(), KEY))), st.one_of(st.none(), st.integers(), st.text()))
def test_no_value_of_a_record_can_be_changed(tmp_path_factory, name, value):
    values = records.seal(record(), KEY)
    path = tmp_path_factory.mktemp("record") / "a.json"
    path.write_text(json.dumps(values | {name: value}))
    try:
        found = records.read_record(str(path))
    except DataError:
        return
    assert found.reason(KEY) or values[name] == value


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 10**5, '{"signature": 1}', "x" * 10**5])
def test_what_is_no_record_is_told(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match="damaged"):
        records.read_record(str(tmp_path / "a.json"))
