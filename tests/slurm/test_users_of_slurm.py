"""Jobs of two users who share a node of Slurm: each keeps his files, and the site signs them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jobs
import pytest
from slurm_jobs import LIMIT_S, is_possible

from mpicoloc.cli.main import main
from mpicoloc.lab import slurm_cluster, slurm_files
from mpicoloc.pmpi import build_spank
from mpicoloc.store import hdf5, signature
from mpicoloc.store.ledger import Ledger

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_possible(), reason="no Slurm here, or not root"),
]
USERS = ("daemon", "nobody")
"""Slurm asks for an account; these are everywhere."""


def test_profiles_of_two_users_are_signed_and_stay_theirs(lab, openmpi_program):
    name, place = f"users-{os.getpid()}", openmpi_program.parent
    words = f"default=on out={place}/out/%j.%s.h5 key_file={lab.key} spool={place}/spool"
    command = [
        *jobs._reach(),
        sys.executable,
        "-m",
        "mpicoloc",
        "slurm",
        "up",
        "--name",
        name,
        "--nodes",
        "1",
    ]
    assert build_spank.find()
    try:
        subprocess.run([*command, "--plugstack", words], check=True, capture_output=True, timeout=60)
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": f"{slurm_files.ROOT}/{name}/slurm.conf"}
        run = ["srun", "-p", "shared", "-n2", str(openmpi_program), "100", "500"]
        started = [
            subprocess.Popen(["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups", *run],
                             env={**env, "HOME": "/nonexistent"}, cwd=place / "out",
                             stdout=subprocess.DEVNULL)
            for user in USERS
        ]  # fmt: skip
        assert [process.wait(LIMIT_S) for process in started] == [0, 0]
        found = subprocess.run(
            ["squeue", "--json"], env=env, capture_output=True, timeout=LIMIT_S, check=True
        )
        told = {str(job["job_id"]): job for job in json.loads(found.stdout)["jobs"]}
    finally:
        slurm_cluster.stop(name)
    paths = {path.owner(): path for path in (place / "out").iterdir()}
    assert set(paths) == set(USERS)
    for user, path in paths.items():
        job = hdf5.read(path).job.id
        assert told[job]["user_name"] == user
        assert json.loads(told[job]["admin_comment"])["mpicoloc"]["n_profiles"] == 1
        (copy,) = (place / "spool").glob(f"{job}.*.0.h5")
        signed = signature.snapshot(copy)
        assert signature.verify(signed, signature.read_key(lab.key)).is_good
        assert Path(signed.path).owner() == "root"
    each_pays_for_what_slurm_gave(lab, place, {job["user_name"]: job for job in told.values()})


def each_pays_for_what_slurm_gave(lab, place, told):
    """By run time, so that the price is that of Slurm's CPUs and seconds whatever was measured."""
    where = str(place / "ledger.sqlite")
    for user in USERS:
        assert main(["ledger", "open", user, "--grant", "0.001", "--ledger", where]) == 0
    collect = ["ledger", "collect", str(place / "spool"), "--key-file", str(lab.key), "--ledger", where]
    assert main([*collect, "--pricing", "runtime", "--rate-su", "3600"]) == 1, "too few units"
    for user in USERS:
        assert main(["ledger", "grant", user, "1000", "--ledger", where]) == 0
    assert main([*collect, "--pricing", "runtime", "--rate-su", "3600"]) == 0
    books = Ledger(where)
    before = [books.statement(user) for user in USERS]
    for user, lines in zip(USERS, before, strict=True):
        (charge,) = [line for line in lines if line.kind == "charge"]
        job, slurm = told[user], charge.facts["slurm"]
        assert (slurm["job"], slurm["step"], slurm["user"], slurm["n_cpus"]) == (job["job_id"], "0", user, 2)
        assert slurm["job_start_unix_s"] == job["start_time"] <= slurm["step_start_unix_s"]
        assert 0 < slurm["ran_s"] <= job["end_time"] - job["start_time"] + 1
        assert -charge.amount_usu == pytest.approx(2 * slurm["ran_s"] * 1e6, abs=1)
    assert main(collect) == 0
    assert [books.statement(user) for user in USERS] == before


@pytest.fixture
def openmpi_program(lab):
    """heat2d where every user may read it, beside a folder where every user may write."""
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-") as folder:
        os.chmod(folder, 0o755)
        program = Path(folder, "heat2d")
        program.write_bytes((lab.work / "heat2d.openmpi").read_bytes())
        program.chmod(0o755)
        Path(folder, "out").mkdir()
        Path(folder, "spool").mkdir()
        Path(folder, "out").chmod(0o1777)
        yield program
