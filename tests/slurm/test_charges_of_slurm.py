"""What Slurm ran is charged from the spool; what it killed has a record, whenever its profile comes."""

import jobs
import pytest

from mpicoloc.cli.main import main
from mpicoloc.store import signature, step_record
from mpicoloc.store.ledger import Ledger

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(100)]
SCRIPT = """
srun --mpicoloc ./heat2d.openmpi 60 2000
mpirun.openmpi -n 2 ./heat2d.openmpi 60 2000
"""
LONG = """
(until ls /dev/shm/mpicoloc.*.seg; do sleep 0.1; done; sleep 0.5; touch up.$SLURM_JOB_ID) &
srun --mpicoloc ./heat2d.openmpi 100 100000000
"""


def test_no_cpu_second_of_a_job_is_charged_twice(cluster, tmp_path):
    """Whether its step left a profile or its user threw it away."""
    job = cluster.submit(SCRIPT, "-N1", "-n2", "-p", "shared", "-A", "chemistry", "--mpicoloc")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    for profile in ("used", "none"):
        lines = charged(cluster, job, tmp_path / profile, has_profile=profile == "used")
        found = {line.facts["job"]: line.facts for line in lines}
        assert len(lines) == 2 and set(found) == {f"{job}.0", f"{job}.batch"}
        assert found[f"{job}.0"]["profile"] == profile
        assert all(facts["n_cores"] == 2 for facts in found.values())
        seconds = sum(facts["wall_s"] for facts in found.values())
        ran_s = found[f"{job}.batch"]["slurm"]["ran_s"]
        assert seconds == pytest.approx(ran_s, abs=0.01), "all of the job, once"


def charged(cluster, job, folder, *, has_profile):
    """Charges of a job in a ledger of its own, by two calls; without the profile of its step 0, in full."""
    where, spool = str(folder / "ledger.sqlite"), folder / "spool"
    spool.mkdir(parents=True)
    assert main(["ledger", "open", "chemistry", "--grant", "1000", "--ledger", where]) == 0
    for path in cluster.spool.glob(f"{job}.*"):  # those of other tests stay where they are
        if has_profile or not path.name.endswith(".0.h5"):
            (spool / path.name).write_bytes(path.read_bytes())
    collect = ["ledger", "collect", str(spool), "--key-file", str(cluster.key), "--ledger", where]
    for _ in range(2):
        assert main([*collect, "--by", "account", "--grace-s", "0"]) == 0
    return Ledger(where).statement("chemistry")[1:]


def test_a_killed_step_has_a_record_of_its_end(cluster):
    job = cluster.submit(LONG, "-N1", "-n2")  # has the CPUs of a whole node
    jobs.wait_until((cluster.work / f"up.{job}").exists, f"job {job} to be measured", 30)
    cluster.run("scancel", job)
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    (path,) = jobs.wait_until(lambda: list(cluster.spool.glob(f"{job}.*.0.json")), "the record", 30)
    sealed = step_record.read(str(path))
    assert sealed.reason(signature.read_key(cluster.key)) == ""
    assert (sealed.record.n_cpus, sealed.record.name) == (4, f"{job}.0") and sealed.record.ran_s > 0.5
