"""Of a job of `srun` or `salloc` alone a mark tells the epilog that there is something to do."""

import os
import stat
from dataclasses import replace

import pytest
from slurm_programs import stand_in
from slurm_step import STEP, squeue_script, write_note

from mpicoloc.cli.main import main
from mpicoloc.errors import EnvironmentFault
from mpicoloc.slurm import close, records
from mpicoloc.slurm.records import StepNote

NOTE = StepNote(11, "0", os.getuid(), 1, 2, 1795377524.5, None)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A spool with the note of step 11.0, whose name looks like a pattern, and what `close` is told of it."""
    spool, key = tmp_path / "br[1]", tmp_path / "site.key"
    (spool / ".steps").mkdir(parents=True)
    key.write_text("c2l0ZSBrZXkgb2YgdGhlIHRlc3RzIG9ubHkuLi4uLi4=")
    key.chmod(0o600)
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path))
    write_note(spool, NOTE)
    files = ["--out", f"{tmp_path}/%j.%s.h5", "--key-file", str(key), "--spool", str(spool)]
    return spool, ["slurm", "close", "11", "--uid", str(os.getuid()), *files]


def told(tmp_path, monkeypatch, **changes):
    """Replace squeue and scontrol by scripts that report job 11, with `changes`."""
    squeue = squeue_script(tmp_path, UserID=str(os.getuid()), **changes)
    scontrol = f"case $1 in update) ;; *) echo '{STEP.strip()}';; esac"
    stand_in(tmp_path, monkeypatch, {"squeue": squeue, "scontrol": scontrol})


def noted(spool):
    return sorted(os.listdir(spool / ".steps"))


def test_it_stays_from_the_first_end_of_a_step_to_the_epilog(site, tmp_path, monkeypatch):
    spool, close = site
    told(tmp_path, monkeypatch)
    assert main([*close, "--step", "0", "--ended", "1795377604"]) == 0
    assert noted(spool) == ["11.allocation"] and records.note_paths(str(spool)) == []
    assert stat.S_IMODE(os.stat(spool / ".steps" / "11.allocation").st_mode) == 0o600
    assert main(["slurm", "settle", *close[7:]]) == 0 and noted(spool) == ["11.allocation"], (
        "it is not a note"
    )
    write_note(spool, replace(NOTE, step="1"))
    assert main([*close, "--step", "1", "--ended", "1795377605"]) == 0 and noted(spool) == ["11.allocation"]
    told(tmp_path, monkeypatch, StateCompact="CG")
    assert main(close) == 0 and noted(spool) == []
    assert (spool / "11.1795377520.allocation.json").exists()


def test_it_stays_where_the_epilog_could_not_do_its_work(site, tmp_path, monkeypatch):
    spool, close = site
    told(tmp_path, monkeypatch)
    assert main([*close, "--step", "0"]) == 0
    told(tmp_path, monkeypatch, StateCompact="CG", EndTime="Unknown")
    assert main(close) == 3 and noted(spool) == ["11.allocation"]


def test_a_job_with_a_script_has_none(site, tmp_path, monkeypatch):
    spool, close = site
    told(tmp_path, monkeypatch, BatchFlag="1")
    assert main([*close, "--step", "0"]) == 0 and noted(spool) == []


def test_one_without_an_epilog_goes_when_it_is_old(tmp_path):
    spool = tmp_path / "br[1]"
    records.mark_job(str(spool), 11)
    records.mark_job(str(spool), 12)
    mark = spool / ".steps" / "11.allocation"
    day_s = 86400.0
    os.utime(mark, (1e9, 1e9))
    close.sweep_spool(str(spool), 1e9 + 300 * day_s)
    assert mark.exists()
    close.sweep_spool(str(spool), 1e9 + 500 * day_s)
    assert noted(spool) == ["12.allocation"]
    assert stat.S_IMODE(os.stat(spool / ".steps").st_mode) == 0o700


def test_through_a_link_nothing_is_written(tmp_path):
    (tmp_path / ".steps").mkdir()
    os.symlink(tmp_path / "other", tmp_path / ".steps" / "11.allocation")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        records.mark_job(str(tmp_path), 11)
    assert not (tmp_path / "other").exists()
