import json
import os
from pathlib import Path

import pytest
from json_output import documented

from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate
from mpicoloc.job import live
from mpicoloc.job.live import Counts, LiveJob
from mpicoloc.pmpi import contract


def job(counts=None, **changes):
    known = {"id": "7", "uid": os.geteuid(), "n_ranks": 2, "cores": (0, 1, 2, 8), "age_s": 20.0}
    return LiveJob(**known | {"owner": 77 << 32, "counts": counts} | changes)


def test_rates_are_those_between_two_looks():
    first, second = Counts(100.0, 2, 1000, 20.0, 4.0, 10**6), Counts(110.0, 2, 6000, 40.0, 9.0, 3 * 10**6)
    found = live.rates(job(second), {77 << 32: first})
    assert (found.mpi_frac, found.calls_per_s, found.sent_bps) == (0.25, 500.0, 2e5)
    since_begin = live.rates(job(second), {})
    assert (since_begin.mpi_frac, since_begin.calls_per_s) == (9.0 / 40, 300.0)


@pytest.mark.parametrize(
    "now", [Counts(110.0, 1, 10, 110.0, 0.1, 5), Counts(100.0, 2, 10, 200.0, 0.1, 5), None]
)
def test_no_rates_where_ranks_went_or_no_time_passed(now):
    assert live.rates(job(now), {77 << 32: Counts(100.0, 2, 1000, 200.0, 4.0, 10**6)}) == live.Rates()


def test_table_and_json_say_what_is_known(capsys):
    from rich.console import Console

    jobs = [
        job(
            Counts(110.0, 2, 6000, 40.0, 10.0, 1 << 21),
            slowdown=Estimate(1.2, 1.1, 1.3, 9, "1", "m"),
            n_shutters=9,
        ),
        job(id="\x1b[31mred", uid=4242424, reason="0 valid shutters, 8 needed"),
    ]
    Console(width=120).print(live.table(jobs, {}))
    out = capsys.readouterr().out
    known = ("0-2,8", "1.200", "1.100 to 1.300", "25%", "102.4 KiB", "4242424", "?[31mred: 0 valid shutters")
    assert all(words in out for words in known), out
    assert "\x1b" not in out
    rows = json.loads(json.dumps(live.as_json(jobs, {}), allow_nan=False))
    assert rows[0]["slowdown"]["low"] == 1.1 and rows[0]["calls_per_s"] == 300
    assert rows[1]["slowdown"] is None and rows[1]["mpi_frac"] is None
    (row,) = documented("top")
    assert list(rows[0]) == list(row) and set(rows[0]["slowdown"]) == set(row["slowdown"])
    known, unknown = list(rows[1].values())[:6], list(rows[1].values())[6:]
    assert list(row)[6] == "command" and None not in known and set(unknown) == {None}


def test_a_node_without_jobs_and_wrong_calls(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path))
    assert main(["top"]) == 0 and "0 jobs on this node" in capsys.readouterr().out
    assert main(["top", "--json"]) == 0 and json.loads(capsys.readouterr().out) == []
    assert main(["top", "--interval-s", "0"]) == 2
    Path(contract.board_path()).write_bytes(b"no board")
    assert main(["top"]) == 4 and "cannot read the board" in capsys.readouterr().err
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path / "nowhere"))
    assert main(["top"]) == 4 and "MPICOLOC_SHM_DIR" in capsys.readouterr().err
