"""The pairing service over many looks, while Slurm, the disk or the model change."""

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
import types

import contention
import pytest
import sample
from slurm_programs import UPDATE, answering

from mpicoloc.cli import main
from mpicoloc.core.profile import table
from mpicoloc.core.slowdown import Machine
from mpicoloc.errors import EnvironmentFault
from mpicoloc.pairing import model_file
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Assignment, Commit, Partitions, Release
from mpicoloc.pairing.training.fitting import fit_kind
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client as slurm_command, job_history, service

FAILS = 'echo "$@" >> {{0}}/said; {} || {{{{ echo "slurm_update error: {}" >&2; exit 1; }}}}'
AWAY = FAILS.format("test $(wc -l < {0}/said) -ne 2", "Unable to contact slurm controller")
REFUSED = FAILS.format("false", "Access/permission denied")


class End(Exception):
    """The service would begin its next look."""


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Makes a service that looks some times, with `between` called after each; returns its log."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in "FG":
        nodes = {"hostname": ["n1"], "cpu_model": ["Epyc"], "n_cpus": [4], "memory_bytes": [2.0**34]}
        profile = sample.profile()
        job = sample.job(id=name, user="root", batch_name=name, n_ranks=4)
        tables = dict(profile.tables) | {"nodes": table("nodes", nodes)}
        hdf5.write(dataclasses.replace(profile, job=job, tables=tables), folder / f"{name}.h5")
    ask = slurm_command.run_program
    monkeypatch.setattr(slurm_command, "run_program", lambda command, pauses_s=(): ask(command, ()))

    def watch(*words, update=UPDATE, n_looks=3, between=lambda i: None):
        answering(tmp_path, monkeypatch, update)
        looks = iter(range(1, n_looks + 1))

        def sleep(_):
            between(look := next(looks))
            if look == n_looks:
                raise End

        monkeypatch.setattr(service, "time", types.SimpleNamespace(sleep=sleep, time=time.time))
        given = ("pair", "--watch", "--profiles", str(folder), "--audit", str(tmp_path / "log"))
        with contextlib.suppress(End):
            main.main([*given, *(words or ("--prior-slowdown", "1.3"))])
        with contextlib.suppress(OSError):
            return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
        return []

    watch.folder = tmp_path
    return watch


def whats(log):
    return [(line["what"], line.get("action")) for line in log]


def test_a_missing_library_is_told_before_anything_waits(watch, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rustworkx", None)
    assert watch(n_looks=1) == []
    err = capsys.readouterr().err
    assert "[schedule]'" in err and len(err.splitlines()) == 1
    assert watch("--prior-slowdown", "1.3", "--policy", "greedy", n_looks=1)


def test_slurm_that_goes_away_between_two_orders_is_told_the_rest_when_it_is_back(watch, capsys):
    log = watch(update=AWAY, n_looks=2)
    both = [("said", "release"), ("said", "commit")]
    assert whats(log) == [("said", "release"), ("not said", "commit"), ("trouble", None), *both]
    assert capsys.readouterr().err.count("slurmctld does not answer") == 1


def test_what_slurm_refuses_is_not_said_at_each_look(watch, capsys):
    log = watch(update=REFUSED)
    assert whats(log) == [("refused", "release"), ("refused", "commit")]
    assert len((watch.folder / "said").read_text().splitlines()) == 2
    assert capsys.readouterr().err.count("permission denied") == 2


def test_nobody_is_sent_to_wait_for_a_job_that_slurm_did_not_move(tmp_path, monkeypatch):
    answering(tmp_path, monkeypatch, REFUSED)
    (tmp_path / "profiles").mkdir()
    two = [Release(6, 600.0, ""), Commit(Assignment((4,), ("n2",)), (2, 6), (2.0,), "")]
    how = service.ServiceSettings(Partitions("whole", "shared"), Rules("greedy", prior_slowdown=1.3), None)
    known, state = job_history.ProfileHistory(str(tmp_path / "profiles")), service.LoopState()
    audit = service.AuditLog(None, lambda text: None)
    for tried in ([two[0]], []):
        found = service.run_once(known, how, audit, is_dry=False, state=state, decide=lambda *_: two)
        assert found == tried
    assert "JobId=4" not in (tmp_path / "said").read_text()


def test_a_log_that_cannot_be_written_is_told_once_and_stops_nothing(watch, capsys):
    watch("--prior-slowdown", "1.3", "--audit", str(watch.folder / "missing" / "log"))
    assert capsys.readouterr().err.count("cannot be written") == 1
    assert len((watch.folder / "said").read_text().splitlines()) == 6


def test_a_dry_run_notes_what_is_new(watch, capsys):
    log = watch("--prior-slowdown", "1.3", "--dry-run")
    assert whats(log) == [("would say", "release"), ("would say", "commit")]
    assert capsys.readouterr().out.count("4 on n1: to share with 5") == 1


def test_a_model_that_is_fitted_anew_is_read_and_a_damaged_one_is_not(watch, capsys):
    file = watch.folder / "model"
    model = fit_kind(contention.World(8).training(), "elastic net")

    def fit(n_cpus):
        model_file.write(dataclasses.replace(model, machine=Machine("Epyc", n_cpus, 2.0**34)), file)

    outs = []

    def between(look):
        outs.append(capsys.readouterr())
        if look == 1:
            fit(4)
        elif look == 2:
            file.write_bytes(b"no model")

    fit(8)
    watch("--model", str(file), "--threshold", "none", "--dry-run", n_looks=4, between=between)
    assert ["to share with" in each.out for each in outs] == [False, True, False, False]
    assert ["stays in use" in each.err for each in outs] == [False, False, True, False]


def test_a_second_service_does_not_begin(watch, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(watch.folder / "cache"))
    with service.hold_lock(Partitions("whole", "shared")):
        assert watch(n_looks=1) == []
        assert "another `mpicoloc pair --watch` manages whole and shared" in capsys.readouterr().err
        assert watch("--prior-slowdown", "1.3", "--dry-run", n_looks=1)
        with service.hold_lock(Partitions("others", "shared")):
            pass
    assert len(watch(n_looks=1)) == 4


def test_a_reader_that_outlives_its_service_keeps_no_new_one_out(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both = Partitions("whole", "shared")
    with service.hold_lock(both):
        begun, begins = os.pipe()
        reader = os.fork()
        if reader == 0:
            os.write(begins, b"x")
            signal.pause()
        os.read(begun, 1)
        with pytest.raises(EnvironmentFault), service.hold_lock(both):
            pass
    try:
        with service.hold_lock(both):
            assert os.waitpid(reader, os.WNOHANG) == (0, 0), "it lives"
    finally:
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
        os.close(begun)
        os.close(begins)
