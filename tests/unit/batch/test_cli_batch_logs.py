"""mpicoloc batch: logs of Slurm, partitions, one clear line for what is wrong."""

import gzip
import json
import re

import pandas
import pytest

from mpicoloc.cli import main

TREE = ("--topology", "XGFT(2;4,4;1,1)")
HEADER = "JobIDRaw|User|Partition|Submit|Start|End|NNodes|NCPUS|Timelimit|JobName"
ROWS = [
    f"{i}|{'ann' if i % 2 else 'bob'}|{'short' if i % 3 else 'long'}|{i}|{10 * i}|{11 * i + 50}|{1 + i % 4}|8"
    f"|00:10:00|{'lammps' if i % 2 else 'heat2d'}"
    for i in range(1, 13)
]
PAIRS = """\
target,co_runner,slowdown
lammps,lammps,2.3
lammps,heat2d,1.15
heat2d,lammps,1.3
heat2d,heat2d,1.05
"""
PARTITIONS = "PartitionName=short Nodes=n[0-7]\nPartitionName=long Nodes=n[8-15] MaxTime=1-00:00:00\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.sacct").write_text("\n".join([HEADER, *ROWS, ""]))
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "parts.conf").write_text(PARTITIONS)
    return tmp_path


def answer(capsys, *words):
    assert main.main(["batch", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    told.pop("wall_s")
    return told


def refused(capsys, *words):
    code = main.main(["batch", *words])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err.splitlines()[-1]


def test_a_log_of_sacct_is_simulated_and_may_be_compressed(capsys, folder):
    told = answer(capsys, "jobs.sacct", *TREE)
    assert told["n_jobs"] == 12
    assert told["log_wait_mean_s"] == sum(9 * i for i in range(1, 13)) / 12
    (folder / "jobs.gz").write_bytes(gzip.compress((folder / "jobs.sacct").read_bytes()))
    assert answer(capsys, "jobs.gz", *TREE) == told


def test_the_same_jobs_in_both_formats_are_the_same(capsys, folder):
    lines = ["; MaxNodes: 16", "; MaxProcs: 128"]
    for row in ROWS:
        number, _, _, submit, start, end, n, *_ = row.split("|")
        wait_s, run_s = int(start) - int(submit), int(end) - int(start)
        lines.append(f"{number} {submit} {wait_s} {run_s} -1 -1 -1 {8 * int(n)} 600 -1 1 1 1 1 1 1 -1 -1")
    (folder / "jobs.swf").write_text("\n".join(lines))
    words = (*TREE, "--order", "conservative", "--allocation", "virtual-blocks")
    assert answer(capsys, "jobs.swf", *words) == answer(capsys, "jobs.sacct", *words)


def test_jobs_run_the_programs_that_they_are_named_after(capsys, folder):
    words = ("jobs.sacct", *TREE, "--sharing", "none,model", "--slowdowns", "pairs.csv")
    told = answer(capsys, *words)
    assert told["n_seeds"] == 1
    assert {row["user"] for row in told["policies"][0]["users_su"]["fair"]} == {"ann", "bob"}
    (folder / "table.csv").write_text("executable,program\nlammps,lammps\n*,heat2d\n")
    assert answer(capsys, *words, "--programs", "table.csv") == told
    assert answer(capsys, *words, "--mix", "lammps=1", "--seeds", "2")["n_seeds"] == 2


def test_names_that_are_no_programs_are_told(capsys, folder):
    (folder / "jobs.sacct").write_text("\n".join([HEADER, *ROWS]).replace("heat2d", "bash"))
    code, line = refused(capsys, "jobs.sacct", *TREE, "--sharing", "model", "--slowdowns", "pairs.csv")
    assert code == 3 and "bash (6 jobs): list the program of each in --programs FILE" in line


def test_jobs_whose_names_are_not_in_a_table_of_links_delay_nobody(capsys, folder):
    (folder / "used.csv").write_text("program,level_1\nlammps,0.5\n")
    words = ("jobs.sacct", *TREE, "--utilisation", "used.csv")
    (policy,) = answer(capsys, *words)["policies"]
    assert policy["links_lost_node_hours"]["value"] > 0
    (folder / "table.csv").write_text("program,level_1\nlammps,0.5\nheat2d,0\n")
    assert answer(capsys, *words[:-1], "table.csv")["policies"] == [policy]
    (folder / "used.csv").write_text("program,level_1\nother,0.5\n")
    code, line = refused(capsys, *words)
    assert code == 3 and "used.csv has none of the programs that the jobs run (lammps, heat2d)" in line


def figures(out):
    """The table in words, without how long it took."""
    return " ".join(out.split("simulated in")[0].replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "").split())


def test_a_page_keeps_the_tables_and_has_the_wait_of_the_log(capsys, folder):
    assert main.main(["batch", "jobs.sacct", *TREE]) == 0
    table = figures(capsys.readouterr().out)
    assert main.main(["batch", "jobs.sacct", *TREE, "--page", "p.html"]) == 0
    assert figures(capsys.readouterr().out) == table and "wait, mean, in the log 58.5 s" in table
    text = (folder / "p.html").read_text()
    assert re.search(r"wait, mean, in the log</th><td>58.5 s<", text) and re.search(r"16 nodes, \d+ s<", text)


def test_times_of_a_log_are_in_days_from_a_day_on(capsys, folder):
    times = {4: lambda s: int(s) * 1000, 5: lambda s: int(s) * 1000}
    rows = [[times.get(i, str)(word) for i, word in enumerate(row.split("|"))] for row in ROWS]
    (folder / "jobs.sacct").write_text("\n".join([HEADER, *("|".join(map(str, row)) for row in rows)]))
    sharing = ("--sharing", "none,blind", "--slowdowns", "pairs.csv")
    for words in ((), sharing, ("--sweep", "order", "fcfs", "easy", "--out", "out")):
        assert main.main(["batch", "jobs.sacct", *TREE, *words]) == 0
        assert re.search(r"\d\.\d\d days", capsys.readouterr().out), words


def test_jobs_stay_in_their_partitions(capsys, folder):
    told = answer(capsys, "jobs.sacct", *TREE, "--partitions", "parts.conf", "--page", "centre.html")
    assert told["n_jobs"] == 12 and told["wait_mean_s"] > answer(capsys, "jobs.sacct", *TREE)["wait_mean_s"]
    assert "<html" in (folder / "centre.html").read_text()


def test_jobs_that_a_partition_does_not_allow_can_be_left_out(capsys, folder):
    (folder / "parts.conf").write_text(PARTITIONS.replace("n[0-7]", "n[0-7] MaxNodes=2"))
    words = ("jobs.sacct", *TREE, "--partitions", "parts.conf")
    code, line = refused(capsys, *words)
    assert code == 3 and "needs 3 nodes, but partition short allows 2" in line and "--skip-larger" in line
    assert 0 < answer(capsys, *words, "--skip-larger")["n_jobs"] < 12
    (folder / "parts.conf").write_text(re.sub("$", " MaxTime=1", PARTITIONS.strip(), flags=re.M))
    code, line = refused(capsys, *words, "--skip-larger")
    assert code == 3 and "parts.conf: all jobs exceed limits of their partitions: raise MaxNodes or" in line


def test_tables_have_the_names_that_slurm_tells(capsys, folder):
    answer(capsys, "jobs.sacct", *TREE, "--out", "tables")
    jobs = pandas.read_parquet("tables/jobs.parquet").set_index("job")
    assert jobs["user"].to_dict() == {i: "ann" if i % 2 else "bob" for i in range(1, 13)}
    assert jobs["executable"].to_dict() == {i: "lammps" if i % 2 else "heat2d" for i in range(1, 13)}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("jobs.sacct", "--partitions", "no.conf"), 2, "--partitions no.conf cannot be read"),
        (("jobs.sacct", "--partitions", "pairs.csv"), 3, "pairs.csv: no partition in it"),
        (
            ("jobs.sacct", "--partitions", "parts.conf", "--sharing", "blind", "--slowdowns", "pairs.csv"),
            2,
            "--partitions cannot be combined with --sharing blind",
        ),
        (
            ("empty",),
            3,
            "empty is empty: give a log in Standard Workload Format, 18 numbers a line, or the output of ",
        ),
        (("pairs.csv",), 3, "pairs.csv is not a log"),
    ],
)
def test_what_is_wrong_is_one_line(capsys, folder, words, code, said):
    (folder / "empty").write_text("\n")
    found, line = refused(capsys, *words, *TREE)
    assert found == code and said in line


