"""A real Slurm: the plugin gives jobs the service levels that `mpicoloc qos` chose for their names."""

import contextlib
import json
import os

import jobs
import pytest

from mpicoloc.cli.main import main
from mpicoloc.errors import DataError
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SHOW = "env | grep -E '^(UCX_IB_SL|OMPI_MCA_btl_openib|MV2_)' | sort"


SIDES = {"long": 1600, "light": 40}
"""Jobs by their names in Slurm, and the side of each one's grid."""


def profiles_of(cluster, before):
    """New profiles of the jobs by their names, once all are there; the spool is that of other tests too."""
    found = {}
    for path in set(cluster.spool.glob("*.h5")) - before:
        with contextlib.suppress(DataError, OSError):  # not complete yet
            found[hdf5.read(path).job.batch_name] = str(path)
    return found if found.keys() >= SIDES.keys() else None


@pytest.fixture
def levels(cluster, capsys):
    """A folder of two jobs' levels by profiles of the two, and the policy as JSON."""
    before = set(cluster.spool.glob("*.h5"))
    for name, side in SIDES.items():
        cluster.run("srun", "-N1", "-n2", "-J", name, "--mpicoloc", "./heat2d", side, 200)
    found = jobs.wait_until(lambda: profiles_of(cluster, before), "the profiles of both jobs", 120)
    files = [found[name] for name in SIDES]
    folder = cluster.work / "levels"
    fabric = ("--topology", "XGFT(2;4,2;1,2)", "--placement", "F1", "--link-rate", "10Mbit/s")
    before_umask = os.umask(0o077)  # as root's may be: jobs of all users read the files
    try:
        assert main(["qos", *files, *fabric, "--slurm", str(folder), "--json"]) == 0
    finally:
        os.umask(before_umask)
    yield folder, json.loads(capsys.readouterr().out)
    cluster.site()


def variables(level):
    return [
        f"MV2_DEFAULT_SERVICE_LEVEL={level}",
        f"OMPI_MCA_btl_openib_ib_service_level={level}",
        f"UCX_IB_SL={level}",
    ]


def test_each_job_has_the_level_of_its_name_measured_or_not(cluster, levels):
    folder, policy = levels
    assert sorted(job["service_level"] for job in policy["jobs"]) == [0, 1]
    level = {hdf5.read(job["file"]).job.batch_name: job["service_level"] for job in policy["jobs"]}
    cluster.site(f"levels={folder}")

    def of(name, *words, before=""):
        return cluster.run("srun", "-n1", "-J", name, *words, "sh", "-c", before + SHOW).split()

    assert of("long") == variables(level["long"])
    light = variables(level["light"])
    assert of("light") == of("light", "--mpicoloc") == light
    assert of("other") == []
    script = (
        f'srun -n1 sh -c "{SHOW}"; UCX_IB_SL=7 srun -n1 sh -c "{SHOW}"; sbatch -J other -o n.log -n1 -W n.sh'
    )
    (cluster.work / "n.sh").write_text(f"#!/bin/sh\n{SHOW}; echo end\n")
    job = cluster.submit(script, "-n2", "-J", "light")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    said = (cluster.work / f"{job}.log").read_text().split()
    assert said[:3] == light, "steps of a script too"
    assert said[3:6] == [*light[:2], "UCX_IB_SL=7"], "what the user sets stays"
    assert (cluster.work / "n.log").read_text() == "end\n", "another job does not inherit it"


def test_a_folder_that_cannot_be_read_costs_a_line_and_no_job(cluster, levels):
    folder, _ = levels
    user = next(folder.iterdir()).name
    (folder / user / "folder").mkdir()
    cluster.site(f"levels={folder}")
    assert cluster.run("srun", "-n1", "-J", "folder", "sh", "-c", f"{SHOW}; echo ran") == "ran\n"
    cluster.site("levels=relative")
    assert cluster.run("srun", "-n1", "-J", "light", "sh", "-c", f"{SHOW}; echo ran") == "ran\n"
