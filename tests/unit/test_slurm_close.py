"""What is signed when a job of Slurm is over, and what is not."""

import os
from dataclasses import replace

import pytest
from sample import profile

from mpicoloc.errors import DataError
from mpicoloc.run import slurm_close
from mpicoloc.store import hdf5, signature

KEY = b"0123456789abcdef0123456789abcdef"
UID = os.getuid()


@pytest.fixture
def job(tmp_path):
    """Profiles of job 7, steps 0 and batch, in `out`; an empty spool."""
    (tmp_path / "out").mkdir()
    (tmp_path / "spool").mkdir()
    of_7 = profile()
    of_7 = replace(of_7, job=replace(of_7.job, id="7"))
    for step in ("0", "batch"):
        hdf5.write(of_7, tmp_path / "out" / f"7.{step}.h5")
    return tmp_path


def pattern(folder):
    return f"{folder}/out/%j.%s.h5"


def test_profiles_are_found_by_job_and_owner(job):
    (job / "out" / "8.0.h5").touch()
    os.symlink(job / "out" / "8.0.h5", job / "out" / "7.1.h5")
    (job / "out" / "7.2.h5").mkdir()
    found = slurm_close.files(pattern(job), 7, UID)
    assert [os.path.basename(path) for path in found] == ["7.0.h5", "7.batch.h5"]
    assert slurm_close.files(pattern(job), 7, UID + 1) == []
    assert slurm_close.files(f"{job}/out/%u%%%j*.h5", 7, UID) == []


def test_each_profile_is_signed_once_and_told_together(job):
    spool = str(job / "spool")
    for path in slurm_close.files(pattern(job), 7, UID):
        to = slurm_close.sign(path, 7, UID, KEY, spool, 1.0)
        assert signature.verify(signature.snapshot(to), KEY).is_good
        os.utime(path, (4e9, 4e9))
        assert slurm_close.sign(path, 7, UID, KEY, spool, 2.0) is None, "the user has changed it"
    found = list(slurm_close.signed(spool, 7))
    told = slurm_close.price(found)
    assert told["n_profiles"] == 2
    assert told["runtime_su"] == pytest.approx(2 * profile().price.runtime_su)
    assert told["slowdown"][0] == profile().interference.slowdown.value


def test_what_was_not_measured_in_every_step_is_unknown(job):
    found = [profile(), replace(profile(), price=None)]
    assert slurm_close.price(found)["fair_su"] is None


def test_the_profile_of_another_job_is_not_signed(job):
    path = job / "out" / "9.0.h5"
    path.write_bytes((job / "out" / "7.0.h5").read_bytes())
    with pytest.raises(DataError, match="of job '7', not 9"):
        slurm_close.sign(str(path), 9, UID, KEY, str(job / "spool"), 1.0)
    assert not list((job / "spool").iterdir())


def test_a_link_and_a_file_of_somebody_else_are_not_signed(job):
    link = job / "out" / "7.5.h5"
    link.symlink_to(job / "out" / "7.0.h5")
    with pytest.raises(DataError, match="cannot be taken"):
        slurm_close.sign(str(link), 7, UID, KEY, str(job / "spool"), 1.0)
    with pytest.raises(DataError, match="no file of user"):
        slurm_close.sign(str(job / "out" / "7.0.h5"), 7, UID + 1, KEY, str(job / "spool"), 1.0)
    assert not list((job / "spool").iterdir())