def test_a_sweep_has_partitions_but_no_page(capsys, folder):
    words = ("jobs.sacct", *TREE, "--sweep", "order", "fcfs", "easy", "--partitions", "parts.conf")
    code = main.main(["batch", *words, "--out", "sweep", "--json", "--processes", "1"])
    rows = json.loads(capsys.readouterr().out)
    assert code == 0 and [row["settings"]["order"] for row in rows] == ["fcfs", "easy"]
    alone = answer(capsys, "jobs.sacct", *TREE, "--order", "fcfs", "--partitions", "parts.conf")
    assert rows[0]["wait_mean_s"] == alone["wait_mean_s"]
    code, line = refused(capsys, *words, "--out", "other", "--page", "plan.html")
    assert code == 2 and "--page applies to a single simulation, but --sweep makes several" in line
    (folder / "more.sacct").write_text("\n".join([HEADER, *ROWS]))
    code, line = refused(capsys, "jobs.sacct", "more.sacct", *TREE, "--out", "other", "--page", "plan.html")
    assert code == 2 and "--page applies to a single simulation, but more than one LOG makes several" in line


def test_a_machine_of_another_size_than_the_logs_is_told(capsys):
    """From 110 to 116 s jobs 6 to 11, of 1 + i % 4 nodes each, had nodes at once."""
    n_nodes = sum(1 + i % 4 for i in range(6, 12))
    for n, words in (
        (n_nodes - 1, "so waits are longer than in the log: if the log is of another machine"),
        (n_nodes, ""),
        (2 * n_nodes - 1, ""),
        (2 * n_nodes, "so hardly any job waits, and most nodes are idle: if the log is of another machine"),
    ):
        assert main.main(["batch", "jobs.sacct", "--topology", f"XGFT(1;{n};1)"]) == 0
        note = capsys.readouterr().err
        shared = " if none shared a node" if n < n_nodes else ""
        begin = (
            f"mpicoloc: jobs.sacct: its jobs had up to {n_nodes} nodes at once{shared}, but the topology has "
        )
        begin += f"{n}, "
        assert note.startswith(begin + words) if words else note == ""


