import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import sample

import mpicoloc
from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate
from mpicoloc.profile import hdf5, history, sandbox
from mpicoloc.profile.profiles import parallel_map


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """Five jobs, the last one's profile in a folder below."""
    for i in range(5):
        profile = sample.profile(shared_s=0.0) if i == 2 else sample.profile()
        job = replace(profile.job, id=str(i), start_unix_s=1e9 - i)
        path = tmp_path / "p" / ("below" if i == 4 else "") / f"{i}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        hdf5.write(replace(profile, job=job), path)
    return tmp_path / "p"


def test_facts_of_all_profiles_in_the_order_of_time(folder):
    jobs = mpicoloc.history(folder)
    assert jobs["job"].tolist() == ["4", "3", "2", "1", "0"]
    assert jobs["path"].tolist()[0] == os.path.join("below", "4.h5")
    one, profile = jobs.iloc[-1], hdf5.read(folder / "0.h5")
    for name, value in history.facts(profile).items():
        assert one[name] == value or (value is None and one.isna()[name]), name
    assert one["slowdown_low"] == profile.interference.slowdown.low
    assert one["fair_su"] == profile.price.fair_su and one["mpi_n_calls"] > 0


def test_only_files_that_are_new_are_read(folder, monkeypatch):
    first = mpicoloc.history(folder)
    reads = []

    def work(path):
        reads.append(path)
        return history.facts(hdf5.read(path, tables=()))

    def here(paths, _):
        return ((path, work(path)) for path in paths)

    monkeypatch.setattr(history, "parallel_map", here)
    assert mpicoloc.history(folder).equals(first)
    assert reads == []
    (folder / "0.h5").unlink()
    hdf5.write(sample.profile(partial=True), folder / "1.h5")
    again = mpicoloc.history(folder)
    assert [os.path.basename(path) for path in reads] == ["1.h5"]
    assert len(again) == 4 and again["partial"].sum() == 1


def test_a_file_that_cannot_be_read_costs_its_own_row(folder, capsys):
    (folder / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n and no more")
    with h5py.File(folder / "foreign.h5", "w") as file:
        file["x"] = np.zeros(3)
    jobs = mpicoloc.history(folder)
    assert jobs["trouble"].notna().sum() == 2 and len(jobs) == 7
    assert main(["history", str(folder)]) == 1
    out = capsys.readouterr()
    assert "5 jobs" in out.out and out.err.count("\n") == 2 and "not a profile of mpicoloc" in out.err


def test_a_file_that_was_not_answered_in_time_is_read_next_time(folder, monkeypatch):
    for i in range(40):
        os.link(folder / "0.h5", folder / f"copy{i}.h5")
    readable = hdf5.readable
    monkeypatch.setattr(sandbox, "WAIT_S", 2.5)

    def sleep_over_one(path):
        if path.endswith("copy7.h5"):
            signal.pause()
        return readable(path)

    with monkeypatch.context() as patch:
        patch.setattr(hdf5, "readable", sleep_over_one)
        jobs = mpicoloc.history(folder)
    (late,) = jobs[jobs["trouble"].notna()].itertuples()
    assert late.path.endswith("copy7.h5") and "not be read within 2.5 s" in late.trouble
    assert mpicoloc.history(folder)["trouble"].isna().all()


def children():
    own = os.getpid()
    return set(Path(f"/proc/{own}/task/{own}/children").read_text().split())


def test_nobody_waits_for_readers_that_are_not_needed(tmp_path):
    (tmp_path / "p.h5").touch()
    before = children()
    answers = parallel_map([str(tmp_path / "p.h5")] * 1000, lambda path, raw: {"x": "x" * 100_000})
    assert next(answers)[1]["x"][0] == "x"
    answers.close()
    assert children() <= before


@pytest.mark.parametrize("harm", ["damaged", "file", "old"])
def test_an_index_that_is_no_use_is_made_anew_or_done_without(folder, cache, harm, monkeypatch):
    first = mpicoloc.history(folder)
    index = next((cache / "mpicoloc").iterdir())
    if harm == "damaged":
        index.write_bytes(b"no database" * 1000)
    elif harm == "old":
        monkeypatch.setattr(history, "_VERSION", "0")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(index))
    again = mpicoloc.history(folder)
    assert again.equals(first)
    note = {"damaged": "is rebuilt", "file": "no index can be kept in"}.get(harm, "None")
    assert note in str(again.attrs["note"])


