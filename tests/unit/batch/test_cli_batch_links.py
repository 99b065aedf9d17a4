"""mpicoloc batch --utilisation: answers, files of both kinds, one clear line for what is wrong; .gz logs."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import sample

from mpicoloc.cli import main
from mpicoloc.core.profile import Network, NetworkLevel
from mpicoloc.core.slowdown import program_name
from mpicoloc.profile import hdf5

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "batch"
JOBS = "".join(
    f"{i} {i} -1 {100 * i} {4 + i} -1 -1 {4 + i} {200 * i} -1 1 {i % 2} 1 {i % 3} -1 -1 -1 -1\n"
    for i in range(1, 9)
)
LOG = "; MaxNodes: 16\n; MaxProcs: 16\n" + JOBS
FULL = ("log.swf", "--topology", "XGFT(2;4,4;1,2)")
TABLE = ("--utilisation", "used.csv")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.swf").write_text(LOG)
    (tmp_path / "used.csv").write_text("program,level_1\nlu,0.3\nep,0\n")
    (tmp_path / "pairs.csv").write_text(
        "target,co_runner,slowdown\nlu,lu,1.5\nlu,ep,1.1\nep,lu,1.2\nep,ep,1\n"
    )
    hdf5.write(replace(sample.profile(), network=None), tmp_path / "bare.h5")
    (tmp_path / "empty.csv").write_text("program,level_1\n")
    (tmp_path / "low.csv").write_text("program,level\nlu,0.1\n")
    (tmp_path / "high.csv").write_text("program,level_1,level_2\nlu,0.1,0.1\n")
    (tmp_path / "programs.csv").write_text("executable,program\n0,ep\n*,lu\n")
    return tmp_path


def answer(capsys, *words):
    assert main.main(["batch", *FULL, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_jobs_that_share_links_take_longer(capsys):
    alone = answer(capsys)
    told = answer(capsys, *TABLE, "--programs", "programs.csv")
    (policy,) = told["policies"]
    lost = policy["links_lost_node_hours"]["value"]
    assert lost > 0
    # Nobody shares nodes, so that links are all that costs anything.
    assert policy["lost_node_hours"]["value"] == pytest.approx(lost)
    assert policy["slowdown_mean"]["value"] > 1
    assert told["n_seeds"] == 1 and told["n_jobs"] == alone["n_jobs"]
    assert policy["links_effectiveness"] is None


def test_a_profile_tells_the_same_as_a_table(capsys):
    made = sample.profile()
    levels = [NetworkLevel(level, 1e9, 1e8, 1e9, part) for level, part in enumerate((0.1, 0.3))]
    hdf5.write(
        replace(made, network=Network("XGFT(2;4,4;1,2)", "moderate", "all", 2, tuple(levels))), "one.h5"
    )
    name = program_name(made.job.command)
    (Path() / "one.csv").write_text(f"program,level_0,level_1\n{name},0.1,0.3\n")
    by_profile, by_table = (answer(capsys, "--utilisation", file) for file in ("one.h5", "one.csv"))
    assert by_profile["policies"] == by_table["policies"]
    assert by_table["policies"][0]["links_lost_node_hours"]["value"] > 0


def test_nodes_and_links_cost_more_than_links(capsys):
    words = (*TABLE, "--programs", "programs.csv", "--slowdowns", "pairs.csv", "--sharing", "none,blind")
    none, blind = answer(capsys, *words)["policies"]
    assert none["lost_node_hours"]["value"] == pytest.approx(none["links_lost_node_hours"]["value"])
    assert blind["lost_node_hours"]["value"] > blind["links_lost_node_hours"]["value"] > 0


def test_an_allocation_that_shares_no_links_loses_nothing(capsys):
    words = (*TABLE, "--seeds", "2", "--allocation", "exclusive", "--against", "first-available")
    (policy,) = answer(capsys, *words)["policies"]
    assert policy["links_lost_node_hours"]["value"] == 0
    assert policy["links_effectiveness"] is None


def test_the_table_for_people(capsys):
    assert main.main(["batch", *FULL, *TABLE, "--against", "best-fit"]) == 0
    printed = capsys.readouterr().out
    assert "of these to links" in printed


def test_allocations_of_the_example_are_compared_by_what_they_lose(capsys):
    def policy(*more):
        words = [
            "batch", str(EXAMPLES / "llnl-atlas-cut.swf.gz"), "--topology", "XGFT(3;18,8,8;1,18,18)",
            "--utilisation", str(EXAMPLES / "utilisation.csv"), "--seeds", "2", "--json", *more,
        ]  # fmt: skip
        assert main.main(words) == 0
        return json.loads(capsys.readouterr().out)["policies"][0]

    first = policy()["links_lost_node_hours"]
    blocks = policy("--allocation", "first-contiguous", "--against", "first-available")
    assert first["value"] > blocks["links_lost_node_hours"]["value"] > 0
    effectiveness = blocks["links_effectiveness"]
    assert effectiveness["n"] == 2
    assert effectiveness["low"] <= effectiveness["value"] <= effectiveness["high"]
    assert effectiveness["value"] > 1
    least = policy("--allocation", "least-delay")["links_lost_node_hours"]
    assert least["value"] < blocks["links_lost_node_hours"]["value"]


def test_a_compressed_log_that_is_cut_is_one_line(capsys):
    (Path() / "log.swf").write_bytes(gzip.compress(LOG.encode())[:-20])
    assert main.main(["batch", *FULL]) == 3
    assert "cannot read log.swf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--against", "exclusive"), 2, "give --utilisation, too"),
        (("--allocation", "least-delay"), 2, "needs the demands of the programs: give --utilisation"),
        ((*TABLE, "--against", "x"), 2, "allocation 'x' is unknown"),
        ((*TABLE, "--pack"), 2, "--pack applies only to jobs that share nodes"),
        ((*TABLE, "--slowdowns", "pairs.csv"), 2, "--slowdowns applies only to jobs that share nodes"),
        ((*TABLE, "--mix", "cg=1"), 2, "program cg has no utilisation; the programs are lu, ep"),
        (("--utilisation", "none.csv"), 2, "none.csv cannot be read"),
        (("--utilisation", "empty.csv"), 3, "empty.csv lists no program"),
        (("--utilisation", "low.csv"), 3, "column 'level' is not known: did you mean level_1?"),
        (
            ("--utilisation", "high.csv"),
            3,
            "lu uses level 2, but the machine's links only have levels 0 to 1",
        ),
        ((*TABLE, *TABLE), 3, "program ep is also in another --utilisation file"),
        (("--utilisation", "pairs.csv"), 3, "no program"),
        (("--utilisation", "none.h5"), 3, "none.h5"),
        (("--utilisation", "bare.h5"), 3, "bare.h5 has no utilisation of links: run the job with --topology"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, words, code, said):
    assert main.main(["batch", *FULL, *words]) == code
    assert said in capsys.readouterr().err