def test_jobs_that_shared_nodes_and_unknown_waits_are_no_claim_about_the_machine(capsys, folder):
    """Six jobs of one core each that had one node of eight cores, and one whose begin is not known."""
    lines = ["; MaxNodes: 4", "; MaxProcs: 32"]
    lines += [f"{i} 0 {-1 if i == 7 else 0} 9 -1 -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1" for i in range(1, 8)]
    (folder / "one.swf").write_text("\n".join(lines))
    assert main.main(["batch", "one.swf", "--topology", "XGFT(1;4;1)"]) == 0
    note = capsys.readouterr().err
    assert "its jobs had up to 6 nodes at once if none shared a node, but the topology has 4" in note
    (folder / "one.swf").write_text("\n".join(line.replace(" 0 0 9 ", " 0 -1 9 ") for line in lines))
    assert main.main(["batch", "one.swf", "--topology", "XGFT(1;4;1)"]) == 0
    assert "at once" not in capsys.readouterr().err


def test_larger_jobs_are_refused_with_the_remedy(capsys, folder):
    small = ("jobs.sacct", "--topology", "XGFT(1;3;1)")
    code, line = refused(capsys, *small)
    # The log tells the nodes of each job, whatever cores they have.
    assert code == 3 and line.endswith("3 of 12 jobs do not fit: give a larger --topology, or --skip-larger")
    main.main(["batch", *small, "--skip-larger"])
    assert "left out 3 jobs larger than the machine" in capsys.readouterr().err
    main.main(["batch", "jobs.sacct", *TREE, "--skip-larger"])
    assert "left out" not in capsys.readouterr().err
    code, line = refused(capsys, *small, "--out", "jobs.sacct")
    assert code == 2 and "--out jobs.sacct is an input of the command: give another name" in line
