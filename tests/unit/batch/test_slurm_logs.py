"""Logs as Slurm tells them: `sacct --parsable2`, `sacct --json` and the list of ``jobcomp/filetxt``."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.batch import inputs, log_files
from mpicoloc.errors import DataError

HEADER = "JobIDRaw|User|Partition|Submit|Eligible|Start|End|State|NNodes|NCPUS|Timelimit|JobName"
DAY = "2026-10-01T"
GOOD = (
    f"7|ann|batch|{DAY}10:00:00|{DAY}10:00:00|{DAY}10:00:10|{DAY}11:00:10|COMPLETED|2|128|1-02:00:00|lammps"
)


def read(*rows, header=HEADER, **flags):
    return log_files.parse([header, *rows, ""], "log", **flags)


def test_a_job_has_what_slurm_says():
    log, damaged = read(GOOD)
    assert damaged == ()
    assert (log.number[0], log.submit_s[0], log.run_s[0], log.limit_s[0]) == (7, 0, 3600, 26 * 3600)
    assert (log.n_nodes[0], log.n_processors[0], log.cores_per_node()) == (2, 128, 64)
    for column, name in (("user", "ann"), ("partition", "batch"), ("program", "lammps")):
        assert log.name(column, int(getattr(log, column)[0])) == name


@pytest.mark.parametrize(
    ("resources", "n_bytes"),
    [
        ("cpu=128,mem=256G,node=2", 2 * 2**30),
        ("billing=128,mem=1T", 2**33),
        ("mem=128", 2**20),
        ("cpu=1", -1),
        ("", -1),
    ],
)
def test_memory_is_told_for_each_processor(resources, n_bytes):
    log, _ = read(
        f"{resources}|{GOOD}", f"mem=1M|{GOOD.replace('7|', '8|', 1)}", header=f"AllocTRES|{HEADER}"
    )
    assert log.memory_bytes[0] == n_bytes
    assert read(GOOD)[0].memory_bytes is None


def test_the_nodes_of_a_job_are_read():
    log, _ = read(f"n[1-2]|{GOOD}", header=f"NodeList|{HEADER}")
    assert log.node_list.tolist() == ["n[1-2]"]
    assert read(GOOD)[0].node_list is None


def test_headers_that_mean_the_same():
    for old, new in (("Job", "JOB"), ("JobName", "JobName%30"), ("IDRaw", "ID"), ("IDRaw", "IDRaw%20")):
        assert read(GOOD, header=HEADER.replace(old, new))[0].limit_s[0] == 26 * 3600
    assert read(GOOD + "|", header=HEADER + "|")[0].limit_s[0] == 26 * 3600


def test_steps_repeated_lines_and_repeated_headers_are_no_jobs():
    step = GOOD.replace("7|", "7.batch|", 1)
    log, _ = read(GOOD, step, step.replace("batch", "0", 1), HEADER, GOOD)
    assert log.number.tolist() == [7]


def test_tasks_of_arrays_and_parts_of_jobs_are_jobs():
    rows = [GOOD.replace("7|", f"{word}|", 1) for word in ("12_3", "12_[4-9%2]", "13+1")]
    assert read(*rows, header=HEADER.replace("JobIDRaw", "JobID"))[0].number.tolist() == [12, 12, 13]


@pytest.mark.parametrize(
    ("start", "end"), [("Unknown", "Unknown"), ("None", "10:20:00"), ("10:05:00", "Unknown")]
)
def test_jobs_that_never_began_or_have_not_ended_are_known_as_such(start, end):
    words = GOOD.split("|")
    words[5], words[6] = (DAY + word if word[0].isdigit() else word for word in (start, end))
    log, damaged = read("|".join(words), GOOD.replace("7|", "8|", 1))
    assert not damaged
    assert inputs.ran(log).tolist() == [log.number[0] == 8, log.number[1] == 8]


def test_a_job_arrives_when_it_becomes_eligible():
    later = GOOD.replace(f"{DAY}10:00:00|{DAY}10:00:00", f"{DAY}08:00:00|{DAY}10:00:05")
    log, _ = read(later.replace("7|", "6|", 1), GOOD)
    assert log.number.tolist() == [7, 6] and log.submit_s.tolist() == [0, 5]
    # It began before it was held, released, and eligible again.
    log, _ = read(GOOD.replace(f"|{DAY}10:00:00|{DAY}10:00:10", f"|{DAY}12:00:00|{DAY}10:00:10"))
    assert log.submit_s.tolist() == [0]


@pytest.mark.parametrize(
    ("word", "limit_s"),
    [
        *(("00:05:00", 300), ("2-00:00:00", 172800), ("05:30", 330), ("UNLIMITED", 365 * 86400)),
        *(("Partition_Limit", -1), ("", -1), ("90", 5400), ("1-12", 36 * 3600), ("1-12:30", 36.5 * 3600)),
    ],
)
def test_time_limits(word, limit_s):
    assert read(GOOD.replace("1-02:00:00", word))[0].limit_s.tolist() == [limit_s]


def test_times_may_be_seconds_since_1970():
    words = GOOD.split("|")
    told = [
        str(int(datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()))
        if word.startswith(DAY)
        else word
        for word in words
    ]
    assert "1790848800" in told
    one, other = read(GOOD)[0], read("|".join(told))[0]
    assert (one.submit_s, one.run_s) == (other.submit_s, other.run_s)


@settings(max_examples=100, deadline=None)
@given(word=st.text("0123456789-T: ", max_size=19) | st.sampled_from(["now", "today", "2026-01-01", "NaT"]))
def test_times_are_the_same_one_by_one_and_all_at_once(word):
    """The second row's is of another format, so its column is read word by word."""
    words = GOOD.split("|")
    words[6] = word

    def end_of(*rows):
        try:
            log, damaged = read(*rows, skip_damaged=True)
        except DataError:
            return None
        return None if damaged else log.run_s[log.number == 7][0]

    other = GOOD.replace("7|", "8|", 1).replace(f"{DAY}11:00:10", "1790852410")
    assert end_of("|".join(words)) == end_of("|".join(words), other)


