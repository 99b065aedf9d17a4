"""Files of campaigns, the order of experiments, and what is noted of them."""

import os
from collections import Counter

import numpy as np
import pytest

from mpicoloc.errors import DataError, UsageError
from mpicoloc.model.corun import TimedRun
from mpicoloc.run import campaign, campaign_file
from mpicoloc.run.campaign_file import Experiment

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
    plan = campaign_file.read(write(THREE))
    assert plan.programs["a"].argv == (str(tmp_path / "a"), "1", "2")
    assert plan.programs["b"].argv == ("b", "with space")
    assert plan.programs["b"].env == (("OMP_NUM_THREADS", "1"),)
    assert plan.rounds == 2
    assert set(plan.places[0]) | set(plan.places[1]) == os.sched_getaffinity(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = [", "is no TOML"),
        ("rounds = 3", "needs 1 to"),
        ("rounds = 1\n[programs.a]\ncommand = 'a'", "at least 2"),
        ("rounds = '3'\n[programs.a]\ncommand = 'a'", "a whole number"),
        ("turns = 3\n[programs.a]\ncommand = 'a'", "unknown key 'turns'"),
        ("[programs.a]\ncommand = 'a'\nranks = 2", "unknown key 'ranks'"),
        ("[programs.a]\ncommand = ''", "must be a text or a list of words"),
        ("[programs.a]\ncommand = 'a'\nn_ranks = 0", "at least 1, got 0"),
        ("[programs.a]\ncommand = 'a'\nfolder = 'none'", "there is no folder"),
        ("[programs.a]\ncommand = 'a'\nenv = {A = 1}", "a table of str"),
        ("[programs.'a/b']\ncommand = 'a'", "without /"),
        ("places = [[0], [100000]]\n[programs.a]\ncommand = 'a'", "processor 100000 is none of"),
        ("places = [[0]]\n[programs.a]\ncommand = 'a'", "two lists of processors"),
    ],
)
def test_mistakes_in_a_file_are_told_with_the_value(write, text, words):
    with pytest.raises(DataError, match=words):
        campaign_file.read(write(text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        campaign_file.read(str(tmp_path / "none.toml"))


def test_every_program_is_alone_and_beside_every_one_in_each_round(write):
    plan = campaign_file.read(write(THREE))
    found = campaign_file.experiments(plan, list("abc"), None, np.random.default_rng(1))
    for i_round in range(2):
        names = Counter(tuple(sorted(each.names)) for each in found if each.i_round == i_round)
        assert names == Counter(map(tuple, ["a", "b", "c", "aa", "ab", "ac", "bb", "bc", "cc"]))
    assert [each.i_round for each in found] == sorted(each.i_round for each in found)
    firsts = {each.i_round: each.names for each in found if set(each.names) == {"a", "b"}}
    assert firsts[0] == firsts[1][::-1]


def test_some_pairs_are_the_same_in_each_round(write):
    plan = campaign_file.read(write(THREE))
    found = campaign_file.experiments(plan, list("abc"), 2, np.random.default_rng(1))
    pairs = [{tuple(sorted(e.names)) for e in found if e.i_round == i and e.kind == "pair"} for i in range(2)]
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) == 2


def test_an_unknown_name(write):
    plan = campaign_file.read(write(THREE))
    with pytest.raises(UsageError, match="no program 'd'"):
        campaign_file.experiments(plan, ["a", "d"], None, np.random.default_rng(1))


def note(folder, plan, names, i_round=0):
    runs = (TimedRun(names[0], 0, 1000.0, 2.0, True, "profiles/x.h5"),)
    digests = {name: plan.programs[name].digest for name in names}
    campaign._note(str(folder), campaign.Done(Experiment(i_round, tuple(names)), digests, runs))


def test_what_was_made_is_not_made_again(write, tmp_path):
    plan = campaign_file.read(write(THREE))
    wanted = campaign_file.experiments(plan, ["a", "b"], None, np.random.default_rng(1))
    note(tmp_path, plan, ["b", "a"], 1)
    # A campaign was killed while it wrote a line; the next one goes on.
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write('{"round": 1, "na')
    todo = campaign.missing(plan, wanted, campaign.read(str(tmp_path)))
    assert len(todo) == len(wanted) - 1
    note(tmp_path, plan, ["a"])
    assert [each.experiment.names for each in campaign.read(str(tmp_path))] == [("b", "a"), ("a",)]


def test_a_program_that_was_changed_is_not_mixed_with_itself(write, tmp_path):
    note(tmp_path, campaign_file.read(write(THREE)), ["a"])
    changed = campaign_file.read(write(THREE.replace("./a 1 2", "./a 1 3")))
    with pytest.raises(DataError, match="program 'a' was changed"):
        campaign.missing(changed, [Experiment(0, ("a",))], campaign.read(str(tmp_path)))


@pytest.mark.parametrize(
    "line", ["{}", "null", "[1]", '{"round": 0, "names": ["a"], "digests": {}, "runs": [{"program": 1}]}']
)
def test_a_damaged_note_is_told_with_its_line(tmp_path, line):
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match="line 1, is no experiment"):
        campaign.read(str(tmp_path))
