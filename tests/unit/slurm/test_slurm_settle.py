"""Notes of steps become records, whatever was away when the steps ended."""

import os
from dataclasses import replace

import pytest
from slurm_programs import stand_in
from slurm_step import KEY, record, squeue, squeue_script, write_note

from mpicoloc.cli.main import main
from mpicoloc.errors import Refused
from mpicoloc.profile import signature
from mpicoloc.slurm import client, records as files
from mpicoloc.slurm.records import StepNote

STEP = StepNote(11, "0", 1000, 2, 4, 1795377530.0, None)
SCRIPT = replace(STEP, step="batch", n_nodes=1, begun_unix_s=1795377523.5)


@pytest.fixture
def spool(tmp_path):
    (tmp_path / "spool" / ".steps").mkdir(parents=True)
    return tmp_path / "spool"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "site.key"
    path.write_text("c2l0ZSBrZXkgb2YgdGhlIHRlc3RzIG9ubHkuLi4uLi4=")
    path.chmod(0o600)
    return signature.KeyFile(str(path))


def told(tmp_path, monkeypatch, script=None, **changes):
    """Replace squeue by a script that reports job 11, with `changes`, or that runs `script`."""
    stand_in(tmp_path, monkeypatch, {"squeue": squeue_script(tmp_path, script, **changes)})


def left(spool, key):
    return list(files.settle_all(str(spool), key))


def records(spool):
    found = [files.read_record(str(path)) for path in sorted(spool.glob("*.json"))]
    return {sealed.record.step: sealed.record for sealed in found}


def test_a_job_that_has_ended_has_records_of_its_steps_once(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="NF")
    for note in (STEP, SCRIPT):
        write_note(spool, note)
    names = [f"{spool}/11.1795377520.{step}.json" for step in ("batch", "0")]
    assert left(spool, key) == names
    assert left(spool, key) == [] and files.note_paths(str(spool)) == []
    found = records(spool)
    assert (found["0"].n_cpus, found["0"].n_nodes, found["0"].ran_s) == (8, 2, 598.0), "to the end of the job"
    assert (found["batch"].n_cpus, found["batch"].ran_s) == (8, 605.0)
    assert found["0"].run_of("") == found["batch"].run_of("") and found["0"].profile == "11.1795377520.0.h5"