def test_names_may_hold_the_sign_between_columns_in_the_last_one():
    log, _ = read(GOOD + "|pipe")
    assert log.names["program"] == {0: "lammps|pipe"}


@pytest.mark.parametrize("end", ["", "|"])
def test_words_are_counted_as_columns_are_and_the_last_one_may_be_empty(end):
    log, damaged = read(GOOD.removesuffix("lammps") + end, header=HEADER + end)
    assert damaged == () and log.names["program"] == {0: ""}
    with pytest.raises(DataError, match=r"line 2: 2 fields between \|, but 12 in the header"):
        read("7|ann" + end, header=HEADER + end)


def test_numbers_of_1024_have_letters():
    log, _ = read(GOOD.replace("|2|128|", "|2K|64K|"))
    assert (log.n_nodes[0], log.n_processors[0]) == (2048, 65536)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("7|ann", "2 fields between |, but 12 in the header"),
        (GOOD.replace("7|", "x|", 1), "number 'x' is not a number of a job"),
        (GOOD.replace("|2|128", "|two|128"), "nodes 'two' is not a number of nodes"),
        (GOOD.replace("10:00:10", "25:00:10"), "start '2026-10-01T25:00:10' is not a time"),
        (GOOD.replace("10:00:10", "10:00"), "start '2026-10-01T10:00' is not a time"),
        (GOOD.replace("1-02:00:00", "soon"), "limit 'soon' is not a time limit"),
        (GOOD.replace("11:00:10", "10:00:00"), "it ends 10 s before it starts"),
        (GOOD.replace("10:00:10", "09:59:00"), "it starts 60 s before it was submitted"),
        (GOOD.replace(f"{DAY}10:00:00", "Unknown"), "it has no time of submission"),
    ],
)
def test_a_damaged_line_is_told_with_its_number(row, words):
    other = GOOD.replace("7|", "8|", 1)
    with pytest.raises(DataError) as caught:
        read(other, row)
    assert f"log, line 3: {words}" in str(caught.value) and "--skip-damaged" in str(caught.value)
    assert "\n" not in str(caught.value)
    log, damaged = read(other, row, skip_damaged=True)
    assert damaged == (3,) and log.number.tolist() == [8]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "log is empty: give a log in Standard Workload Format, 18 numbers a line, or the output of "),
        (["", " "], "log is empty"),
        ([GOOD], "no header with JobIDRaw"),
        (["JobID           JobName  Partition", "7   x   batch"], "no | between its columns"),
        ([HEADER.replace("Submit|", "").replace("|End", ""), GOOD], "its header lacks Submit, End"),
        ([HEADER.replace("NNodes|NCPUS|", ""), GOOD], "its header lacks NNodes"),
        ([HEADER], "no job in it"),
    ],
)
def test_what_is_no_log_of_sacct_names_the_command(lines, words):
    with pytest.raises(DataError) as caught:
        log_files.parse(lines, "log")
    assert words in str(caught.value) and log_files.COMMAND in str(caught.value)


