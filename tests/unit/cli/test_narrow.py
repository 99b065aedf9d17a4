"""Tables on terminals of any width and colour: readable, and no number cut."""

import json
import os
import re
import sys
from dataclasses import replace

import pytest
import sample
import terminal
from rich.console import Console

from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate
from mpicoloc.job import live
from mpicoloc.job.live import Counts, LiveJob
from mpicoloc.profile import hdf5
from mpicoloc.show.table import Listing

NETWORK = ["--topology", "XGFT(2;4,4;1,2)", "--placement", "F1", "--placement", "F1"]
CALLS = [
    ["show", "p.h5"],
    ["compare", "p.h5", "q.h5"],
    ["history", "."],
    ["ledger", "list"],
    ["ledger", "statement", "chemistry"],
    ["price", "p.h5", "q.h5"],
    ["price", "p.h5"],
    ["network", "p.h5", "q.h5", *NETWORK],
    ["top", "--once"],
    ["pair", "jobs.csv", "--slowdowns", "slowdowns.csv"],
    ["predict", "--curves", "curves.csv", "lu", "cg"],
]
FILES = {
    "jobs.csv": "id,program,runtime_s\n1,lu,9\n",
    "slowdowns.csv": "target,co_runner,slowdown\nlu,lu,1.1\n",
    "curves.csv": "program,score,level_8\nlu,2,1.5\ncg,3,1.2\n",
}
NUMBERS = {
    "show": ["1.503 (1.467 to 1.540, 95 %)", "1,100", "100.0%", "MPI_Allreduce", "8 B to 15 B"],
    "compare": ["0.01475", "12 KiB", "71.2 s", "1.187"],
    "history": ["71.2 s", "1.503", "4711-lammps"],
    "list": ["999.970494", "-1000", "chemistry"],
    "statement": ["+1000", "-0.029506"],
    "price": ["0.01475", "66.5%"],
    "network": ["1.528 B/s", "2.328 GiB/s", "0 1.000", "4711-lammps"],
    "top": ["0 jobs on this node"],
    "pair": ["0 of 1 job share; 9.0 s of nodes, 9.0 s without sharing, at most"],
    "predict": ["lu cg 1."],
}


ALL = """
import json, sys
from mpicoloc.cli.main import main
for call in json.loads(sys.argv[1]):
    print("# exit code", main(call))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("narrow")


@pytest.fixture(autouse=True)
def environment(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("MPICOLOC_LEDGER", str(folder / "ledger"))
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(folder))
    if not os.path.exists("p.h5"):
        profile = sample.profile()
        hdf5.write(profile, "p.h5")
        hdf5.write(replace(profile, job=replace(profile.job, id="4711-lammps", wall_s=71.2)), "q.h5")
        for name, text in FILES.items():
            (folder / name).write_text(text)
        assert main(["ledger", "open", "chemistry", "--grant", "1000"]) == 0
        assert main(["ledger", "charge", "chemistry", "p.h5", "--rate-su", "2"]) == 0


def all_of(calls, **more):
    """Screen text of each call, and the whole output. One process runs all calls, so Python starts once."""
    shown = terminal.show(sys.executable, "-c", ALL, json.dumps(calls), lines=500, **more)
    *found, rest = re.split(r"^# exit code 0$", "\n".join(shown.screen), flags=re.MULTILINE)
    assert len(found) == len(calls) and not rest, shown.output
    return found, shown.output


@pytest.mark.parametrize("columns", [40, 60])
def test_narrow_terminals_show_whole_numbers(columns):
    found, output = all_of(CALLS, columns=columns)
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    for call, text in zip(CALLS, found, strict=True):
        for word in NUMBERS[call[1] if call[0] == "ledger" else call[0]]:
            # Between words a cell may go on in the next line.
            pattern = r"\s+".join(map(re.escape, word.split()))
            assert re.search(pattern, text), f"{word} is not in\n{text}"


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9[0-7])(?:;\d+)*m")


def test_colours_come_where_they_are_wanted(tmp_path):
    """`show` has a coloured note."""
    assert COLOUR.search(all_of(CALLS[:1])[1])
    assert not COLOUR.search(all_of(CALLS, env={"NO_COLOR": "1"})[1])
    assert "\x1b" not in all_of(CALLS, env={"TERM": "dumb"})[1]
    for forced in (None, "1"):
        terminal.mpicoloc("show", "p.h5", stdout=tmp_path / "out", env={"FORCE_COLOR": forced})
        assert ("\x1b" in (tmp_path / "out").read_text()) == (forced is not None)


def a_job(**changes):
    facts = {"id": "4711-a-long-name", "uid": os.geteuid(), "n_ranks": 128, "cores": tuple(range(0, 96, 2)),
             "age_s": 1234.0, "owner": 1, "counts": Counts(110.0, 128, 6000, 20.0, 10.0, 1 << 30),
             "slowdown": Estimate(1.234, 1.1, 1.3, 9, "1", "m"), "n_shutters": 99,
             "paused_frac": 0.0123}  # fmt: skip
    return LiveJob(**facts | changes)


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_jobs_of_a_node_in_any_width(columns, capsys):
    Console(width=columns).print(live.table([a_job(), a_job(id="9", uid=4242424)], {}))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    assert "1.234" in text and ("columns left out: " in text) == (columns < 200)
    assert ("0,2,4" in text) == (columns == 200)


def test_what_is_too_wide_becomes_records(capsys):
    table = Listing("[bold]jobs[/]", ("job", "first, SU", "[second]"), lesser=("first, SU",))
    table.add_row("a", "1" * 18, "2" * 28)
    table.add_row("b", "", "3")
    Console(width=30).print(table)
    lines = capsys.readouterr().out.splitlines()
    assert "jobs" in lines[0] and "columns left out: first, SU" not in lines
    assert "".join("".join(lines).split()).count("2") == 28 and max(map(len, lines)) <= 30
    assert any("[second]" in line for line in lines) and lines[-1].split() == ["[second]", "3"]


def test_what_a_foreign_file_says_is_not_obeyed_by_a_terminal(tmp_path, capsys):
    profile = sample.profile()
    evil = replace(profile.job, command='evil \x1b]0;title\x07\r "quoted"')
    (tmp_path / "evil").mkdir()
    hdf5.write(replace(profile, job=evil), tmp_path / "evil" / "e.h5")
    shown = terminal.mpicoloc("history", "--csv", tmp_path / "evil", columns=200)
    assert "evil ?]0;title?" in shown.output and "\x1b" not in shown.output and "\x07" not in shown.output
    assert main(["history", "--csv", str(tmp_path / "evil")]) == 0
    assert "\x1b]0;title\x07" in capsys.readouterr().out
