"""Files of campaigns, the order of experiments, and what is noted of them."""

import dataclasses
import errno
import fcntl
import os
import subprocess
from collections import Counter

import numpy as np
import pytest

from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.pairing import campaign
from mpicoloc.pairing.campaign import Experiment
from mpicoloc.pairing.corun import TimedRun

THREE = """
rounds = 2
[programs.a]
command = "./a 1 2"
n_ranks = 2
[programs.b]
command = ["b", "with space"]
env = {OMP_NUM_THREADS = "1"}
[programs.c]
command = "c"
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "programs.toml"
        path.write_text(text)
        return str(path)

    return write


def test_commands_are_found_from_where_the_file_is(write, tmp_path):
    plan = campaign.read_file(write(THREE))
    assert plan.programs["a"].argv == (str(tmp_path / "a"), "1", "2")
    assert plan.programs["b"].argv == ("b", "with space")
    assert plan.programs["b"].env == (("OMP_NUM_THREADS", "1"),)
    assert plan.rounds == 2
    assert set(plan.places[0]) | set(plan.places[1]) == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = [", "is not TOML"),
        ("rounds = 3", "needs 1 to"),
        ("rounds = 1\n[programs.a]\ncommand = 'a'", "at least 2"),
        ("rounds = '3'\n[programs.a]\ncommand = 'a'", "a whole number"),
        ("turns = 3\n[programs.a]\ncommand = 'a'", "unknown key 'turns'"),
        ("[programs.a]\ncommand = 'a'\nranks = 2", "unknown key 'ranks'"),
        ("[programs.a]\ncommand = ''", "must be a string or a list of strings"),
        ("[programs.a]\ncommand = 'a'\nn_ranks = 0", "at least 1, got 0"),
        ("[programs.a]\ncommand = 'a'\nfolder = 'none'", "there is no folder"),
        ("[programs.a]\ncommand = 'a'\nenv = {A = 1}", "a table of str"),
        ("[programs.'a/b']\ncommand = 'a'", "must not contain /"),
        ("places = [[0], [100000]]\n[programs.a]\ncommand = 'a'", "processor 100000 is not among"),
        ("places = [[0]]\n[programs.a]\ncommand = 'a'", "two lists of processors"),
    ],
)
def test_mistakes_in_a_file_are_told_with_the_value(write, text, words):
    with pytest.raises(DataError, match=words):
        campaign.read_file(write(text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        campaign.read_file(str(tmp_path / "none.toml"))


def test_every_program_is_alone_and_beside_every_one_in_each_round(write):
    plan = campaign.read_file(write(THREE))
    found = campaign.experiments(plan, list("abc"), None, np.random.default_rng(1))
    for i_round in range(2):
        names = Counter(tuple(sorted(each.names)) for each in found if each.i_round == i_round)
        assert names == Counter(map(tuple, ["a", "b", "c", "aa", "ab", "ac", "bb", "bc", "cc"]))
    assert [each.i_round for each in found] == sorted(each.i_round for each in found)
    firsts = {each.i_round: each.names for each in found if set(each.names) == {"a", "b"}}
    assert firsts[0] == firsts[1][::-1]


@pytest.mark.parametrize(
    ("told", "places"),
    [
        (["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"], ((0, 1, 4, 5), (2, 3, 6, 7))),
        (["0-1", "0-1", "2-3", "2-3"], ((0, 1), (2, 3))),
        (["0-1", "0-1"], ((0,), (1,))),
        (["0"], ((0,), (0,))),
        ([None, None, None], ((0, 1), (2,))),
    ],
)
def test_places_have_no_core_in_common(tmp_path, told, places):
    for cpu, siblings in enumerate(told):
        if siblings is not None:
            (tmp_path / str(cpu)).write_text(siblings + "\n")
    assert campaign.halves(range(len(told)), f"{tmp_path}/{{}}") == places


def test_some_pairs_are_the_same_in_each_round(write):
    plan = campaign.read_file(write(THREE))
    found = campaign.experiments(plan, list("abc"), 2, np.random.default_rng(1))
    pairs = [{tuple(sorted(e.names)) for e in found if e.i_round == i and e.kind == "pair"} for i in range(2)]
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) == 2


def test_an_unknown_name(write):
    plan = campaign.read_file(write(THREE))
    with pytest.raises(UsageError, match="no program 'd'"):
        campaign.experiments(plan, ["a", "d"], None, np.random.default_rng(1))


def note(folder, plan, names, i_round=0, took_s=1.0, digests=None, env=None):
    runs = (TimedRun(names[0], 0, 1000.0, 2.0, True, "profiles/x.h5"),)
    digests = digests or {name: campaign.digest(plan.programs[name]) for name in names}
    how = campaign.how_made(plan, env or {})
    made = campaign.Done(Experiment(i_round, tuple(names)), digests, runs, took_s, how)
    campaign._note(str(folder), made)


def test_what_was_made_is_not_made_again(write, tmp_path):
    plan = campaign.read_file(write(THREE))
    wanted = campaign.experiments(plan, ["a", "b"], None, np.random.default_rng(1))
    note(tmp_path, plan, ["b", "a"], 1)
    # A campaign was killed while it wrote a line; the next one goes on.
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write('{"round": 1, "na')
    todo = campaign.missing(plan, wanted, campaign.read(str(tmp_path)), {})
    assert len(todo) == len(wanted) - 1
    note(tmp_path, plan, ["a"])
    assert [each.experiment.names for each in campaign.read(str(tmp_path))] == [("b", "a"), ("a",)]


def test_a_program_that_was_changed_is_not_mixed_with_itself(write, tmp_path):
    note(tmp_path, campaign.read_file(write(THREE)), ["a"])
    changed = campaign.read_file(write(THREE.replace("./a 1 2", "./a 1 3")))
    with pytest.raises(DataError, match=r"program 'a' has changed .*\(its command\)"):
        campaign.missing(changed, [Experiment(0, ("a",))], campaign.read(str(tmp_path)), {})


WITH_FILES = """
[programs.a]
command = "./a in.txt"
folder = "input"
[programs.b]
command = "sh {script}"
"""


def test_a_program_that_was_built_again_is_another_one(write, tmp_path):
    (tmp_path / "input").mkdir()
    files = {name: tmp_path / name for name in ("a", "script", "input/in.txt")}
    for name, path in files.items():
        path.write_text(f"#!/bin/sh\necho {name}")
        path.chmod(0o755)
    plan = campaign.read_file(write(WITH_FILES.format(script=files["script"])))
    note(tmp_path, plan, ["a", "b"])
    wanted = [Experiment(0, ("a", "b")), Experiment(1, ("a",))]
    done = campaign.read(str(tmp_path))
    for path in files.values():
        path.write_text(path.read_text())  # the same again
    assert campaign.missing(plan, wanted, done, {}) == wanted[1:]
    says = {"a": rf"'a' .*\(the file that it runs: {tmp_path}/a\)",
            "script": rf"'b' .*\(the file that it runs: .*, {tmp_path}/script\)",
            "input/in.txt": rf"'a' .*\(the files of its folder {tmp_path}/input\)"}  # fmt: skip
    for name, path in files.items():
        before = path.read_text()
        path.write_text(f"{before} # another one")
        with pytest.raises(DataError, match=says[name]):
            campaign.missing(plan, wanted, done, {})
        path.write_text(before)
    (tmp_path / "input" / "more").write_text("")
    with pytest.raises(DataError, match="files of its folder"):
        campaign.missing(plan, wanted, done, {})


def test_large_files_are_known_by_their_size_and_time(write, tmp_path, monkeypatch):
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "mesh").write_bytes(b"1234")
    plan = campaign.read_file(write(WITH_FILES.format(script="/none")))
    monkeypatch.setattr(campaign, "MAX_BYTES", 3)
    first = campaign.digest(plan.programs["a"])
    assert campaign.digest(plan.programs["a"]) == first
    os.utime(tmp_path / "input" / "mesh", (1, 1))
    now = campaign.digest(plan.programs["a"])
    assert campaign.changes(first, now, plan.programs["a"]) == [f"the files of its folder {tmp_path}/input"]


def test_a_program_that_is_built_while_a_campaign_runs_is_told(write, tmp_path):
    """Its first run does that; the others are not made."""
    path = tmp_path / "a"
    path.write_text(f"#!/bin/sh\necho '# more' >> {path}\nexit 7\n")
    path.chmod(0o755)
    plan = campaign.read_file(write("[programs.a]\ncommand = './a'\n"))
    told = []
    wanted = [Experiment(i_round, ("a",)) for i_round in range(2)]
    n_failed = campaign.make(
        plan, wanted, str(tmp_path / "found"), {}, lambda _, error: told.append(str(error))
    )
    assert n_failed == 2
    assert "ended with exit code 7" in told[0]
    assert told[1] == f"program 'a' was changed while the campaign ran (the file that it runs: {path})"


def test_a_file_that_a_run_writes_may_stand_in_its_command(write, tmp_path):
    command = f"sh /usr/bin/tool.sh -log {tmp_path}/log"
    program = campaign.read_file(write(f"[programs.a]\ncommand = {command!r}\n")).programs["a"]
    before = campaign.digest(program)
    (tmp_path / "log").write_text("step 1")
    assert campaign.changes(before, campaign.digest(program), program) == []


@pytest.mark.parametrize("command", ["python3 -u {}", "mpirun -n 2 /usr/bin/python3.11 {}"])
def test_a_script_belongs_to_its_program(write, tmp_path, command):
    script = tmp_path / "model.py"
    script.write_text("print(1)")
    program = campaign.read_file(write(f"[programs.a]\ncommand = {command.format(script)!r}\n")).programs["a"]
    before = campaign.digest(program)
    script.write_text("print(2)")
    (changed,) = campaign.changes(before, campaign.digest(program), program)
    assert changed.endswith(str(script))


def test_a_file_that_cannot_be_read_costs_its_own_experiments(write, tmp_path):
    """Root may read everything, so a file of the kernel's that gives errors."""
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "gone").symlink_to("/proc/self/mem")
    text = "".join(f"[programs.{name}]\ncommand = 'false'\nfolder = '{name}'\n" for name in "ab")
    plan = campaign.read_file(write(text))
    note(tmp_path, plan, ["a"], digests={"a": "1.2.3"})
    wanted = [Experiment(1, (name,)) for name in "ab"]
    assert campaign.missing(plan, wanted, campaign.read(str(tmp_path)), {}) == wanted
    told = []
    campaign.make(plan, wanted, str(tmp_path / "found"), {}, lambda _, error: told.append(str(error)))
    assert told[0].startswith("program 'a': ")
    assert told[0].endswith("gone cannot be read: Input/output error")
    assert "b ended with exit code 1" in told[1]


