"""mpicoloc batch --sharing: answers, the page, one clear line for what is wrong."""

import json
from pathlib import Path

import pytest
from json_output import documented, without_meaning

from mpicoloc.cli import main

PAIRS = """\
target,co_runner,slowdown,low,high
lammps,lammps,2.3,2.1,2.5
lammps,heat2d,1.15,1.1,1.2
heat2d,lammps,1.3,1.25,1.4
heat2d,heat2d,1.05,1.0,1.1
"""
CURVES = "program,score,level_1,level_4,level_8\nlu,4.6,1.02,1.18,1.42\nep,0.4,1,1.01,1.02\n"
LOG = "; MaxNodes: 4\n; MaxProcs: 32\n" + "".join(
    f"{i} {i} -1 {100 * i} 16 -1 -1 16 {200 * i} -1 1 {i % 2} 1 {i % 3} -1 -1 -1 -1\n" for i in range(1, 9)
)
CORES = ("--sharing", "cores", "--slowdowns", "pairs.csv")
BLIND = ("--sharing", "blind", "--slowdowns", "pairs.csv")
FULL = ("log.swf", "--topology", "XGFT(2;2,2;1,2)")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "curves.csv").write_text(CURVES)
    (tmp_path / "log.swf").write_text(LOG)
    (tmp_path / "programs.csv").write_text("executable,program\n0,lammps\n1,heat2d\n*,heat2d\n")
    (tmp_path / "some.csv").write_text("executable,program\n0,lammps\n1,heat2d\n")
    (tmp_path / "other.csv").write_text("executable,program\n*,gromacs\n")
    return tmp_path


