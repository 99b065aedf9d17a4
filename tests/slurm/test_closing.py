"""The end of a job in a real Slurm: one that is killed, one that starts again, tasks of an array."""

import jobs
import pytest
from slurm_jobs import LONG

from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(100)]


def test_the_profile_of_a_killed_job_is_signed_in_the_epilog(cluster):
    before = len(cluster.log("n3"))
    job = cluster.submit(LONG, "-N1", "-n2", "-w", "n3")
    cluster.until_measured(job)
    cluster.run("scancel", job)
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    jobs.wait_until(lambda: cluster.signed(job), "a signed profile", 30)
    (((_, step), path),) = cluster.signed(job).items()
    assert step == "0" and hdf5.read(path).partial
    assert "ended with" not in cluster.log("n3")[before:]


def test_a_requeued_job_has_profiles_of_each_start(cluster):
    script = f"""
if [ -z "$SLURM_RESTART_COUNT" ]; then {LONG} fi
srun -n1 --mpicoloc true # finds the profile of the start before
srun -n2 --mpicoloc ./heat2d 100 100
"""
    job = cluster.submit(script, "-N1", "-n2", "-w", "n2", "--requeue")
    cluster.until_measured(job)
    cluster.run("scontrol", "requeue", job)
    jobs.wait_until(lambda: cluster.facts(job)["JobState"] == "PENDING", "the epilog", 40)
    (killed,) = cluster.signed(job)
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert cluster.wait(job)["ExitCode"] == "0:0", (cluster.work / f"{job}.log").read_text()
    first, second = sorted(cluster.signed(job))
    assert first == killed and first[1] == "0" and second[1] == "1" and first[0] < second[0]
    assert cluster.price(job)["n_profiles"] == 1


def test_the_price_of_a_task_is_its_own_in_an_array(cluster):
    script = """
srun --mpicoloc ./heat2d 60 $((200 * SLURM_ARRAY_TASK_ID))
touch done.$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID
while ! [ -e done.$SLURM_ARRAY_JOB_ID.1 -a -e done.$SLURM_ARRAY_JOB_ID.2 ]; do sleep 0.1; done
"""
    job = cluster.submit(script, "-N1", "-n1", "--array=1-2")
    numbers = {}
    for task in (1, 2):
        facts = cluster.wait(f"{job}_{task}")
        assert facts["ExitCode"] == "0:0"
        numbers[task] = int(facts["JobId"])
    assert job in numbers.values(), "one of them has the number of all"
    for task, number in numbers.items():
        told = cluster.price(f"{job}_{task}")
        (path,) = cluster.signed(number).values()
        assert told["profile_fair_su"] == pytest.approx(hdf5.read(path).price.fair_su, abs=1e-9)
