import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import sample

from mpicoloc.cli.main import main
from mpicoloc.core.profile import table
from mpicoloc.core.units import amount, link_rate, rate, seconds
from mpicoloc.measure.processor import foreign_delay
from mpicoloc.profile import hdf5, terminal
from mpicoloc.profile.merge import complete

KEYS = {
    "job": {"id", "command", "n_ranks", "n_nodes", "n_cores", "mpi_library", "wall_s", "start_unix_s", "user",
            "hosts"},
    "mpi": {"n_calls", "sent_bytes", "recv_bytes", "time_frac"},
    "interference": {"slowdown", "meters", "co_runners", "shutters", "processor"},
    "price": {"rate_su", "runtime_su", "fair_su", "discount_frac", "pricing"},
    "network": {"topology", "levels", "demand_class", "duration_s"},
}  # fmt: skip


@pytest.fixture
def show(tmp_path, capsys):
    def run(profile, *flags):
        path = tmp_path / "p.h5"
        hdf5.write(profile, path)
        assert main(["show", *flags, str(path)]) == 0
        out = capsys.readouterr()
        assert out.err == ""
        return out.out

    return run


def test_json_has_exactly_the_promised_keys(show):
    data = json.loads(show(sample.profile(), "--json"))
    assert set(data) == {"schema_version", "partial", "bubbles", "advice", *KEYS}
    assert data["bubbles"] is None
    assert [words.split(" (")[0] for words in data["advice"]] == [
        "if time matters more than the price, ask for whole nodes"
    ]
    for name, keys in KEYS.items():
        assert set(data[name]) == keys
    assert set(data["interference"]["slowdown"]) == {"value", "low", "high", "n", "method"}
    assert set(data["interference"]["shutters"]) == {"n_taken", "n_used", "overhead_frac"}
    (other,) = data["interference"]["co_runners"]
    assert (other["id"], other["overlap_s"]) == ("43", 60.0)
    slowdown = data["interference"]["slowdown"]
    assert other["slowdown"] == {name: slowdown[name] for name in ("value", "low", "high")}
    assert data["interference"]["processor"] == {
        "cpu_s": 117.0, "run_delay_s": 1.0, "run_delay_frac": 1 / 118, "involuntary_switches": 80,
        "foreign_delay_frac": 0.0, "note": None
    }  # fmt: skip
    assert (data["job"]["start_unix_s"], data["job"]["user"], data["job"]["hosts"]) == (1.7e9, None, ["n1"])
    assert data["network"]["levels"] is None
    assert data["mpi"]["time_frac"] == pytest.approx(0.25)


def test_what_was_not_measured_is_null(show):
    data = json.loads(show(sample.profile(n_shutters=2), "--json"))
    assert data["interference"]["slowdown"] is None
    assert data["price"]["discount_frac"] == 0.0
    bare = replace(sample.profile(), price=None, tables={"nodes": table("nodes")})
    data = json.loads(show(bare, "--json"))
    assert data["price"] == dict.fromkeys(KEYS["price"])
    ranks = sample.tables()["ranks"].copy()
    for name in ("cpu_s", "run_delay_s", "involuntary_switches"):
        ranks[name] = np.nan
    unknown = complete(sample.job(user="", start_unix_s=0.0), {"ranks": ranks}, rng=np.random.default_rng(0))
    data = json.loads(show(unknown, "--json"))
    assert set(data["interference"]["processor"].values()) == {None}
    assert (data["job"]["start_unix_s"], data["job"]["user"], data["job"]["hosts"]) == (None, None, [])