def test_the_list_in_each_form(folder, tmp_path, capsys):
    assert main(["history", "--json", str(folder)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["job"] for row in rows] == ["4", "3", "2", "1", "0"]
    assert rows[2]["slowdown"] == 1 and rows[0]["topology"] is None
    assert main(["history", "--csv", "--last", "2", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("path,job,command")
    assert main(["history", str(folder / "nowhere")]) == 3
    assert "no such folder" in capsys.readouterr().err
    assert main(["history", "--last", "x", str(folder)]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["history", str(tmp_path / "empty")]) == 0
    assert "0 jobs" in capsys.readouterr().out


def test_narrow_intervals_keep_their_width_and_one_without_a_width_is_none(folder, capsys):
    profile = sample.profile()
    for name, low, high in (("narrow", 1.1712, 1.1754), ("digits", 1.17296, 1.17304), ("none", 1.173, 1.173)):
        found = replace(profile.interference, slowdown=Estimate(1.173, low, high, 9, "1", "burst-matched"))
        hdf5.write(
            replace(profile, job=replace(profile.job, id=name), interference=found), folder / f"{name}.h5"
        )
    assert main(["history", str(folder)]) == 0
    lines = {line.split()[2]: line for line in capsys.readouterr().out.splitlines() if "1.173" in line}
    assert "1.171 to 1.175" in lines["narrow"] and " to " not in lines["none"]
    assert "1.17296 to 1.17304" in lines["digits"]


def test_jobs_that_had_no_processor_are_told_in_the_list(folder, capsys):
    assert main(["history", str(folder)]) == 0
    shown = capsys.readouterr().out
    [alone] = [line for line in shown.splitlines() if "no co-runner" in line]
    assert alone.split()[2] == "2" and "%" not in alone and "run delay:" not in shown
    profile = sample.profile(shared_s=0.0)
    starved = replace(profile.interference, cpu_s=30.0, run_delay_s=90.0, involuntary_switches=9)
    hdf5.write(replace(profile, job=replace(profile.job, id="9"), interference=starved), folder / "9.h5")
    assert main(["history", str(folder)]) == 0
    shown = capsys.readouterr().out
    shared = replace(sample.profile().interference, cpu_s=30.0, run_delay_s=90.0)
    for name, low in (("explained", 0.01), ("foreign", 0.5)):
        found = replace(shared, **{f"foreign_delay_{end}frac": low for end in ("", "low_", "high_")})
        job = replace(profile.job, id=name)
        hdf5.write(replace(profile, job=job, interference=found), folder / f"{name}.h5")
    assert main(["history", str(folder)]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if " 75% " in line]
    assert ["foreign" in line for line in told].count(True) == 1 and len(told) == 2
    [line] = [line for line in shown.splitlines() if " 75% " in line]
    assert "no co-runner" in line and "run delay: part of the time" in " ".join(shown.split())
    assert main(["history", "--json", str(folder)]) == 0
    rows = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
    known = [rows["9"][name] for name in ("cpu_s", "run_delay_s", "involuntary_switches")]
    assert known == [30.0, 90.0, 9]
    assert rows["9"]["slowdown_method"] == "alone"


def test_odd_names_links_and_times_cost_no_list(folder, capsys):
    profile = sample.profile()
    hdf5.write(replace(profile, job=replace(profile.job, start_unix_s=1e300)), folder / "late.h5")
    os.rename(folder / "0.h5", os.fsencode(folder) + b"/\xff.h5")
    (folder / "circle.h5").symlink_to("circle.h5")
    for _ in range(2):
        jobs = mpicoloc.history(folder)
        assert len(jobs) == 6 and jobs["path"].str.contains("xff", regex=False).sum() == 1
    assert main(["history", str(folder)]) == 0
    assert "?" in capsys.readouterr().out
