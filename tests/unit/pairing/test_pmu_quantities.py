"""Counts over a whole run: from shared memory to the profile, what is shown, and which become features."""

import dataclasses

import numpy as np
import pytest
import sample
from hypothesis import given, strategies as st
from rank_files import KEY, S, write_rank
from sample import timed_profile

from mpicoloc import config
from mpicoloc.cli.main import main
from mpicoloc.core import counters as counters_table
from mpicoloc.core.counters import EVENTS
from mpicoloc.core.profile import table
from mpicoloc.core.slowdown import ROW_DTYPE, TrainingSet
from mpicoloc.errors import UsageError
from mpicoloc.pairing import features
from mpicoloc.pairing.features import FEATURES, job_features
from mpicoloc.pmpi import contract
from mpicoloc.profile import hdf5
from mpicoloc.profile.collect import collect

USUAL = [event.name for event in EVENTS if event.is_usual]


def counters(values, n_ranks=2, running=0.5, threads=1.0, **changes):
    """Each rank r counted (r + 1) times the values."""
    names = [name for name in values for _ in range(n_ranks)]
    ranks = list(range(n_ranks)) * len(values)
    columns = {
        "rank": ranks,
        "event": names,
        "value": [values[name] * (rank + 1.0) for name, rank in zip(names, ranks, strict=True)],
        "enabled_s": [8.0 * threads] * len(names),
        "running_s": [8.0 * threads * running] * len(names),
        "cpu_s": [8.0] * len(names),
    }
    return table("counters", columns | changes)


def values_of(rows, **changes):
    return job_features([timed_profile(counters=rows, **changes)]).values


VALUES = {"instructions": 4e9, "cycles": 8e9, "cache-misses": 2e7, "cache-references": 1e8, "branches": 1e9}


def test_rates_are_per_second_and_core_and_per_thousand_instructions():
    values = values_of(counters(VALUES))
    assert values["cache_misses_per_s_min"] == pytest.approx(2e6)  # in 10 s, on a core for each rank
    assert values["cache_misses_per_s_max"] == pytest.approx(4e6)
    assert values["cache_misses_per_ki_mean"] == pytest.approx(5)
    assert values["cache_miss_frac_mean"] == pytest.approx(0.2)
    assert values["ipc_mean"] == pytest.approx(0.5)
    assert values["instructions_per_s_mean"] == pytest.approx(12e9 / 20)
    assert values["clock_hz_mean"] == pytest.approx(24e9 / 20)
    assert not {name for name in values if name.startswith(("branch_misses", "llc", "dtlb"))}


def test_every_usual_event_is_a_feature_that_the_list_knows():
    values = values_of(counters(dict.fromkeys((*USUAL, "page-faults"), 1e9)))
    assert set(values) <= set(FEATURES)
    for event in features.RATED:
        word = features.event_word(event.name)
        assert {f"{word}_per_s_mean", f"{word}_per_ki_sd"} <= set(values)
    assert not {name for name in values if name.startswith("page_faults")}


def test_events_that_were_named_are_features_too():
    values = values_of(counters(VALUES | {"L1-dcache-store-misses": 1e7, "r01c2": 4e8}))
    assert values["l1_dcache_store_misses_per_s_min"] == pytest.approx(1e6)
    assert values["r01c2_per_ki_mean"] == pytest.approx(100)


def test_the_set_of_table_3_has_no_other_feature():
    assert set(features.TABLE_3) <= set(FEATURES)
    job = job_features([timed_profile(counters=counters(VALUES))])
    (found,) = features.only(TrainingSet((job,), np.zeros(0, ROW_DTYPE)), features.TABLE_3).jobs
    assert set(found.values) == set(job.values) & set(features.TABLE_3)
    assert {"cache_misses_per_s_max", "branches_per_s_sd", "minor_faults_per_s_mean"} <= set(found.values)


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (counters(VALUES, running=0.04), {}),
        (counters(VALUES, running=0.0, value=[np.nan] * 10), {}),
        (counters(VALUES, threads=0.8), {}),
        (counters(VALUES, n_ranks=1), {}),
        (counters(VALUES, rank=[0] * 10), {}),
        (counters(VALUES, enabled_s=[0.0] * 10, running_s=[0.0] * 10, cpu_s=[0.0] * 10), {}),
        (counters(VALUES), {"shared_s": 5.0, "slowdown": 1.2}),
        (counters(VALUES), {"shared_s": None}),
    ],
    ids=["too rarely", "never", "other threads", "one rank", "twice one rank", "no time", "shared",
         "unknown"],
)  # fmt: skip
def test_what_was_not_counted_well_or_not_alone_is_absent(rows, changes):
    known = values_of(rows, **changes)
    assert not {name for name in known if name.startswith(("cache", "branch", "ipc", "clock", "instr"))}