def test_a_step_whose_end_was_seen_ended_then(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CD")
    write_note(spool, replace(STEP, ended_unix_s=1795377540.5))
    left(spool, key)
    assert records(spool)["0"].ran_s == 10.5


def test_a_record_that_was_made_in_time_stays(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CD", BatchFlag="1")
    write_note(spool, STEP)
    path = spool / "11.1795377520.0.json"
    assert files.write_sealed(str(path), record(), KEY)
    before = path.read_bytes()
    assert left(spool, key) == [] and files.note_paths(str(spool)) == []
    assert path.read_bytes() == before


@pytest.mark.parametrize("state", ["R", "S", "CG"])
def test_notes_of_a_job_that_runs_or_has_an_epilog_to_come_stay(spool, key, tmp_path, monkeypatch, state):
    told(tmp_path, monkeypatch, StateCompact=state)
    path = write_note(spool, replace(STEP, ended_unix_s=1795377540.5))
    assert left(spool, key) == [] and path.exists() and not records(spool)


@pytest.mark.parametrize("state", ["PD", "R", "CD"])
def test_the_first_start_of_a_job_that_was_requeued_has_records_of_its_own(
    spool, key, tmp_path, monkeypatch, state
):
    again = {"SubmitTime": "1795377600", "StartTime": "1795377601", "EndTime": "1795377700",
             "RestartCnt": "1"}  # fmt: skip
    told(tmp_path, monkeypatch, StateCompact=state, NumCPUs="2", TimeUsed="1:39", **again)
    for note in (STEP, SCRIPT, replace(STEP, begun_unix_s=1795377602.0)):
        write_note(spool, note)
    made = {os.path.basename(path) for path in left(spool, key)}
    first = {"11.1795377523.batch.json", "11.1795377523.0.json"}
    assert made == (first | {"11.1795377600.0.json"} if state == "CD" else first)
    found = files.read_record(str(spool / "11.1795377523.0.json")).record
    script = files.read_record(str(spool / "11.1795377523.batch.json")).record
    assert (found.restarts, found.n_cpus, found.ran_s) == (0, 8, 70.0) and found.run_of("") == script.run_of(
        ""
    )
    assert (script.n_cpus, script.ran_s) == (8, 77.0)


def test_a_job_that_waits_has_no_steps_of_this_start(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="PD", SubmitTime="1795377530", RestartCnt="1")
    write_note(spool, STEP)
    assert left(spool, key) == [f"{spool}/11.1795377530.0.json"] and records(spool)["0"].restarts == 0


def test_it_has_the_name_that_records_made_in_time_have(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="PD", SubmitTime="1795377600", RestartCnt="1")
    files.write_sealed(str(spool / "11.1795377520.5.json"), replace(record(), step="5"), key)
    write_note(spool, STEP)
    assert left(spool, key) == [f"{spool}/11.1795377520.0.json"]
    assert records(spool)["0"].run_of("") == records(spool)["5"].run_of("")


@pytest.mark.parametrize(
    "changes",
    [
        {"script": "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"},
        {"StateCompact": "PD", "SubmitTime": "1795377600", "RestartCnt": "2"},
        {"StateCompact": "CD", "SubmitTime": "1795377600"},
        {"StateCompact": "CD", "UserID": "1001"},
    ],
)
def test_what_slurm_knows_no_more_is_told_and_stays(spool, key, tmp_path, monkeypatch, changes, capsys):
    told(tmp_path, monkeypatch, **changes)
    path = write_note(spool, replace(STEP, ended_unix_s=1795377590.0))
    (found,) = left(spool, key)
    assert isinstance(found, Refused)
    for words in ("step 11.0 of user 1000", "4 CPUs on the first of 2 nodes,", "19:59:50 UTC", str(path)):
        assert words in str(found)
    command = ["slurm", "settle", "--spool", str(spool), "--key-file", key.path]
    assert main(command) == 1 and path.exists() and not records(spool)
    assert "sacct -D -j 11" in capsys.readouterr().err


def test_of_a_forgotten_job_the_site_tells(spool, key, tmp_path, monkeypatch, capsys):
    stand_in(tmp_path, monkeypatch, {"scontrol": "echo ClusterName = lab"})
    later = replace(STEP, step="1", begun_unix_s=1795377700.0)
    for note in (STEP, replace(SCRIPT, ended_unix_s=1795377590.5), later):
        write_note(spool, note)
    command = ["slurm", "settle", "--spool", str(spool), "--key-file", key.path, "--job", "11", "--submitted"]
    assert main([*command, "1795379999"]) == main([*command, "noon"]) == 2 and not records(spool)
    assert main([*command, "1795377520"]) == 2 and set(records(spool)) == {"batch"}
    assert "the end of step 11.0 is unknown" in capsys.readouterr().err
    assert main([*command, "1795377520", "--ended", "1795377600", "--account", "chem"]) == 0
    found = records(spool)
    assert (found["0"].n_cpus, found["0"].ran_s, found["0"].account) == (8, 70.0, "chem")
    assert found["batch"].ran_s == 67.5 and found["batch"].run_of("") == found["0"].run_of("")
    assert [files.read_note(path) for path in files.note_paths(str(spool))] == [later], "of the next start"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema_version": 1}', "x" * 10**5, '{"schema_version": 2}']
)
def test_a_damaged_note_is_told_and_keeps_no_other_from_its_record(spool, key, tmp_path, monkeypatch, text):
    told(tmp_path, monkeypatch, StateCompact="CD")
    (spool / ".steps" / "10.1.0.json").write_text(text)
    os.symlink("/etc/passwd", spool / ".steps" / "12.1.0.json")
    write_note(spool, STEP)
    command = ["slurm", "settle", "--spool", str(spool), "--key-file", key.path]
    assert main(command) == 4, "of a link nothing is read"
    assert "0" in records(spool)
    os.unlink(spool / ".steps" / "12.1.0.json")
    assert main(command) == 3


GONE = "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"


@pytest.mark.parametrize("script", [None, GONE])
def test_a_note_that_comes_late_goes_where_its_step_has_a_record(spool, key, tmp_path, monkeypatch, script):
    """Its writer hung. Steps of the next start have the same number."""
    told(tmp_path, monkeypatch, StateCompact="CD")
    for _ in range(2):
        for note in (STEP, SCRIPT):
            write_note(spool, note)
        made = left(spool, key)
        told(tmp_path, monkeypatch, script, StateCompact="R")
    assert made == [] and files.note_paths(str(spool)) == []
    before = records(spool)
    stand_in(tmp_path, monkeypatch, {"scontrol": "echo ClusterName = lab"})
    other = write_note(spool, replace(STEP, begun_unix_s=1795379000.0))
    write_note(spool, STEP)
    command = ["slurm", "settle", "--spool", str(spool), "--key-file", key.path, "--job", "11"]
    assert main([*command, "--submitted", "1795377520", "--ended", "1795378999"]) == 2
    assert files.note_paths(str(spool)) == [str(other)] and records(spool) == before


def test_a_record_that_is_not_the_sites_settles_nothing(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, GONE)
    path = write_note(spool, STEP)
    (spool / "11.1795377520.1.json").write_text("damaged")
    other = replace(record(), uid=1000, step="0", step_start_unix_s=STEP.begun_unix_s)
    assert files.write_sealed(str(spool / "11.1795377520.0.json"), other, b"another key of 32 bytes or more.")
    assert [type(found) for found in left(spool, key)] == [Refused] and path.exists()


def test_a_spool_that_is_not_there_and_a_controller_that_is_away_are_told(
    spool, key, tmp_path, monkeypatch, capsys
):
    assert main(["slurm", "settle", "--spool", f"{spool}/x", "--key-file", key.path]) == 4
    told(tmp_path, monkeypatch, "echo Unable to contact slurm controller >&2; exit 1")
    path = write_note(spool, STEP)
    assert main(["slurm", "settle", "--spool", str(spool), "--key-file", key.path]) == 4
    assert "slurmctld does not answer" in capsys.readouterr().err and path.exists()


def test_the_epilog_makes_what_is_missing_of_its_own_start_only(spool, key):
    others = (replace(STEP, begun_unix_s=1795370000.0), replace(STEP, job=111),
              replace(STEP, uid=7, step="3"))  # fmt: skip
    for note in (STEP, *others):
        write_note(spool, note)
    start = client.parse_start(squeue(StateCompact="CG", TimeUsed="1:00"), 11, 1000)
    assert list(files.settle_job(str(spool), start, key, 1795377585.0)) == [
        f"{spool}/11.1795377520.{step}.json" for step in ("0", "allocation")
    ]
    assert (records(spool)["0"].ran_s, records(spool)["allocation"].ran_s) == (55.0, 61.0)
    assert len(files.note_paths(str(spool))) == len(others)


def closed(spool, key):
    """File names of the records that the epilog of job 11 writes."""
    start = client.query_start(11, 1000)
    return [os.path.basename(str(one)) for one in files.settle_job(str(spool), start, key, 1795378200.0)]


def test_a_job_without_a_script_has_a_record_of_its_own(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CG")
    assert closed(spool, key) == [], "none of its steps is measured"
    write_note(spool, replace(STEP, ended_unix_s=1795377540.5))
    assert closed(spool, key) == [f"11.1795377520.{step}.json" for step in ("0", "allocation")]
    assert closed(spool, key) == []
    whole, step = (records(spool)[name] for name in ("allocation", "0"))
    assert (whole.n_nodes, whole.n_cpus, whole.ran_s, whole.job_ran_s) == (2, 8, 605.0, 605.0)
    assert step.ran_s == 10.5 and whole.is_script and whole.run_of("") == step.run_of("")


@pytest.mark.parametrize(("notes", "batch_flag"), [((STEP, SCRIPT), "0"), ((STEP,), "1")])
def test_a_job_with_a_script_has_no_other_record(spool, key, tmp_path, monkeypatch, notes, batch_flag):
    """Also one whose script is not measured: it pays for its steps alone."""
    told(tmp_path, monkeypatch, StateCompact="CG", BatchFlag=batch_flag)
    for note in notes:
        write_note(spool, note)
    assert len(closed(spool, key)) == len(notes) and set(records(spool)) == {note.step for note in notes}
    assert closed(spool, key) == []


def test_records_of_an_earlier_job_of_that_number_make_none(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CG")
    path = spool / "11.1795300000.0.json"
    assert files.write_sealed(str(path), record(), KEY) and closed(spool, key) == []


def test_a_job_whose_end_slurm_does_not_tell_has_no_wrong_one(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CG", EndTime="Unknown")
    write_note(spool, STEP)
    made, error = closed(spool, key)
    assert made == "11.1795377520.0.json" and "end time of job 11" in error


def kept(spool, step="0", job=11):
    """The record of a step that was made when it ended, of a job that has no script."""
    assert files.write_sealed(f"{spool}/{job}.1795377520.{step}.json", replace(record(), step=step), KEY)
    files.mark_job(str(spool), job)


def test_a_job_whose_epilog_got_no_answer_has_its_own_record_later(spool, key, tmp_path, monkeypatch):
    kept(spool)
    for state in ("R", "CG"):
        told(tmp_path, monkeypatch, StateCompact=state)
        assert left(spool, key) == [] and files.marked_jobs(str(spool)) == [11], "its epilog may yet come"
    told(tmp_path, monkeypatch, StateCompact="CD")
    path = spool / "11.1795377520.allocation.json"
    assert left(spool, key) == [str(path)] and files.marked_jobs(str(spool)) == []
    late = path.read_bytes()
    path.unlink()
    assert closed(spool, key) == [path.name] and path.read_bytes() == late, "as the epilog makes it"


def test_so_has_one_whose_first_node_died(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="NF")
    write_note(spool, STEP)
    assert left(spool, key) == [f"{spool}/11.1795377520.{step}.json" for step in ("0", "allocation")]
    assert left(spool, key) == [] and files.marked_jobs(str(spool)) == []


def test_slurm_is_asked_once_for_all_jobs(spool, key, tmp_path, monkeypatch):
    told(tmp_path, monkeypatch, StateCompact="CD", JobID="99")
    assert left(spool, key) == [] and not (tmp_path / "asked").exists()
    for job in range(20):
        kept(spool, job=job)
    left(spool, key)
    assert (tmp_path / "asked").read_text() == "\n"


def test_a_record_that_nobody_can_make_any_more_is_told(spool, key, tmp_path, monkeypatch, capsys):
    kept(spool)
    command = ["slurm", "settle", "--spool", str(spool), "--key-file", key.path]
    told(tmp_path, monkeypatch, StateCompact="CD", EndTime="Unknown")
    assert main(command) == 3 and "Slurm gives no end time of job 11" in capsys.readouterr().err
    told(tmp_path, monkeypatch, JobID="12")
    assert main(command) == 1
    err = capsys.readouterr().err
    assert "Slurm has forgotten job 11" in err and "sacct -D -j 11 " in err
    os.unlink(files.mark_path(str(spool), 11))
    assert f"remove {spool}/.steps/11.allocation" in err and main(command) == 0


def test_a_job_that_slurm_forgets_meanwhile_is_told_next_time(spool, key, tmp_path, monkeypatch):
    kept(spool)
    told(tmp_path, monkeypatch, GONE, StateCompact="CD")
    assert left(spool, key) == [] and files.marked_jobs(str(spool)) == [11]
