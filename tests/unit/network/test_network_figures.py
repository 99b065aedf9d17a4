"""Pictures of `mpicoloc network`: their data against the command's own numbers, and the files."""

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import partial

import network_files
import pytest
from network_files import profile

from mpicoloc.cli.main import main
from mpicoloc.profile import hdf5
from mpicoloc.show import drawing
from mpicoloc.show.drawing import panels_of_bars
from mpicoloc.show.figures import Bars, Figure

pytestmark = pytest.mark.usefixtures("here")
UNKNOWN = "mpicoloc: 999 bytes to or from unknown ranks are not in the traffic, unless the other side "
UNKNOWN += "recorded them: the ranks are in spawned jobs, or the tables had no room for them\n"
WAYS = ["--topology", "XGFT(3;2,2,2;1,4,4)", "--placement", "F1,F2,RF", "--slimming", "1,4"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    network_files.write(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def drawn(tmp_path, capsys):
    def call(*argv, formats="csv"):
        assert main(["network", *argv, "--json", "--figures", "out", "--format", formats]) == 0
        found = json.loads(capsys.readouterr().out)
        files = {path.name: path for path in (tmp_path / "out").iterdir()}
        tables = {name: read(path) for name, path in files.items() if name.endswith(".csv")}
        return found, files, tables

    return call


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def of_levels(found, key):
    """A number of each case and level, as the command tells it."""
    return {
        (case["topology"], case["placement"], str(row["level"])): row[key]
        for case in found["cases"]
        for row in case["levels"]
    }


def test_levels_are_drawn_as_told(drawn):
    found, _, tables = drawn("one.h5", *WAYS, "--window-s", "1")
    for name, key in (("available", "available_bps"), ("utilisation", "utilisation_frac")):
        table = {
            (row["topology"], row["placement"], row["level"]): float(row[key])
            for row in tables[f"{name}.csv"]
        }
        assert table == of_levels(found, key) and len(table) == 2 * 3 * 3
    rates = of_levels(found, "injection_bps")
    for row in tables["injection.csv"]:
        assert float(row["injection_bps"]) == rates[row["topology"], row["placement"], row["level"]]
    assert len(tables["injection.csv"]) == 3 * 3, "slimming changes no rate"
    (case, *_) = found["cases"]
    for row, rate, moved in zip(
        tables["windows-1.csv"],
        case["windows"]["injection_bps"],
        case["windows"]["in_transit_bytes"],
        strict=True,
    ):
        assert [float(row[f"L{level}_bps"]) for level in range(3)] == rate
        assert float(row["in_transit_bytes"]) == moved


def test_classes_links_and_sharing_are_drawn_as_told(drawn):
    found, _, tables = drawn("one.h5", *WAYS, "--link-rate", "8kbit/s")
    cases = {(case["topology"], case["placement"]): case for case in found["cases"]}
    shown = [
        (float(row["max_utilisation_frac"]), row["demand_class"], row["topology"], row["placement"])
        for row in tables["classes.csv"]
    ]
    assert [most for most, *_ in shown] == sorted((most for most, *_ in shown), reverse=True)
    for most, grade, *key in shown:
        levels = cases[tuple(key)]["levels"]
        assert most == max(row["utilisation_frac"] for row in levels[1:])
        assert grade == cases[tuple(key)]["demand_class"]
    for row in tables["links.csv"]:
        link = cases[row["topology"], row["placement"]]["links"][int(row["level"])]
        assert float(row["most_bytes"] or 0) == link[f"most_{row['way']}_bytes"]
        assert (row["most_bytes"] == "") == (row["n_loaded"] == "0")
    for row in tables["sharing-most.csv"]:
        most = cases[row["topology"], row["placement"]]["most_sharing_jobs"]
        assert int(row["n_jobs"]) == most[int(row["level"])]
    totals = {(row["topology"], row["level"]): float(row["total_bps"]) for row in tables["bandwidth.csv"]}
    assert totals["XGFT(3;2,2,2;1,4,4)", "2"] == 1000 * 2 * 4 * 4


def test_jobs_that_run_together(drawn):
    """The same profile twice is two jobs."""
    argv = ["one.h5", "one.h5", "--topology", "XGFT(2;4,2;1,1)", "--placement", "F1"]
    found, _, tables = drawn(*argv)
    told = [n for job in found["sharing"] for n in job["n_sharing_jobs"]]
    assert [int(row["n_jobs"]) for row in tables["sharing.csv"]] == told and max(told) == 1
    assert len(tables["utilisation.csv"]) == 4


def test_what_is_unknown_is_no_zero(drawn):
    unknown = replace(profile("6", 1000), job=replace(profile("6", 1000).job, wall_s=0.0))
    hdf5.write(unknown, "unknown.h5")
    found, _, tables = drawn("unknown.h5", "--topology", "XGFT(2;2,2;1,4)", formats="csv,svg")
    assert found["cases"][0]["demand_class"] is None
    for name, key in (("utilisation", "utilisation_frac"), ("injection", "injection_bps")):
        assert {row[key] for row in tables[f"{name}.csv"]} == {""}
    assert {row["demand_class"] for row in tables["classes.csv"]} == {""}


def test_files_of_each_format_are_what_they_are_called(drawn):
    """A name from a profile is text in them, not markup."""
    hdf5.write(profile("<script>$x^$&\x1b[2J", 1000), "hostile.h5")
    argv = ["one.h5", "hostile.h5", "--topology", "XGFT(2;4,2;1,1)", "--placement", "F1"]
    _, files, _ = drawn(*argv, formats="svg,csv")
    names = {name.rsplit(".")[0] for name in files}
    assert names == {"available", "bandwidth", "classes", "injection", "links", "sharing", "sharing-most",
                     "utilisation"}  # fmt: skip
    assert len(files) == 2 * len(names)
    for name, path in files.items():
        if name.endswith(".svg"):
            root = ET.fromstring(path.read_text())
            assert not [tag for tag in root.iter() if tag.tag.endswith("}script")]
            assert "http" not in "".join(x for tag in root.iter() for x in tag.attrib.values())
    assert "&lt;script&gt;$x^$&amp;?[2J" in files["utilisation.svg"].read_text()


def test_a_tree_of_one_level(drawn, tmp_path):
    (tmp_path / "x.hosts").write_text("0 3")
    argv = ["one.h5", "--topology", "XGFT(1;4;1)", "--placement", "x.hosts"]
    _, files, tables = drawn(*argv, formats="csv,png")
    assert len(tables["available.csv"]) == 1
    for name in tables:
        assert files[name.replace("csv", "png")].read_bytes().startswith(b"\x89PNG")


def test_the_same_data_gives_the_same_file():
    """And series beyond the last colour are told apart."""
    names = [f"F{k}" for k in range(1, 13)]
    bars = Bars("L0", ["S1"], names, [[*range(11), None]])
    draw = partial(panels_of_bars, panels=[bars], unit="B/s")
    figure = Figure("x", "title", "words", ("a",), ((1,),), draw)
    assert drawing.svg(figure) == drawing.svg(figure)
    looks = [tuple(drawing.colour(i).values()) for i in range(len(names))]
    assert len(set(looks)) == len(names)


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--figures", "out", "--format", "pdf"], 2, "--format 'pdf' is none of svg, png, csv"),
        (["--format", "svg"], 2, "add --figures FOLDER"),
        (["--figures", "one.h5"], 4, "cannot write figures to one.h5"),
        (["--figures", "one.h5/x"], 4, "cannot write figures to one.h5/x"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(capsys, argv, code, words):
    assert main(["network", "one.h5", "--topology", "XGFT(2;4,2;1,2)", *argv]) == code
    said = capsys.readouterr().err.replace(UNKNOWN, "")
    assert words in said and said.count("\n") == 1
