"""mpicoloc pair: files in, plan out, and one clear line for what is wrong with them."""

import json
import os
import shutil
import threading

import contention
import pytest
import sample

from mpicoloc.cli import main
from mpicoloc.pairing import blossom, model_file, policies, queue_files
from mpicoloc.pairing.fitted import FittedModel
from mpicoloc.profile import hdf5

JOBS = """\
id,program,runtime_s,n_cores
101,lammps,600,8
102,heat2d,500,8
103,lammps,620,8
104,unknown,100,
105,heat2d,480,8
"""
SLOWDOWNS = """\
target,co_runner,slowdown,low,high
lammps,lammps,2.3,2.1,2.5
lammps,heat2d,1.15,1.1,1.6
heat2d,lammps,1.3,1.25,1.4
heat2d,heat2d,1.05,1.0,1.1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "slowdowns.csv").write_text(SLOWDOWNS)
    return tmp_path


def planned(capsys, *words):
    code = main.main(["pair", "jobs.csv", "--slowdowns", "slowdowns.csv", "--json", *words])
    assert code == 0
    return json.loads(capsys.readouterr().out)


def test_plan_as_json(folder, capsys):
    found = planned(capsys)
    assert [group["jobs"] for group in found["groups"]] == [["101", "102"], ["103", "105"], ["104"]]
    assert [group["why_alone"] for group in found["groups"]] == [None, None, "no profile"]
    assert found["groups"][0]["duration_s"] == pytest.approx(600 * 1.15)
    assert found["serial_s"] == 2300
    assert found["cost_s"] == found["makespan_s"] == pytest.approx(690 + 713 + 100)
    assert found["gap_frac"] == 0


@pytest.mark.parametrize("separator", [";", "\t"])
def test_spreadsheets_may_write_other_signs_between_columns(folder, capsys, separator):
    found = planned(capsys)
    for name in ("jobs.csv", "slowdowns.csv"):
        (folder / name).write_text((folder / name).read_text().replace(",", separator))
    assert planned(capsys) == found
    (folder / "jobs.csv").write_text("id;runtime_s\n1;0,5\n")
    assert main.main(["pair", "jobs.csv"]) == 3
    assert "got '0,5': write a point, not a comma" in capsys.readouterr().err
    (folder / "slowdowns.csv").write_text("target;co_runner;slowdown\na;b;1,2\n")
    assert main.main(["pair", "jobs.csv", "--slowdowns", "slowdowns.csv"]) == 3
    assert "row 1: slowdown must be a finite number, got '1,2'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("jobs.csv", "id,runtime_s,ncores\n1,5,8\n", "column 'ncores' is not known: did you mean n_cores?"),
        ("jobs.csv", "name,runtime_s\n1,5\n", "has no id: known columns are id, "),
        (
            "slowdowns.csv",
            "target,co_runner,slowdown,lo\na,b,1.2,1\n",
            "column 'lo' is not known: did you mean low?",
        ),
    ],
)
def test_a_column_that_is_nearly_known_is_not_left_out(folder, capsys, name, text, words):
    (folder / name).write_text(text)
    assert main.main(["pair", "jobs.csv", "--slowdowns", "slowdowns.csv"]) == 3
    assert words in capsys.readouterr().err


def test_tables_may_come_through_a_pipe(folder, capsys):
    found = planned(capsys)
    content = (folder / "jobs.csv").read_bytes()
    (folder / "jobs.csv").unlink()
    os.mkfifo(folder / "jobs.csv")
    writer = threading.Thread(target=(folder / "jobs.csv").write_bytes, args=(content,))
    writer.start()
    assert planned(capsys) == found
    writer.join()


def test_nodes_share_the_groups(folder, capsys):
    found = planned(capsys, "--nodes", "3")
    assert found["n_nodes_used"] == 3
    assert found["makespan_s"] == pytest.approx(713)


def test_caution_prior_and_room_change_the_plan(folder, capsys):
    assert planned(capsys, "--cautious")["cost_s"] > planned(capsys)["cost_s"]
    reasons = [group["why_alone"] for group in planned(capsys, "--prior-slowdown", "1.2")["groups"]]
    assert "no profile" not in reasons
    assert [len(group["jobs"]) for group in planned(capsys, "--node-cores", "12")["groups"]] == [1] * 5
    assert planned(capsys, "--policy", "fifo")["lower_bound_s"] is None


def test_spread_jobs_share_two_nodes_if_that_takes_less_of_them_than_packing(folder, capsys):
    (folder / "jobs.csv").write_text("id,program,runtime_s\n1,lammps,600\n2,heat2d,200\n3,heat2d,500\n")
    found = planned(capsys, "--layout", "spread")
    assert [group["jobs"] for group in found["groups"]] == [["1", "2"], ["3"]]
    # lammps: 1.15 beside heat2d, 2.3 beside itself; 3 fills half of two nodes for 500 s.
    assert [group["duration_s"] for group in found["groups"]] == pytest.approx([600 * 1.15 / 2.3, 250])
    assert found["serial_s"] == 650


def test_two_nodes_have_the_cores_of_two(folder, capsys):
    (folder / "jobs.csv").write_text("id,program,runtime_s,n_cores\n1,lammps,600,8\n2,heat2d,200,8\n")
    words = ("--layout", "spread", "--node-cores")
    assert [len(group["jobs"]) for group in planned(capsys, *words, "8")["groups"]] == [2]
    assert [len(group["jobs"]) for group in planned(capsys, *words, "8", "--node-memory", "1")["groups"]] == [
        2
    ]
    assert main.main(["pair", "jobs.csv", "--layout", "spread", "--prior-slowdown", "1.3"]) == 2
    assert "needs the slowdowns of all pairs: leave out --prior-slowdown" in capsys.readouterr().err


def test_a_job_that_gains_more_than_half_by_being_spread_is_no_error(folder, capsys):
    (folder / "jobs.csv").write_text("id,program,runtime_s\n1,lammps,600\n2,heat2d,200\n")
    (folder / "slowdowns.csv").write_text(
        SLOWDOWNS.replace("lammps,lammps,2.3,2.1,2.5", "lammps,lammps,6,5,7")
    )
    assert planned(capsys, "--layout", "spread")["groups"][0]["duration_s"] == pytest.approx(300)


@pytest.mark.parametrize(
    ("measured", "wanted", "words"),
    [
        ("turns", "cores", "slowdowns.csv is of the layout turns, so its slowdowns do not apply to cores"),
        ("cores", "turns", "give slowdowns of the layout turns, or --layout cores"),
        ("spread", "spread", "relative to packed runs: give those of the layout cores"),
        ("", "near", "--layout must be turns, cores or spread, got 'near'"),
    ],
)
def test_slowdowns_of_another_layout_are_refused(folder, capsys, measured, wanted, words):
    rows = SLOWDOWNS.strip().split("\n")
    rows = [rows[0] + ",layout", *(f"{row},{measured}" for row in rows[1:])]
    (folder / "slowdowns.csv").write_text("\n".join(rows))
    words_given = ["pair", "jobs.csv", "--slowdowns", "slowdowns.csv", "--layout", wanted]
    assert main.main(words_given) == 2
    assert words in capsys.readouterr().err


def test_a_slowdown_of_jobs_counts_before_that_of_their_programs(folder, capsys):
    with open("slowdowns.csv", "a") as file:
        file.write("101,102,4.0,,\n")
    assert ["101", "102"] not in [group["jobs"] for group in planned(capsys)["groups"]]


def test_slowdowns_as_a_campaign_tells_them(folder, capsys):
    rows = [line.split(",") for line in SLOWDOWNS.splitlines()[1:]]
    names = ("value", "low", "high")
    told = [
        {
            "target": row[0],
            "co_runner": row[1],
            "slowdown": dict(zip(names, map(float, row[2:]), strict=True)),
        }
        for row in rows
    ]
    (folder / "slowdowns.json").write_text(json.dumps({"slowdowns": told}))
    jobs = [{"id": i, "program": name, "runtime_s": 5} for i, name in ((1, "lammps"), (2, "heat2d"))]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    assert main.main(["pair", "jobs.json", "--slowdowns", "slowdowns.json"]) == 0
    out = capsys.readouterr().out
    assert "1 + 2" in out
    assert "2 of 2 jobs share; 6.5 s of nodes, 10.0 s without sharing" in out


def test_a_campaign_tells_of_jobs_by_their_profiles_whatever_it_called_them(folder, capsys):
    hdf5.write(sample.profile(), "run.h5")  # two ranks of lmp
    (folder / "jobs.csv").write_text("id,profile,runtime_s\n1,run.h5,100\n2,run.h5,100\n")
    kinds = {"target_kind": "lmp x2", "co_runner_kind": "lmp x2"}
    told = [{"target": "lj", "co_runner": "lj", "slowdown": 1.25} | kinds]
    words = ["pair", "jobs.csv", "--slowdowns", "slowdowns.json", "--json"]
    for rows, jobs in ((told, [["1", "2"]]), ([*told, told[0] | {"target": "eam"}], [["1"], ["2"]])):
        (folder / "slowdowns.json").write_text(json.dumps({"slowdowns": rows}))
        assert main.main(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert [group["jobs"] for group in found["groups"]] == jobs


def test_a_gap_above_what_is_promised_is_said(folder, capsys, monkeypatch):
    """Of each three jobs of a program one is alone; without odd sets the bound is that of three halves."""
    names = [f"p{i}" for i in range(101)]
    (folder / "jobs.csv").write_text(
        "id,program,runtime_s\n" + "".join(f"{n}{i},{n},100\n" for n in names for i in range(3))
    )
    (folder / "slowdowns.csv").write_text(
        "target,co_runner,slowdown\n" + "".join(f"{n},{n},1\n" for n in names)
    )
    words = ["pair", "jobs.csv", "--slowdowns", "slowdowns.csv"]
    assert main.main(words) == 0
    answer = capsys.readouterr()
    assert "at most 0.000 % above the least possible" in answer.out
    assert answer.err == ""
    monkeypatch.setattr(blossom, "MAX_ROUNDS", 1)
    assert main.main(words) == 0
    answer = capsys.readouterr()
    assert "at most 33.333 % above the least possible" in answer.out
    assert len(answer.err.splitlines()) == 1
    assert "may take up to 33.33 % more than the least possible" in answer.err
    assert main.main([*words, "--json"]) == 0
    answer = capsys.readouterr()
    found = json.loads(answer.out)
    assert found["gap_frac"] == pytest.approx(found["cost_s"] / found["lower_bound_s"] - 1) == 1 / 3
    assert len(found["notes"]) == len(answer.err.splitlines()) == 1


def test_jobs_of_which_no_slowdown_is_known_are_told_what_tells_it(folder, capsys):
    assert main.main(["pair", "jobs.csv"]) == 0
    assert (
        "no slowdowns are known, so no jobs share: give --slowdowns of `mpicoloc" in capsys.readouterr().err
    )


def test_an_empty_queue_is_an_empty_plan(folder, capsys):
    (folder / "jobs.csv").write_text("id,runtime_s\n")
    assert planned(capsys)["groups"] == []
    assert main.main(["pair", "jobs.csv"]) == 0
    assert "0 of 0 jobs share" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("jobs", "slowdowns", "words", "code", "message"),
    [
        ("id,runtime_s\n1,ten\n", SLOWDOWNS, [], 3, "row 1: runtime_s must be a finite number, got 'ten'"),
        ("id,runtime_s\n1,-5\n", SLOWDOWNS, [], 3, "runtime_s of job 0 is -5.0; need a number > 0"),
        ("id,time\n1,5\n", SLOWDOWNS, [], 3, "row 1 has neither runtime_s"),
        ("id,runtime_s\n1,5\n1,6\n", SLOWDOWNS, [], 3, "job '1' appears twice"),
        (JOBS, "target,co_runner,slowdown\nlammps,heat2d,0.15\n", [], 3, "must be T_co/T_solo, got 0.15"),
        (JOBS, SLOWDOWNS + "lammps,lammps,2\n", [], 3, "lammps beside lammps appears twice"),
        (JOBS, SLOWDOWNS, ["--policy", "best"], 2, "no policy 'best'"),
        (JOBS, SLOWDOWNS, ["--threshold", "1.5"], 2, "threshold must be in (0, 1]"),
        (JOBS, SLOWDOWNS, ["--nodes", "0"], 2, "--nodes must be a whole number of at least 1, got '0'"),
        (JOBS, SLOWDOWNS, ["--node-cores", "4"], 3, "job 101 needs 8 cores, but a node has 4: leave it out"),
        (JOBS, SLOWDOWNS, ["--layout", "spread", "--node-cores", "4"], 3, "needs 8 cores, but a node has 4"),
        (JOBS, SLOWDOWNS, ["--policy", "di"], 3, "needs an intensity"),
        (JOBS, SLOWDOWNS, ["--policy", "fifo-shared", "--per-node", "3"], 2,
         "need the policy blossom or greedy"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(folder, capsys, jobs, slowdowns, words, code, message):
    (folder / "jobs.csv").write_text(jobs)
    (folder / "slowdowns.csv").write_text(slowdowns)
    assert main.main(["pair", "jobs.csv", "--slowdowns", "slowdowns.csv", *words]) == code
    answer = capsys.readouterr()
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not answer.out


def test_larger_groups_are_planned_from_files_only(folder, capsys):
    (folder / "slowdowns.csv").write_text("target,co_runner,slowdown\nlammps,lammps,1.1\n")
    (folder / "jobs.csv").write_text("id,program,runtime_s\n" + "".join(f"{i},lammps,60\n" for i in range(3)))
    (three,) = planned(capsys, "--per-node", "3")["groups"]
    assert three["duration_s"] == pytest.approx(60 * 1.2)
    watch = ["pair", "--watch", "--profiles", str(folder), "--prior-slowdown", "1.3"]
    assert main.main([*watch, "--per-node", "3"]) == 2
    assert "--watch makes pairs, but --per-node is 3: leave out --per-node" in capsys.readouterr().err


def test_files_that_are_none(folder, capsys):
    assert main.main(["pair", "nowhere.csv"]) == 2
    (folder / "bad.json").write_text("{")
    assert main.main(["pair", "bad.json"]) == 3
    (folder / "bad.json").write_text('{"jobs": 3}')
    assert main.main(["pair", "bad.json"]) == 3
    (folder / "bad.csv").write_bytes(b"\xff\xfe\x00")
    assert main.main(["pair", "bad.csv"]) == 3
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_profiles_and_a_model_tell_what_no_pair_was_measured_for(folder, capsys):
    pytest.importorskip("sklearn", reason="the extra schedule is not installed")
    from mpicoloc.pairing.training.fitting import fit_kind

    model = fit_kind(contention.World(8).training(), "elastic net")
    model_file.write(model, "slowdowns.model")
    hdf5.write(sample.profile(), "run.h5")
    wall_s = sample.profile().job.wall_s
    (folder / "jobs.csv").write_text("id,profile,runtime_s\n1,run.h5,\n2,run.h5,\n3,,50\n")
    assert main.main(["pair", "jobs.csv", "--model", "slowdowns.model", "--json", "--threshold", "none"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["jobs"] for group in found["groups"]] == [["1", "2"], ["3"]]
    assert found["groups"][1]["why_alone"] == "no profile"
    serial_s = found["groups"][0]["serial_s"]
    assert 0 < serial_s <= 2 * wall_s
    # Each of two alike suffers what the model says of a job beside another one just like itself.
    known = queue_files.features(["run.h5"], model)
    expected = queue_files.predict_pairs(model, known, queue_files.jobs("jobs.csv")).slowdowns.value
    assert expected.shape == (1, 1)
    assert found["groups"][0]["duration_s"] == pytest.approx(serial_s / 2 * expected[0, 0])


def test_pairs_are_predicted_within_a_part_of_the_queue_only(folder, capsys, monkeypatch):
    pytest.importorskip("sklearn", reason="the extra schedule is not installed")
    from mpicoloc.pairing.training.fitting import fit_kind

    model_file.write(fit_kind(contention.World(8).training(), "elastic net"), "slowdowns.model")
    hdf5.write(sample.profile(), "0.h5")
    for i in range(1, 5):
        shutil.copy("0.h5", f"{i}.h5")
    (folder / "jobs.csv").write_text("id,profile\n" + "".join(f"{i},{i}.h5\n" for i in range(5)))
    predicted, predict = [], FittedModel.predict_pairs
    monkeypatch.setattr(
        FittedModel, "predict_pairs", lambda self, jobs: predicted.append(len(jobs)) or predict(self, jobs)
    )
    monkeypatch.setattr(policies, "WINDOW", 2)
    assert main.main(["pair", "jobs.csv", "--model", "slowdowns.model", "--threshold", "none", "--json"]) == 0
    assert predicted == [2, 2, 1]
    groups = [group["jobs"] for group in json.loads(capsys.readouterr().out)["groups"]]
    assert groups == [["0", "1"], ["2", "3"], ["4"]]


def test_a_profile_that_is_not_there_is_named(folder, capsys):
    (folder / "jobs.csv").write_text("id,profile\n1,gone.h5\n2,\n")
    assert main.main(["pair", "jobs.csv"]) == 3
    (folder / "jobs.csv").write_text("id,profile\n1,gone.h5\n")
    assert main.main(["pair", "jobs.csv"]) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert "row 2 has neither runtime_s nor a profile" in first
    assert "gone.h5" in second