def test_the_table_says_what_matters(show):
    text = show(sample.profile(partial=True, notes=("rank 1 was killed [by 9]",)))
    assert [line for line in text.splitlines() if line != line.rstrip()] == [], "no blanks at ends in a pipe"
    for part in ("job 42 (partial)", "lmp -in in.lj", "burst-matched", "95 %", "discount", "MPI_Allreduce",
                 "lmp+0x1234", "8 B to 15 B", "co-runners", "note: rank 1 was killed [by 9]"):  # fmt: skip
        assert part in text
    assert "1 (no co-runner under mpicoloc)" in show(sample.profile(shared_s=0.0))
    assert "signature" not in text, "nobody signs but a site"
    text = show(sample.profile(n_shutters=2))
    assert "not measured" in text
    assert "2 valid shutters, 8 needed" in text


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"n_shutters": 2}, "2 valid shutters, 8 needed; let the jobs share their nodes for longer, or raise "
                            "the co-runners' --shutter-duty-frac"),
        ({"meter": "none"}, "no meter: no hardware counters; run `mpicoloc check` on that node to see what "
                            "works"),
    ],
)  # fmt: skip
def test_why_there_is_no_slowdown_and_what_helps_stand_beside_it(show, tables, reason):
    text = " ".join(show(sample.profile(**tables)).split())
    assert f"slowdown not measured: {reason} shutters" in text and text.count("not measured") == 1
    assert "1 SU per core and hour, priced as unshared" in text
    assert "unshared" not in show(sample.profile())


def test_advice_is_the_last_word(show):
    text = show(replace(sample.profile(), notes=("[a note]",)))
    *_, last = re.split(r"^(?=\w+: )", text, flags=re.M)
    assert last.startswith("advice: if time matters more than the price, ask for whole nodes")
    assert "advice" not in show(sample.profile(partial=True))


def test_events_dropped_from_the_trace_are_said(show):
    profile = sample.profile()
    assert "events were dropped" not in show(profile)
    ranks = profile.tables["ranks"].copy()
    ranks["n_events"], ranks["n_events_dropped"] = 70_000, 4_464
    text = show(replace(profile, tables={**profile.tables, "ranks": ranks}))
    n = len(ranks)
    assert f"{4_464 * n:,} of {70_000 * n:,} events were dropped" in " ".join(text.split())
    assert "job 42" in show(replace(profile, price=None, tables={})), "of nothing"


def test_long_lists_are_cut_and_say_so(show):
    n = 30
    calls = [f"MPI_F{i}" for i in range(n)]
    numbers = {"i_site": range(1, n + 1), "n": [1] * n, "time_ns": range(n), "offset": range(n)}
    sites = table("call_sites", {"call": calls} | numbers)
    profile = sample.profile()
    many = replace(profile, tables={**profile.tables, "call_sites": sites})
    text = show(many)
    assert "22 more (--all)" in text and "MPI_F22 " in text and "MPI_F21 " not in text
    text = show(many, "--top", "20")
    assert "10 more (--all)" in text and "MPI_F10 " in text and "MPI_F9 " not in text
    text = show(many, "--all")
    assert "more (" not in text and "MPI_F0 " in text


@pytest.mark.parametrize("n", ["0", "-1", "x", "1.5"])
def test_top_must_be_positive(n, capsys):
    assert main(["show", f"--top={n}", "p.h5"]) == 2
    assert f"--top must be a whole number of at least 1, got '{n}'" in capsys.readouterr().err


def test_who_ran_it_where_and_when(show):
    text = show(sample.profile())
    assert re.search(r"^user +not known *$", text, re.M) and re.search(r"^hosts +n1 *$", text, re.M)
    profile = replace(sample.profile(), job=sample.job(user="ada", start_unix_s=1.7e9, n_nodes=20))
    nodes = table("nodes", {"hostname": [f"n{i:02d}" for i in range(20)]})
    profile = replace(profile, tables={**profile.tables, "nodes": nodes})
    text = " ".join(show(profile).split())
    began = datetime.fromtimestamp(1.7e9, UTC)
    [shown] = re.findall(r"began (\S+ \S+)", text)
    assert datetime.fromisoformat(shown) == began
    assert "user ada" in text and "hosts n00, n01, n02, n03, n04, n05, n06, n07 and 12 more size" in text
    assert "n18, n19 size" in " ".join(show(profile, "--all").split())
    assert json.loads(show(profile, "--json"))["job"]["hosts"][-1] == "n19"
    assert "began not known" in " ".join(show(replace(profile, job=sample.job(start_unix_s=0.0))).split())
    assert "began ?" in " ".join(show(replace(profile, job=sample.job(start_unix_s=1e300))).split())


