"""Jobs of two users who share a node of Slurm: each keeps his files, and the site signs them."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
import pytest
from slurm_jobs import LIMIT_S, is_possible

from mpicoloc.bill.ledger import Ledger
from mpicoloc.cli.main import main
from mpicoloc.lab import slurm_cluster
from mpicoloc.pmpi import build_shim
from mpicoloc.profile import hdf5, signature

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_possible(), reason="no Slurm here, or not root"),
]
USERS = ("daemon", "games")
"""Slurm asks for an account; these are everywhere."""


def test_profiles_of_two_users_are_signed_and_stay_theirs(lab, openmpi_program):
    place = openmpi_program.parent
    run = ["srun", "-p", "shared", "-n2", openmpi_program, "100", "500"]
    with cluster_of(lab, place) as env:
        started = [as_user(user, run, env, place) for user in USERS]
        assert [process.wait(LIMIT_S) for process in started] == [0, 0]
        told = told_of(env)
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


@contextlib.contextmanager
def cluster_of(lab, place):
    """Another cluster, of one node that users reach, with spool and profiles in a place; its environment."""
    name = f"users-{os.getpid()}"
    words = f"default=on out={place}/out/%j.%s.h5 key_file={lab.key} spool={place}/spool"
    up = [sys.executable, "-m", "mpicoloc", "slurm", "up", "--name", name, "--nodes", "1"]
    assert build_shim.find_plugin()
    try:
        command = [*jobs.reach(), *up, "--plugstack", words]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        yield {"PATH": os.environ["PATH"], "SLURM_CONF": f"{slurm_cluster.ROOT}/{name}/slurm.conf"}
    finally:
        slurm_cluster.stop(name)


def as_user(user, command, env, place):
    """A command of a user's that begins now."""
    rights = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
    return subprocess.Popen([*rights, *map(str, command)], env={**env, "HOME": "/nonexistent"},
                            cwd=place / "out", stdout=subprocess.DEVNULL)  # fmt: skip


def told_of(env):
    """Fields of each job in `squeue --json`, by job number; numbers that newer releases wrap are plain."""
    command = ["squeue", "--json", "--states=all"]
    found = subprocess.run(command, env=env, capture_output=True, timeout=LIMIT_S, check=True)

    def plain(value):
        return value.get("number", value) if isinstance(value, dict) else value

    jobs = json.loads(found.stdout)["jobs"]
    return {str(job["job_id"]): {name: plain(value) for name, value in job.items()} for job in jobs}


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
        program.write_bytes((lab.work / "heat2d").read_bytes())
        program.chmod(0o755)
        Path(folder, "out").mkdir()
        Path(folder, "spool").mkdir()
        Path(folder, "out").chmod(0o1777)
        yield program


PLANT = """
import os, shutil, sys, time
import h5py

out, job, key, plants_s = sys.argv[1:]
place = lambda step: f"{out}/{job}.{step}.h5"
own = place(0)

def copy(step, **facts):
    shutil.copy(own, place(step))
    with h5py.File(place(step), "r+") as file:
        for name, value in facts.items():
            file["job"].attrs[name] = value
    return place(step)

def put(step, make):
    make(place("new"))
    os.rename(place("new"), place(step))

os.symlink(key, place(1))
os.symlink(own, place(2))
os.mkfifo(place(3))
copy(4, id=str(int(job) + 1))
copy(5, user="daemon")
with h5py.File(copy(6), "r+") as file:
    file["linked"] = h5py.ExternalLink(key, "/")
    file.create_dataset("raw", (32,), "u1", external=[(key, 0, 32)])
open(place(7), "wb").write(bytes(4096))
with open(place(8), "wb") as file:
    file.truncate(300 << 20)
copy(9)
os.utime(place(9), (4e9, 4e9))
os.mkdir(place(11))
for step in ("interactive", 500, 501):
    copy(step)
end_s = time.time() + float(plants_s)
while time.time() < end_s:
    for make in (lambda at: os.symlink(key, at), lambda at: shutil.copy(own, at), os.mkfifo):
        put(10, make)
"""
"""Script of a hostile user: it plants files in place of profiles; the last changes while the job closes."""


def test_a_hostile_user_has_signed_what_his_steps_left_and_nothing_else(lab, openmpi_program):
    place = openmpi_program.parent
    (place / "plant.py").write_text(PLANT)
    script = place / "hostile.sh"
    run = f"srun -n2 {openmpi_program} 100 500"
    true = "srun -n1 true\n"
    plant = f"{sys.executable} {place}/plant.py {place}/out $SLURM_JOB_ID {lab.key}"
    script.write_text(f"#!/bin/sh\n{run}\n{plant} 60 &\nsleep 6\n{true * 11}kill $!\n")
    batch = ["sbatch", "--wait", "-p", "shared", "-n2", "-o", "/dev/null", "-J", "x\ny 7 0", script]
    with cluster_of(lab, place) as env:
        assert as_user(USERS[1], batch, env, place).wait(LIMIT_S) == 0
        (hostile,) = told_of(env)
        began_s = time.monotonic()
        victim = as_user(USERS[0], ["srun", "-p", "shared", "-n2", openmpi_program, "100", "500"], env, place)
        assert victim.wait(LIMIT_S) == 0 and time.monotonic() - began_s < LIMIT_S / 2
        told = told_of(env)
        log = Path(env["SLURM_CONF"]).parent.joinpath("log", "n1.log").read_text(errors="replace")
    signed = {tuple(path.name.split(".")[::2]): path for path in (place / "spool").glob("*.h5")}
    other = str(int(hostile) + 1)
    own = {(hostile, step) for step in ("0", "9", "10")}
    assert {(hostile, "0"), (other, "0")} <= set(signed) <= {*own, (other, "0")}
    assert {hdf5.read(path).job.id for path in signed.values()} == {hostile, other}
    secret = lab.key.read_bytes().strip()
    for path in (place / "spool").rglob("*"):
        assert path.is_dir() or (secret not in path.read_bytes() and path.owner() == "root")
    assert json.loads(told[hostile]["admin_comment"])["mpicoloc"]["n_profiles"] == len(signed) - 1
    assert json.loads(told[other]["admin_comment"])["mpicoloc"]["n_profiles"] == 1
    assert secret.decode() not in log
    told_in_log = "\n".join(line for line in log.splitlines() if "mpicoloc" in line)
    for words in (
        f"1.4.h5 is from job '{other}', not from {hostile}: it is not signed",
        "1.5.h5 is from user 'daemon', not from",
        "1.6.h5: /linked is a link (ExternalLink)",
        "1.7.h5 is not an HDF5 file",
        "1.8.h5 has more than 256 MiB: it is not signed",
        f"belongs to no measured step of job {hostile}, so it is not signed, nor are 2 more",
    ):
        assert words in told_in_log
