"""mpicoloc batch --sweep and --out: rows are those of single runs, and tables hold together."""

import json
from pathlib import Path

import pandas
import pytest

from mpicoloc.cli import main

PAIRS = """\
target,co_runner,slowdown,low,high
a,a,1.1,1.05,1.2
a,b,1.3,1.2,1.5
b,a,1.2,1.1,1.4
b,b,1.6,1.4,1.9
"""
TREE = ("--topology", "XGFT(2;2,2;1,2)")
SHARING = ("--slowdowns", "pairs.csv", "--seeds", "1")


def log(run_s):
    """Eight jobs of two nodes on four; the last waits for all of the machine."""
    head = "; MaxNodes: 4\n; MaxProcs: 32\n"
    return head + "".join(
        f"{i} {i} -1 {run_s * i} {32 if i == 8 else 16} -1 -1 -1 {2 * run_s * i}"
        f" -1 1 {i % 2} 1 {i % 3} -1 -1 -1 -1\n"
        for i in range(1, 9)
    )  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.swf").write_text(log(100))
    (tmp_path / "two.swf").write_text(log(70) + "9 9 -1 0 8 -1 -1 -1 9 -1 0 1 1 1 -1 -1 -1 -1\n")
    (tmp_path / "pairs.csv").write_text(PAIRS)
    return tmp_path


def rows(capsys, *words, code=0):
    assert main.main(["batch", *words, *TREE, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    for row in told if isinstance(told, list) else [told]:
        del row["wall_s"]
    return told


def told(capsys, *words):
    """The exit code, and the one line of an error."""
    code = main.main(["batch", *words])
    (line,) = capsys.readouterr().err.splitlines()
    return code, line


@pytest.mark.timeout(120)
def test_a_sweep_has_the_rows_of_single_runs_and_makes_none_twice(capsys):
    sweep = ("--sweep", "allocation", "first-available", "exclusive", "--sweep", "order", "fcfs", "easy")
    words = ("one.swf", "two.swf", "--out", "sweep", *sweep, "--processes", "2")
    found = rows(capsys, *words)
    names = [tuple(row["settings"].values()) for row in found]
    assert names == [
        (path, allocation, order)
        for path in ("one.swf", "two.swf")
        for allocation in ("first-available", "exclusive")
        for order in ("fcfs", "easy")
    ]
    for row in found:
        settings, notes = row.pop("settings"), row.pop("notes")
        alone = rows(
            capsys, settings["log"], "--order", settings["order"], "--allocation", settings["allocation"]
        )
        assert row == alone
        assert [note.count("never ran") for note in notes] == [1] * (settings["log"] == "two.swf")
    noted = Path("sweep/rows.jsonl").read_text()
    assert noted.count("\n") == 8
    more = rows(capsys, *words, "--sweep", "estimates", "user", "perfect")
    assert len(more) == 16 and {row["settings"]["estimates"] for row in more} == {"user", "perfect"}
    after = Path("sweep/rows.jsonl").read_text()
    assert after.startswith(noted) and after.count("\n") == 16, "user is the default"
    table = pandas.read_parquet("sweep/sweep.parquet")
    assert table["completion_s"].tolist() == [row["completion_s"] for row in more]
    assert table["pairs_level_1"].tolist() == [row["pairs_by_level"]["1"] for row in more]
    assert main.main(["batch", *words, *TREE]) == 0
    out, err = capsys.readouterr()
    assert "two.swf" in out and "exclusive" in out and err.count("never ran") == 1
    assert Path("sweep/rows.jsonl").read_text() == after


@pytest.mark.timeout(120)
def test_other_contents_of_a_log_are_other_rows(capsys):
    words = ("one.swf", "--out", "sweep", "--sweep", "order", "fcfs", "--processes", "1")
    (before,) = rows(capsys, *words)
    Path("one.swf").write_text(log(300))
    (after,) = rows(capsys, *words)
    assert after["completion_s"] > 2 * before["completion_s"]
    assert Path("sweep/rows.jsonl").read_text().count("\n") == 2


@pytest.mark.timeout(120)
def test_sharing_policies_and_seeds(capsys):
    sweep = ("--sweep", "sharing", "none", "none,blind", "--sweep", "seed", "0", "1", "--processes", "1")
    found = rows(capsys, "one.swf", "--out", "sweep", *SHARING, *sweep)
    assert [("policies" in row, row["settings"]["seed"]) for row in found] == [
        (False, "0"), (False, "1"), (True, "0"), (True, "1"),
    ]  # fmt: skip
    assert Path("sweep/rows.jsonl").read_text().count("\n") == 3, "without sharing no seed matters"
    for row in found[2:]:
        seed = row.pop("settings")["seed"]
        del row["notes"]
        assert row == rows(capsys, "one.swf", *SHARING, "--sharing", "none,blind", "--seed", seed)
    table = pandas.read_parquet("sweep/policies.parquet")
    saved = table[(table["figure"] == "saved_frac") & (table["sharing"] == "blind")]
    assert saved["value"].tolist() == [row["policies"][1]["saved_frac"]["value"] for row in found[2:]]
    rows(capsys, "one.swf", "--out", "sweep", "--sweep", "order", "easy", "--processes", "1")
    assert not Path("sweep/policies.parquet").exists(), "it would be of other rows"


@pytest.mark.parametrize(
    ("flag", "values", "code", "what"),
    [
        ("allocation", ("exclusive", "last"), 2, "allocation last: allocation 'last' is unknown"),
        ("order", ("easy", "lifo"), 2, "order lifo: order 'lifo' is unknown"),
        ("sharing", ("none", "half"), 2, "sharing half: sharing 'half' is unknown"),
        ("seed", ("0", "x"), 2, "seed x: --seed must be"),
        ("topology", (TREE[1], "XGFT(1;3;1)"), 3, "topology XGFT(1;3;1): job 8 needs 4 nodes"),
        ("topology", (TREE[1], "no-file"), 2, "topology no-file: "),
        ("cores-per-node", ("8", "0"), 2, "cores-per-node 0: --cores-per-node must be"),
        ("estimates", ("user", "good"), 2, "estimates good: estimates must be"),
        ("slowdowns", ("pairs.csv", "no.csv"), 2, "slowdowns no.csv: "),
        ("mix", ("a=1", "c=1"), 2, "mix c=1: --mix: program c has no slowdowns"),
    ],
)
def test_a_sweep_is_refused_before_its_first_row_for_what_its_last_one_lacks(
    capsys, flag, values, code, what
):
    tree = () if flag == "topology" else TREE
    sharing = () if flag == "sharing" else ("--sharing", "blind", "--seeds", "1")
    pairs = () if flag == "slowdowns" else ("--slowdowns", "pairs.csv")
    words = ("one.swf", "--out", "sweep", "--processes", "1", *tree, *sharing, *pairs)
    found, line = told(capsys, *words, "--sweep", flag, *values)
    assert found == code and what in line
    assert not list(Path().glob("sweep/*"))


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("one.swf", "--sweep", "order", "easy"), 2, "give --out"),
        (("one.swf", "two.swf"), 2, "give --out"),
        (("one.swf", "one.swf", "--out", "x"), 2, "one.swf appears twice"),
        (("one.swf", "no.swf", "--out", "x"), 3, "log no.swf: cannot read no.swf"),
        (("one.swf", "--sweep", "out", "x", "--out", "x"), 2, "this flag cannot be swept"),
        (("one.swf", "--sweep", "order", "--out", "x"), 2, "has no values"),
        (("one.swf", "--sweep", "order", "easy", "--sweep", "order", "fcfs", "--out", "x"), 2, "twice"),
        (("one.swf", "--order", "fcfs", "--sweep", "order", "easy", "--out", "x"), 2, "has a fixed value"),
        (("one.swf", "--sweep", "order", "easy", "--page", "p", "--out", "x"), 2, "to a single simulation"),
        (
            ("one.swf", "--sweep", "seed", "1", "--out", "x"),
            2,
            "seed 1: --seed applies only to jobs that share",
        ),
        (("one.swf", "--processes", "2"), 2, "only to --sweep"),
        (("one.swf", "--out", "."), 2, "exists already"),
        (("one.swf", "--out", "no/such"), 2, "there is no folder"),
    ],
)
def test_a_wrong_call_is_told(capsys, words, code, what):
    found, line = told(capsys, *words, *TREE)
    assert found == code and what in line
    assert not Path("x/rows.jsonl").exists()


