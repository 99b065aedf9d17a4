"""`replay --propagation`, `bubble propagation`: matrices known beforehand; one line for what is wrong."""

import json

import pytest
from json_output import documented, without_meaning

from mpicoloc.bubble import curves_file
from mpicoloc.cli.main import main

N_NODES = 4
TREE = ("--topology", f"XGFT(1;{N_NODES};1)")
CURVES = "program,score,level_4,level_8,policy\nsteps,3,1.5,2,interpolate\nother,2,1.1,1.2,n-max\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Curves, and the trace of a program whose nodes compute for a millisecond and wait for each other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curves.csv").write_text(CURVES)
    step = "\n".join(f"{rank} compute 1e6\n{rank} barrier" for rank in range(N_NODES))
    both = [[f"{rank} {word}" for rank in range(N_NODES)] for word in ("init", "finalize")]
    (tmp_path / "steps").write_text("\n".join([*both[0], *[step] * 5, *both[1]]) + "\n")
    return tmp_path


def replay(*words):
    return main(["replay", "steps", *TREE, "--curves", "curves.csv", "--propagation", "matrices.csv", *words])


def test_one_disturbed_node_is_as_bad_as_all_for_nodes_that_wait_for_each_other(folder, capsys):
    assert replay("--json") == 0
    found = json.loads(capsys.readouterr().out)
    wanted = documented("bubble propagation")
    assert list(found) == list(wanted) and list(found["policy"]) == list(wanted["policy"])
    assert not without_meaning("bubble propagation", found)
    assert (found["program"], found["n_nodes"]) == ("steps", N_NODES)
    assert found["levels"] == list(range(1, 9))
    for level, row in zip(found["levels"], found["slowdown"], strict=True):
        assert row == pytest.approx([1 + level / 8] * N_NODES, rel=0.05)
    n_measured = sum(map(sum, found["is_measured"]))
    assert found["cost_frac"] == pytest.approx((1 + n_measured) / (8 * N_NODES + 1))
    assert found["policy"]["policy"] != "interpolate" and found["policy"]["is_stable"]


def test_updates_keep_the_rows_of_other_programs(folder, capsys):
    assert replay("--max-level", "3") == 0 and replay("--name", "other", "--uneven-runs", "0") == 0
    assert "steps: slowdown by level and disturbed nodes" in capsys.readouterr().out
    kept = curves_file.matrices("matrices.csv")
    assert kept["steps"].n_pressures == 3 and kept["other"].n_pressures == 8
    assert kept["other"].times[7, N_NODES] == pytest.approx(1.2, rel=0.05)
    programs = curves_file.read("curves.csv")
    assert programs["steps"].policy != "interpolate" and programs["other"].policy == "n-max"
    assert programs["steps"].curve.at(8).value == 2


@pytest.mark.parametrize("method", ["binary-brute", "random-30", "random-50"])
def test_other_ways_of_profiling(folder, capsys, method):
    assert replay("--profiling", method, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["slowdown"][7][-1] == pytest.approx(2, rel=0.05)
    assert found["is_measured"][7][-1] and found["cost_frac"] < 1


def test_place_reads_the_matrix(folder, capsys):
    assert replay() == 0
    (folder / "jobs.csv").write_text("id,program,n_nodes\na,steps,4\nb,steps,4\n")
    capsys.readouterr()
    words = ("--curves", "curves.csv", "--propagation", "matrices.csv", "--nodes", "4", "--json")
    assert main(["place", "jobs.csv", *words]) == 0
    assert json.loads(capsys.readouterr().out)["slowdowns"]["a"]["value"] == pytest.approx(1.375, rel=0.05)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--profiling", "all"), 2, "--profiling must be one of binary-optimized,"),
        (("--max-level", "9"), 2, "--max-level must be"),
        (("--threshold", "0"), 2, "--threshold must be"),
        (("--uneven-runs", "-1"), 2, "--uneven-runs must be"),
        (("--name", "nobody"), 3, "has no curve of 'nobody': name one of steps, other"),
        (("--stretch", "1:2"), 2, "--stretch does not go with --propagation"),
        (("--no-base",), 2, "--no-base does not go with --propagation"),
        (("--propagation", "nowhere/m.csv"), 2, "its folder is missing or read-only"),
        (("--out", "x"), 2, "--out does not go with --propagation"),
    ],
)
def test_wrong_calls_of_replay_have_one_line(folder, capsys, words, code, text):
    assert replay(*words) == code
    errors = capsys.readouterr().err
    assert text in errors and errors.count("\n") == 1
    assert not (folder / "matrices.csv").exists()


def test_flags_of_the_matrix_without_it(folder, capsys):
    assert main(["replay", "steps", *TREE, "--max-level", "3"]) == 2
    assert (
        "--max-level applies only to --propagation, which is not given: leave it out"
        in capsys.readouterr().err
    )
    assert main(["replay", "steps", *TREE, "--propagation", "m.csv"]) == 2
    assert "give --curves FILE" in capsys.readouterr().err
    words = ("--curves", "curves.csv", "--propagation", "m.csv")
    assert main(["replay", "steps", "steps", *TREE, *words]) == 2
    assert "--propagation takes one job, got 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--hosts", "n[0-", "--", "true"), 3, "--hosts"),
        (("--hosts", "a,b"), 2, "no application"),
        (("--hosts", "a,b,a", "--", "true"), 2, "--hosts names a twice"),
        (("--hosts", "a,b", "--ranks-per-node", "0", "--", "true"), 2, "--ranks-per-node must be"),
        (("--hosts", "a,b", "--repeats", "0", "--", "true"), 2, "--repeats must be"),
        (("--hosts", "a,b", "--cores", "", "--", "true"), 2, "--cores must be a list of processors"),
        (("--hosts", "a,b", "--propagation", "m.json", "--", "true"), 2, "written as CSV"),
        (("--hosts", "a,b", "--propagation", "curves.csv", "--", "true"), 3, "curves.csv"),
        (("--hosts", "a,b", "--mpirun", "true", "--", "true"), 2, "is not an mpirun of Open MPI or MPICH"),
    ],
)
def test_wrong_calls_of_bubble_propagation_have_one_line(folder, capsys, words, code, text):
    assert main(["bubble", "propagation", *words]) == code
    errors = capsys.readouterr().err
    assert text in errors and errors.count("\n") == 1