def test_one_event_that_is_missing_on_one_rank_leaves_the_others():
    rows = counters(VALUES)
    values = values_of(rows[(rows["event"] != b"cache-misses") | (rows["rank"] == 0)])
    assert "cache_misses_per_s_mean" not in values and "cache_miss_frac_mean" not in values
    assert "cache_references_per_ki_mean" in values


def test_a_pmu_that_counts_no_instructions_gives_no_rates_by_them():
    values = values_of(counters(VALUES | {"instructions": 0.0}))
    assert not {name for name in values if "_per_ki" in name or name.startswith(("ipc", "instr"))}
    assert values["cache_misses_per_s_min"] == pytest.approx(2e6)


def test_windows_alone_come_before_the_whole_run():
    window = {"verdict": [1], "t1_ns": [S], "during_cycles": [2 * S], "during_instructions": [3 * S]}
    values = values_of(counters(VALUES), shutters=table("shutters", window))
    assert (values["ipc_mean"], values["clock_hz_mean"]) == (1.5, 1e9)
    assert "cache_misses_per_s_mean" in values


@given(st.lists(st.floats(1.0, 1e15), min_size=3, max_size=3), st.integers(1, 5), st.floats(0.5, 1e5))
def test_rates_times_what_they_are_per_are_the_counts(amounts, n_ranks, core_s):
    names = ("instructions", "cycles", "cache-misses")
    found = features.pmu_rates(counters(dict(zip(names, amounts, strict=True)), n_ranks), n_ranks, core_s)
    misses = amounts[2] * np.arange(1, n_ranks + 1)
    assert found["cache_misses_per_s"] * core_s == pytest.approx(misses)
    instructions = found["ipc"] * found["clock_hz"] * core_s * n_ranks
    assert instructions == pytest.approx(amounts[0] * np.arange(1, n_ranks + 1).sum())
    assert found["cache_misses_per_ki"] == pytest.approx(1000 * amounts[2] / amounts[0])


def test_a_segments_counts_become_rows(monkeypatch, tmp_path):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path))
    rows = np.zeros(contract.MC_N_PMU, contract.dtype("mc_pmu_row"))
    rows[0] = (b"cycles", 300, 4 * S, 3 * S)
    rows[1] = (b"cache-misses", 0, 4 * S, 0)
    write_rank(0, pmu=rows, pmu_cpu_ns=5 * S)
    write_rank(1)
    found = collect(KEY).tables["counters"]
    assert found[["rank", "event", "enabled_s", "running_s", "cpu_s"]].tolist() == [
        (0, b"cycles", 4.0, 3.0, 5.0),
        (0, b"cache-misses", 4.0, 0.0, 5.0),
    ]
    assert found["value"][0] == pytest.approx(400)
    assert np.isnan(found["value"][1])


def shown(rows, tmp_path, capsys):
    path = tmp_path / "p.h5"
    whole = sample.profile()
    hdf5.write(dataclasses.replace(whole, tables={**whole.tables, "counters": rows}), path)
    assert main(["show", str(path)]) == 0
    return capsys.readouterr().out


def test_show_prints_what_was_counted_and_by_how_much_it_was_scaled(tmp_path, capsys):
    text = shown(counters(VALUES), tmp_path, capsys)
    line = next(line for line in text.splitlines() if "cache-misses" in line)
    assert line.split() == ["cache-misses", "60,000,000", "5", "50%"]
    assert "threads that existed" not in text
    assert "threads that existed before MPI_Init" in shown(counters(VALUES, threads=0.5), tmp_path, capsys)
    never = shown(counters({"page-faults": np.nan}, running=0.0), tmp_path, capsys)
    line = next(line for line in never.splitlines() if "page-faults" in line)
    assert line.split() == ["page-faults", "-", "0%"]
    assert "per 1,000" not in never
    assert "over the whole run" not in shown(table("counters"), tmp_path, capsys)


def test_what_the_option_takes_is_checked_before_the_job():
    most = ",".join(f"r{i:02x}" for i in range(counters_table.MOST))
    for text in ("on", "off", "page-faults", "cycles,L1-dcache-store-misses,r01c2,LLC-prefetches", most):
        assert config.get("counters", {"MPICOLOC_COUNTERS": text}) == text
    for text in ("cycle", "on,off", "cycles,", "cycles cache-misses", "On", "r", "rg", "r0x1", "r" + 17 * "1",
                 "iTLB-stores", f"{most},cycles"):  # fmt: skip
        with pytest.raises(UsageError, match="must be one of on, off, up to 16 events as perf"):
            config.get("counters", {"MPICOLOC_COUNTERS": text})