def test_mpi_libraries_have_a_name_and_a_version():
    names = {
        "MPICH Version:      5.0.2": "MPICH 5.0.2",
        "MPICH Version:      5.0.2, standard ABI": "MPICH 5.0.2, standard ABI",
        "MVAPICH2 Version      : 2.3.7": "MVAPICH2 2.3.7",
        "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022": "Open MPI 4.1.4",
        "Open MPI v5.0.8": "Open MPI 5.0.8",
        "Intel(R) MPI Library 2021.9 for Linux* OS": "Intel(R) MPI Library 2021.9 for Linux* OS",
        "": "",
    }
    assert {name: terminal.library(name) for name in names} == names


def test_time_of_each_rank_as_other_profilers_have_it(show):
    """In order; of too many those with most time in MPI, and always that of all."""
    text = show(sample.profile())
    rows = [line.split() for line in text.split("time of the ranks")[1].splitlines()[4:7]]
    assert rows == [
        ["0", "60", "s", "12", "s", "20.0%"],
        ["1", "60", "s", "18", "s", "30.0%"],
        ["all", "120", "s", "30", "s", "25.0%"],
    ]
    ranks = np.repeat(sample.profile().tables["ranks"][:1], 20)
    ranks["rank"], ranks["mpi_ns"] = np.arange(20), np.arange(20) * 1_000_000_000
    ranks["comp_ns"] = 100_000_000_000 - ranks["mpi_ns"]
    profile = sample.profile()
    profile = replace(profile, tables={**profile.tables, "ranks": ranks})
    text = show(profile).split("time of the ranks")[1].split("MPI time by function")[0]
    assert [line.split()[0] for line in text.splitlines()[4:13]] == [*map(str, range(19, 11, -1)), "all"]
    assert "12 more with less time in MPI (--all)" in " ".join(text.split())
    assert text.splitlines()[12].split()[-1] == "9.5%"
    text = show(profile, "--all").split("time of the ranks")[1]
    assert [line.split()[0] for line in text.splitlines()[4:24]] == list(map(str, range(20)))


def test_the_share_of_a_rank_is_its_time_in_mpi_over_the_time_beside_it(show):
    """Also where it was paused, and where several threads call MPI at once."""
    ranks = np.resize(sample.tables()["ranks"], 2)
    ranks["rank"], ranks["wall_s"] = [0, 1], 60.0
    ranks["mpi_ns"], ranks["comp_ns"] = [15 * 10**9, 90 * 10**9], [25 * 10**9, 30 * 10**9]
    whole = complete(sample.job(), {"ranks": ranks}, rng=np.random.default_rng(0))
    rows = [line.split() for line in show(whole).split("time of the ranks")[1].splitlines()[4:7]]
    assert rows == [
        ["0", "60", "s", "15", "s", "25.0%"],
        ["1", "120", "s", "90", "s", "75.0%"],
        ["all", "180", "s", "105", "s", "58.3%"],
    ]
    assert json.loads(show(whole, "--json"))["mpi"]["time_frac"] == pytest.approx(105 / 180)
    assert "58.3% of the time in MPI" in show(whole)


def test_why_the_job_s_slowdown_is_not_among_those_of_its_ranks(show):
    profile = sample.profile()
    ranks = profile.tables["ranks"].copy()
    job = profile.interference.slowdown.value
    why = "the job's covers all of its time"
    for ends, is_told in (((job - 0.1, job - 0.05), True), ((job - 0.1, job + 0.1), False)):
        ranks["slowdown"] = ends
        text = show(replace(profile, tables={**profile.tables, "ranks": ranks.copy()}))
        assert f"{ends[0]:.3f} (rank 0) to {ends[1]:.3f} (rank 1), of their time with co-runners" in text
        assert (why in text) == is_told


def starved(profile, run_delay_s=90.0, cpu_s=30.0, n_ranks=2):
    """The profile of ranks that waited for a processor, each as long."""
    found = replace(profile.interference, cpu_s=cpu_s, run_delay_s=run_delay_s, involuntary_switches=1837)
    ranks = np.resize(profile.tables["ranks"], n_ranks)
    nodes = profile.tables["nodes"].copy()
    nodes["cpus"] = "0-1"
    tables = {**profile.tables, "ranks": ranks, "nodes": nodes}
    return replace(profile, interference=found, tables=tables)