def answer(capsys, *words):
    assert main.main(["batch", *FULL, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    code = main.main(["batch", *FULL, *words])
    (line,) = [row for row in capsys.readouterr().err.splitlines() if "--" in row or ":" in row][-1:]
    return code, line


def test_the_keys_that_other_programs_rely_on_are_those_of_the_last_policy(capsys):
    told = answer(capsys, "--sharing", "none,model", "--slowdowns", "pairs.csv", "--programs", "programs.csv")
    alone = answer(capsys)
    assert alone.keys() <= told.keys()
    none, model = told["policies"]
    wanted = documented("batch")
    assert list(told) == list(wanted) and list(model) == list(wanted["policies"][0])
    assert not without_meaning("batch", told)
    assert told["completion_s"] < alone["completion_s"]
    assert none["completion_s"]["value"] == alone["completion_s"]
    assert none["saved_frac"] is None
    assert model["saved_frac"]["n"] == 5
    assert model["charged_su"]["fair"]["value"] <= model["charged_su"]["runtime"]["value"]
    users = {row["user"]: row["su"] for row in model["users_su"]["fair"]}
    assert sum(users.values()) == pytest.approx(model["charged_su"]["fair"]["value"])


def test_jobs_by_cores_need_slowdowns_of_that_layout(capsys):
    rows = PAIRS.strip().split("\n")
    (Path() / "turns.csv").write_text("\n".join([rows[0] + ",layout", *(f"{row},turns" for row in rows[1:])]))
    for name in ("cores", "spread-model"):
        code, line = refused(capsys, "--sharing", name, "--slowdowns", "turns.csv")
        assert code == 2 and "turns.csv is of the layout turns" in line
    assert answer(capsys, "--sharing", "blind", "--slowdowns", "turns.csv", "--seeds", "1")["policies"]
    Path("cores.csv").write_text(Path("turns.csv").read_text().replace(",turns", ",cores"))
    for name in ("blind", "cores,service"):
        code, line = refused(capsys, "--sharing", name, "--slowdowns", "cores.csv")
        assert code == 2 and "or policies of that layout (turns: blind" in line


def test_without_a_topology_the_nodes_of_the_log_are_on_one_switch(capsys):
    words = ("--sharing", "none,cores,spread-model", "--slowdowns", "pairs.csv", "--seeds", "1", "--json")
    assert main.main(["batch", "log.swf", *words]) == 0
    made = capsys.readouterr()
    assert "without --topology: 4 nodes on one switch" in made.err
    told = [row["completion_s"] for row in json.loads(made.out)["policies"]]
    flat = answer(capsys, "--topology", "XGFT(1;4;1)", *words[:-1])
    assert told == [row["completion_s"] for row in flat["policies"]]
    assert main.main(["batch", "log.swf", "--cores-per-node", "16", *words]) == 0
    assert "without --topology: 2 nodes on one switch" in capsys.readouterr().err
    Path("log.swf").write_text(LOG.partition("32\n")[2])
    assert main.main(["batch", "log.swf", *words]) == 2
    assert "--topology is missing: give a notation" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cores", "spread"])
def test_jobs_larger_than_their_nodes_are_refused_or_left_out(capsys, name):
    Path("few.sacct").write_text(
        "JobIDRaw|User|Submit|Start|End|State|NNodes|NCPUS|Timelimit|JobName\n"
        + "".join(f"{i}|ann|10|20|30|COMPLETED|1|{n}|00:01:00|lammps\n" for i, n in ((1, 16), (2, 4)))
    )
    words = ["few.sacct", *FULL[1:], "--cores-per-node", "8", "--sharing", name, "--slowdowns", "pairs.csv"]
    assert main.main(["batch", *words]) == 3
    assert "job 1 needs 16 processors, too many for 1 node of 8 cores" in capsys.readouterr().err
    assert main.main(["batch", *words, "--skip-larger", "--memory-per-node", "1GiB", "--json"]) == 0
    made = capsys.readouterr()
    assert json.loads(made.out)["n_jobs"] == 1
    assert "left out 1 job larger than the nodes that it gets" in made.err
    assert "few.sacct has no memory of jobs, so --memory-per-node limits nothing" in made.err


def test_the_same_seed_is_the_same_answer(capsys):
    words = ("--sharing", "model", "--slowdowns", "pairs.csv", "--seeds", "2")
    told = [answer(capsys, *words, "--seed", seed) for seed in ("0", "0", "7")]
    for one in told:
        del one["wall_s"]
    assert told[0] == told[1] != told[2]


def test_nothing_random_is_one_run_without_an_interval(capsys):
    (Path() / "exact.csv").write_text("target,co_runner,slowdown\na,a,1.25\n")
    (Path() / "a.csv").write_text("executable,program\n*,a\n")
    told = answer(capsys, "--sharing", "model", "--slowdowns", "exact.csv", "--programs", "a.csv")
    assert told["n_seeds"] == 1
    assert told["policies"][0]["completion_s"]["method"] == "one seed"


@pytest.mark.parametrize("sharing", ["blind", "model", "service"])
def test_curves_serve_in_place_of_pairs(capsys, sharing):
    told = answer(
        capsys, "--sharing", sharing, "--curves", "curves.csv", "--seeds", "2", "--mix", "lu=3,ep=1"
    )
    assert 1 <= told["policies"][0]["slowdown_mean"]["value"] < 1.42


def test_the_page_and_the_sentence(capsys):
    words = ("--sharing", "none,blind,model", "--slowdowns", "pairs.csv", "--pack", "--page", "out.html")
    assert main.main(["batch", *FULL, *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Sharing by model would have saved" in printed
    assert "of this machine, 95 % interval" in printed
    text = Path("out.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "log.swf" in text


def test_jobs_share_nodes_by_cores_or_spread(capsys):
    """Jobs of half a node each: by cores they fill nodes, and pay for their cores."""
    Path("log.swf").write_text(LOG.replace(" 16 -1 -1 16 ", " 4 -1 -1 4 "))
    names = ["none", "cores", "cores-model", "spread", "spread-model"]
    words = ("--sharing", ",".join(names), "--programs", "programs.csv", "--seeds", "1", "--out", "tables")
    told = answer(capsys, *words, "--slowdowns", "pairs.csv", "--page", "out.html")
    found = {row["sharing"]: row for row in told["policies"]}
    assert list(found) == names
    assert all(row["shared_frac"]["value"] > 0 for row in told["policies"][1:])
    assert found["cores"]["completion_s"]["value"] < found["none"]["completion_s"]["value"]
    assert found["cores"]["charged_su"]["runtime"]["value"] < found["none"]["charged_su"]["runtime"]["value"]
    losses = [found[name]["lost_node_hours"]["value"] for name in ("cores-model", "cores")]
    assert losses == sorted(losses)
    assert found["spread"]["slowdown_mean"]["value"] < 1


def test_a_page_without_sharing(capsys):
    assert main.main(["batch", *FULL, "--page", "out.html", "--order", "conservative"]) == 0
    assert '"name":"none"' in Path("out.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--sharing", "half"), 2, "sharing 'half' is unknown: give one or more of none, blind"),
        (("--sharing", "model"), 2, "give --slowdowns FILE or --curves FILE"),
        (("--sharing", "model", "--slowdowns", "pairs.csv", "--curves", "curves.csv"), 2, "give --slowdowns"),
        (("--pack",), 2, "--pack applies only to jobs that share nodes"),
        (("--slowdowns", "pairs.csv"), 2, "--slowdowns applies only to jobs that share nodes"),
        (("--seed", "3"), 2, "--seed applies only to jobs that share nodes"),
        (("--rate-su", "9"), 2, "--rate-su applies only to jobs that share nodes"),
        ((*BLIND, "--order", "priority"), 2, "orders fcfs and easy"),
        (("--sharing", "blind", "--slowdowns", "none.csv"), 2, "none.csv cannot be read"),
        ((*BLIND, "--mix", "cg=1"), 2, "program cg has no slowdowns"),
        ((*BLIND, "--seeds", "0"), 2, "--seeds"),
        ((*BLIND, "--rate-su", "x"), 2, "--rate-su"),
        ((*BLIND, "--pricing", "dear"), 2, "unknown pricing 'dear'"),
        ((*BLIND, "--programs", "some.csv"), 3, "executable 2 of 3 jobs"),
        ((*BLIND, "--programs", "other.csv"), 3, "gromacs x1 beside gromacs x1 was not measured"),
        (
            (*BLIND, "--programs", "programs.csv", "--mix", "lammps=1"),
            2,
            "give only one",
        ),
        (("--page", "no/such/folder.html"), 2, "there is no folder"),
        ((*CORES, "--allocation", "exclusive"), 2, "exclusive chooses whole nodes"),
        ((*CORES, "--pack"), 2, "--pack does not work with --sharing cores"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(capsys, words, code, said):
    found, line = refused(capsys, *words)
    assert found == code
    assert said in line