JOBCOMP = (
    "JobId=5 UserId=ann(1001) GroupId=ann(1001) Name=my = job JobState=COMPLETED Partition=whole TimeLimit=10"
    " StartTime=2026-11-26T03:39:44 EndTime=2026-11-26T03:39:49 NodeList=n[3-4] NodeCnt=2 ProcCnt=8"
    " WorkDir=/tmp/a b ReservationName= Tres=cpu=8,node=2 Account= QOS= WcKey= Cluster=unknown"
    " SubmitTime=2026-11-26T03:39:43 EligibleTime=2026-11-26T03:39:43 ArrayJobId=5 ArrayTaskId=2"
    " DerivedExitCode=0:0 ExitCode=0:0 "
)


def test_the_list_of_jobcomp_is_a_log():
    never = (
        JOBCOMP.replace("JobId=5", "JobId=6")
        .replace("03:39:44", "03:39:49")
        .replace("NodeCnt=2", "NodeCnt=0")
    )
    log, damaged = log_files.parse([JOBCOMP, never, ""], "jobs.txt")
    assert damaged == () and log.number.tolist() == [5, 6]
    assert inputs.ran(log).tolist() == [True, False]
    assert (log.run_s[0], log.limit_s[0], log.n_nodes[0], log.n_processors[0]) == (5, 600, 2, 8)
    assert log.names["user"] == {0: "ann"} and log.names["program"] == {0: "my = job"}


def test_a_line_of_jobcomp_that_was_cut_is_told():
    cut = JOBCOMP[: JOBCOMP.index("NodeCnt")]
    with pytest.raises(DataError, match="line 2: it lacks SubmitTime, NodeCnt"):
        log_files.parse([JOBCOMP, cut], "jobs.txt")
    assert log_files.parse([JOBCOMP, cut], "jobs.txt", skip_damaged=True)[1] == (2,)


def json_job(number, limit, **fields):
    """A job of `sacct --json`: of Slurm 21.08 and 22.05, or since 23.02 if `limit` is an object."""
    newer = isinstance(limit, dict)
    start = {"start": 1010, "end": 1070, "elapsed": 60, "submission": 1000, "eligible": 1000, "limit": limit}
    job = {
        "job_id": number,
        "account": "physics",
        "allocation_nodes": 2,
        "association": {"account": "physics", "cluster": "lab", "partition": None, "user": "ann"},
        "name": "lammps",
        "partition": "batch",
        "qos": "normal",
        "required": {"CPUs": 4, "memory_per_cpu": {"set": False, "infinite": False, "number": 0}},
        "state": {"current": ["COMPLETED"] if newer else "COMPLETED", "reason": "None"},
        "steps": [{"step": {"id": f"{number}.batch"}}],
        "time": start | fields.pop("time", {}),
        "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 128}], "requested": []},
        "user": "ann",
    }
    return job | fields