def test_who_had_no_processor_is_told_so_though_nobody_measured_it(show):
    alone = sample.profile(shared_s=0.0)
    text = " ".join(show(starved(alone)).split())
    assert "slowdown 1 (no co-runner under mpicoloc)" in text
    assert (
        "note: the ranks had no processor for 75% of the time that they were ready to run (processor time "
        "25% of wall time, taken away 1,837 times): processes without mpicoloc, the job's own threads, or a "
        "limit on processor time took it; what that cost the job is not measured"
    ) in text
    assert "12 ranks share 2 processors of their node" in " ".join(show(starved(alone, n_ranks=12)).split())
    data = json.loads(show(starved(alone), "--json"))["interference"]["processor"]
    assert data.pop("note").startswith("the ranks had no processor for 75%")
    assert data == {
        "cpu_s": 30.0, "run_delay_s": 90.0, "run_delay_frac": 0.75, "involuntary_switches": 1837,
        "foreign_delay_frac": 0.0
    }  # fmt: skip
    # Quiet, or asleep: nothing to say.
    for profile in (starved(alone, 5.0, 115.0), starved(alone, 0.1, 0.1), alone):
        assert "had no processor" not in show(profile)


@pytest.mark.parametrize(
    ("waited", "words"),
    [
        ((0.8, 0.7, 0.75, 0.75), "and for 75% (71% to 79%) of the time that co-runners stood still: proc"),
        ((0.8, 0.0, 0.9, 0.0, 0.7, 0.0, 0.8), "of the time that co-runners stood still"),  # half of the time
        ((0.0, 0.01, 0.0, 0.0), None),
        ((0.5, 0.0, 0.0, 0.0, 0.0, 0.0), None),  # both ranks were on one processor once
        ((0.8, 0.8), "co-runners took an unknown part of it; for the rest, processes without mpicoloc"),
        ((-1.0,) * 9, "co-runners took an unknown part of it"),
    ],
)
def test_what_co_runners_do_not_explain_is_told_of_jobs_with_co_runners_too(show, waited, words):
    """While they stand still, who has the processor is none of them."""
    shutters = table("shutters", {"verdict": [1] * len(waited) + [2], "waited_frac": [*waited, 0.9]})
    profile = starved(sample.profile())
    found = replace(profile.interference, **foreign_delay(shutters))
    text = " ".join(show(replace(profile, interference=found)).split())
    assert words in text if words else "had no processor" not in text


@pytest.mark.parametrize("name", ["missing.h5", "foreign.txt"])
def test_a_bad_file_is_one_line_and_code_3(tmp_path, capsys, name):
    (tmp_path / "foreign.txt").write_text("hello")
    assert main(["show", str(tmp_path / name)]) == 3
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.count("\n") == 1


def test_numbers_read_well():
    assert [seconds(t) for t in (0, 5e-9, 3e-6, 0.0125, 2, 123456)] == \
        ["0 s", "5 ns", "3 us", "12.5 ms", "2 s", "123,456 s"]  # fmt: skip
    assert [amount(n) for n in (0, 1023, 2048, 3 * 2**50)] == ["0 B", "1023 B", "2 KiB", "3 PiB"]
    assert [rate(x) for x in (None, 5e9)] == ["unknown", "4.657 GiB/s"] and link_rate(1.25e9) == "10 Gbit/s"


def test_several_profiles_are_shown_and_a_bad_one_does_not_hide_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdf5.write(sample.profile(), "a.h5")
    hdf5.write(replace(sample.profile(), job=replace(sample.profile().job, id="other")), "b.h5")
    assert main(["show", "a.h5", "b.h5"]) == 0
    out = capsys.readouterr().out
    places = [out.index(words) for words in ("==> a.h5 <==", "job 42", "==> b.h5 <==", "job other")]
    assert places == sorted(places)
    assert main(["show", "--json", "a.h5", "b.h5"]) == 0
    assert [one["job"]["id"] for one in json.loads(capsys.readouterr().out)] == ["42", "other"]
    assert main(["show", "--json", "a.h5", "none.h5", "b.h5"]) == 3
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 2 and err.startswith("mpicoloc: ") and "none.h5" in err