def test_one_campaign_at_a_time_in_a_folder(tmp_path):
    folder = str(tmp_path / "found")
    with campaign.alone_in(folder) as ended:
        assert ended == []
        with pytest.raises(EnvironmentFault, match=r"another campaign is running in .*found"):
            campaign.alone_in(folder).__enter__()
    with campaign.alone_in(folder):
        pass


def test_without_locks_nothing_is_ended(tmp_path, monkeypatch):
    """A process in the folder may belong to another campaign that is still running."""

    def unknown(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    env = {**os.environ, "MPICOLOC_OUT": f"{tmp_path}/profiles/solo-0-a-0-a.h5"}
    with subprocess.Popen(["sleep", "60"], env=env) as job:
        try:
            with campaign.alone_in(str(tmp_path)) as ended:
                assert ended is None
                assert job.poll() is None
        finally:
            job.kill()


def test_other_places_and_another_meter_are_not_mixed(write, tmp_path):
    plan = campaign.read_file(write(THREE))
    env, wanted = {"MPICOLOC_METER": "none"}, [Experiment(0, ("a",))]
    note(tmp_path, plan, ["a"], env=env)
    done = campaign.read(str(tmp_path))
    assert campaign.missing(plan, wanted, done, env) == []
    with pytest.raises(DataError, match="made with meter none, not auto: give another folder with --out"):
        campaign.missing(plan, wanted, done, {"MPICOLOC_METER": "auto"})
    other = dataclasses.replace(plan, places=(plan.places[0], (77,)))
    with pytest.raises(DataError, match=r"made with places .*, not .*\[77\]\]"):
        campaign.missing(other, wanted, done, env)


def test_the_time_that_is_left(write, tmp_path):
    plan = campaign.read_file(write(THREE))
    a, b, c = (Experiment(1, (name,)) for name in "abc")
    assert campaign.expected_s([a], []) is None
    for names, took_s in ((["a"], 10.0), (["b"], 40.0), (["a", "b"], 60.0)):
        note(tmp_path, plan, names, 0, took_s)
    done = campaign.read(str(tmp_path))
    assert campaign.expected_s([a, b], done) == pytest.approx(50)
    assert campaign.expected_s([Experiment(1, ("b", "a"))], done) == pytest.approx(60)
    # A pair takes 1.5 times as long as the longer program, as far as is known.
    assert campaign.expected_s([Experiment(1, ("a", "a"))], done) == pytest.approx(15)
    assert campaign.expected_s([c], done) == pytest.approx(110 / 3)
    assert campaign.expected_s([], done) == 0
    assert campaign.short_programs(done) == [
        f"{name} takes 2.00 s alone, which is too short: give it 15 times as much work" for name in "ab"
    ]


MADE = '{"round": 0, "names": ["a"], "digests": {}, "runs": [], "took_s": 1, "meter": null, '


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "null",
        "[1]",
        '{"round": 0, "names": ["a"], "digests": {}, "runs": [{"program": 1}]}',
        MADE + '"places": [1, 2]}',
        MADE + '"places": [[1]]}',
    ],
)
def test_a_damaged_note_is_told_with_its_line(tmp_path, line):
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match="line 1, is not an experiment"):
        campaign.read(str(tmp_path))
