import json
from dataclasses import replace

import pytest
import sample

from mpicoloc.cli.main import main
from mpicoloc.core.tables import table
from mpicoloc.report.table import amount, seconds
from mpicoloc.store import hdf5

KEYS = {
    "job": {"id", "command", "n_ranks", "n_nodes", "n_cores", "mpi_library", "wall_s"},
    "mpi": {"n_calls", "sent_bytes", "recv_bytes", "time_frac"},
    "interference": {"slowdown", "co_runners", "shutters"},
    "price": {"rate_su", "runtime_su", "fair_su", "discount_frac", "pricing"},
    "network": {"topology", "levels", "demand_class"},
}


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
    assert set(data) == {"schema_version", "partial", *KEYS}
    for name, keys in KEYS.items():
        assert set(data[name]) == keys
    assert set(data["interference"]["slowdown"]) == {"value", "low", "high", "n", "method"}
    assert set(data["interference"]["shutters"]) == {"n_taken", "n_used", "overhead_frac"}
    assert data["interference"]["co_runners"] == [{"id": "43", "overlap_s": 60.0}]
    assert data["network"]["levels"] is None
    assert data["mpi"]["time_frac"] == pytest.approx(0.25)


def test_what_was_not_measured_is_null(show):
    data = json.loads(show(sample.profile(n_shutters=2), "--json"))
    assert data["interference"]["slowdown"] is None
    assert data["price"]["discount_frac"] == 0.0
    bare = replace(sample.profile(), price=None, tables={"nodes": table("nodes")})
    data = json.loads(show(bare, "--json"))
    assert data["price"] == dict.fromkeys(KEYS["price"])


def test_the_table_says_what_matters(show):
    text = show(sample.profile(partial=True, notes=("rank 1 was killed [by 9]",)))
    for part in ("job 42 (partial)", "lmp -in in.lj", "burst-matched", "95 %", "discount", "MPI_Allreduce",
                 "lmp+0x1234", "8 B to 15 B", "co-runners", "note: rank 1 was killed [by 9]"):  # fmt: skip
        assert part in text
    assert "1 (alone on its nodes)" in show(sample.profile(shared_s=0.0))
    text = show(sample.profile(n_shutters=2))
    assert "not measured" in text
    assert "2 valid shutters, 8 needed" in text


def test_events_dropped_from_the_trace_are_said(show):
    assert "events were dropped" not in show(sample.profile())
    profile = sample.profile()
    ranks = profile.tables["ranks"].copy()
    ranks["n_events"], ranks["n_events_dropped"] = 70_000, 4_464
    text = show(replace(profile, tables={**profile.tables, "ranks": ranks}))
    n = len(ranks)
    assert f"{4_464 * n:,} of {70_000 * n:,} events were dropped" in " ".join(text.split())


def test_a_profile_of_nothing_can_be_shown(show):
    assert "job 42" in show(replace(sample.profile(), price=None, tables={}))


def test_long_lists_are_cut_and_say_so(show):
    n = 30
    calls = [f"MPI_F{i}" for i in range(n)]
    columns = {
        "i_site": range(1, n + 1),
        "call": calls,
        "n": [1] * n,
        "time_ns": range(n),
        "offset": range(n),
    }
    sites = table("call_sites", columns)
    profile = sample.profile()
    text = show(replace(profile, tables={**profile.tables, "call_sites": sites}))
    assert "22 more" in text


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
    assert [amount(n) for n in (0, 1023, 2048, 3 * 2**50)] == ["0 B", "1023 B", "2 KiB", "3072 TiB"]


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


def test_no_line_ends_with_blanks_in_a_pipe(show):
    text = show(sample.profile())
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