def read_json(*jobs, **flags):
    text = json.dumps({"meta": {"Slurm": {"release": "22.05"}}, "errors": [], "jobs": jobs}, indent=1)
    return log_files.parse(text.split("\n"), "log.json", **flags)


def number(value, **flags):
    return {"set": True, "infinite": False, "number": value} | flags


@pytest.mark.parametrize(
    ("limit", "limit_s"),
    [
        *((90, 5400), (number(90), 5400), (None, -1), (number(0, set=False), -1)),
        *((number(0, infinite=True), 365 * 86400), (0xFFFFFFFF, 365 * 86400)),
    ],
)
def test_json_tells_what_columns_tell(limit, limit_s):
    log, damaged = read_json(json_job(7, limit))
    row = f"7|ann|batch|1000|1000|1010|1070|COMPLETED|2|128|{'UNLIMITED' if limit_s > 5400 else '90'}|lammps"
    for column in ("number", "submit_s", "run_s", "wait_s", "n_nodes", "n_processors"):
        assert getattr(log, column) == getattr(read(row)[0], column)
    assert (log.limit_s[0], damaged) == (limit_s, ())
    assert log.names["user"] == {0: "ann"} and log.names["program"] == {0: "lammps"}


def test_jobs_of_json_that_never_began_ran_on_or_have_no_allocation():
    waits = json_job(1, 9, time={"start": 0, "end": 0}, tres={}, allocation_nodes=number(0), user="")
    runs = json_job(2, 9, time={"end": 0, "eligible": 0xFFFFFFFF})
    log, _ = read_json(waits, runs, json_job(3, 9))
    assert log.number[inputs.ran(log)].tolist() == [3]
    assert log.n_processors[0] == 4 and set(log.names["user"].values()) == {"ann"}


@pytest.mark.parametrize("allocated", [5, "cpu", [3], [{"type": [], "count": 8}]])
def test_where_allocated_resources_have_another_form_those_required_count(allocated):
    log, damaged = read_json(json_job(7, 9, tres={"allocated": allocated}))
    assert (log.n_processors.tolist(), damaged) == ([4], ())


def test_what_is_wrong_in_json_is_told_by_its_place():
    early = json_job(8, 9, time={"start": 1})
    with pytest.raises(DataError, match=r"log.json, job 2: it starts 999 s before it was submitted"):
        read_json(json_job(7, 9), early)
    assert read_json(json_job(7, 9), early, skip_damaged=True)[1] == (2,)
    for text, words in (
        ('{"jobs": [{"submit_time": 1}]}', "has no `jobs`, or one without"),
        ('{"jobs": [', "is not JSON"),
    ):
        with pytest.raises(DataError, match=f"{words}.*sacct --allusers --allocations --json"):
            log_files.parse([text], "log")


JOBS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**6), st.integers(1, 3000)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=50, deadline=None)
@given(jobs=JOBS)
def test_what_is_printed_is_what_is_read(jobs):
    """Any jobs, printed as sacct prints them in any order of submission."""
    epoch = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

    def told(offset_s):
        return datetime.fromtimestamp(epoch + offset_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    rows = [
        f"{i}|u{i % 3}|p|{told(s)}|{told(s)}|{told(s + w)}|{told(s + w + r)}|COMPLETED|{n}|{n}|UNLIMITED|x"
        for i, (s, w, r, n) in enumerate(jobs, 1)
    ]
    log, _ = read(*rows)
    order = sorted(range(len(jobs)), key=lambda i: jobs[i][0])
    assert log.number.tolist() == [i + 1 for i in order]
    assert np.array_equal(log.submit_s, [jobs[i][0] - jobs[order[0]][0] for i in order])
    assert log.run_s.tolist() == [jobs[i][2] for i in order]
    assert log.n_nodes.tolist() == [jobs[i][3] for i in order]