def test_the_tables_of_one_simulation(capsys):
    told = rows(capsys, "one.swf", "--out", "tables")
    jobs = pandas.read_parquet("tables/jobs.parquet")
    assert jobs["job"].tolist() == list(range(1, 9)) and set(jobs["sharing"]) == {"none"}
    assert jobs["wait_s"].mean() == pytest.approx(told["wait_mean_s"])
    assert (jobs["end_s"] - jobs["begin_s"]).tolist() == jobs["run_alone_s"].tolist()
    assert jobs["nodes"].tolist()[0] == "0-1" and jobs["nodes"].tolist()[7] == "0-3"
    assert not jobs["beside_jobs"].map(len).any()
    events = pandas.read_parquet("tables/events.parquet")
    steps_s = events["time_s"].diff().iloc[1:].to_numpy()
    busy_s = (events["n_busy_nodes"].iloc[:-1].to_numpy() * steps_s).sum()
    assert busy_s == (jobs["run_alone_s"] * jobs["n_nodes"]).sum()
    assert events.iloc[-1][["n_busy_nodes", "n_waiting_jobs", "n_running_jobs"]].tolist() == [0, 0, 0]
    (run,) = pandas.read_parquet("tables/runs.parquet").to_dict("records")
    assert run["completion_s"] == told["completion_s"]
    assert run["pairs_level_1"] == told["pairs_by_level"]["1"]


def test_the_tables_of_policies_tell_who_was_beside_whom(capsys):
    words = ("--slowdowns", "pairs.csv", "--seeds", "2", "--sharing", "none,blind", "--out", "tables")
    told = rows(capsys, "one.swf", *words)
    jobs = pandas.read_parquet("tables/jobs.parquet")
    assert jobs.groupby(["sharing", "seed"], sort=False).size().to_dict() == {
        ("none", 0): 8, ("blind", 0): 8, ("blind", 1): 8,
    }  # fmt: skip
    assert set(jobs["program"][jobs["sharing"] == "blind"]) <= {"a", "b"}
    blind = jobs[(jobs["sharing"] == "blind") & (jobs["seed"] == 0)]
    pairs = {
        (job, other) for job, row in zip(blind["job"], blind["beside_jobs"], strict=True) for other in row
    }
    assert pairs and pairs == {(other, job) for job, other in pairs}
    alone = blind["beside_jobs"].map(len) == 0
    assert (blind["slowdown"][alone] == 1).all()
    policies = pandas.read_parquet("tables/policies.parquet").set_index(["sharing", "figure"])
    saved = told["policies"][1]["saved_frac"]
    assert policies.loc[("blind", "saved_frac")][["value", "low", "high", "n"]].tolist() == [
        saved["value"], saved["low"], saved["high"], saved["n"],
    ]  # fmt: skip
    assert len(pandas.read_parquet("tables/runs.parquet")) == 3
