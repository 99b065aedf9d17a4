"""Charges of Slurm jobs from the spool, with and without a profile; a killed step leaves a record."""

import jobs
import pytest
from slurm_jobs import LONG

from mpicoloc.bill.ledger import Ledger
from mpicoloc.cli.main import main
from mpicoloc.profile import signature
from mpicoloc.slurm import records

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(200)]
SCRIPT = """
srun --mpicoloc ./heat2d 60 2000
mpirun.openmpi -n 2 ./heat2d.openmpi 60 2000
"""
OVERLAP = """
cat >meet.$SLURM_JOB_ID <<'end'
touch here.$SLURM_JOB_ID.$SLURM_STEP_ID
for i in $(seq 300); do test -e here.$SLURM_JOB_ID.$((1 - SLURM_STEP_ID)) && break; sleep 0.1; done
sleep 2
exec ./heat2d 60 2000
end
for i in 1 2; do srun --overlap --mpicoloc sh meet.$SLURM_JOB_ID & done
wait
"""
BARE = """
test $SLURM_PROCID = 1 || exec sh -c 'echo $SLURM_JOB_ID >bare'
for i in $(seq 300); do ls spool/$SLURM_JOB_ID.*.0.json && break; sleep 0.1; done
sleep 4
"""


def test_no_cpu_second_of_a_job_is_charged_twice(cluster, tmp_path):
    """Whether its step left a profile or its user threw it away."""
    job = cluster.submit(SCRIPT, "-N1", "-n2", "-p", "shared", "-A", "chemistry", "--mpicoloc")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    for profile in ("used", "none"):
        found = charged(cluster, job, tmp_path / profile, has_profile=profile == "used")
        assert set(found) == {f"{job}.0", f"{job}.batch"}
        assert found[f"{job}.0"]["profile"] == profile
        assert all(facts["n_cores"] == 2 for facts in found.values())
        seconds = sum(facts["wall_s"] for facts in found.values())
        ran_s = found[f"{job}.batch"]["slurm"]["ran_s"]
        assert seconds == pytest.approx(ran_s, abs=0.01), "all of the job, once"


def charged(cluster, job, folder, *, has_profile):
    """Facts of each charge in an own ledger, by two calls; without the profile of its step 0, in full."""
    where, spool = str(folder / "ledger.sqlite"), folder / "spool"
    spool.mkdir(parents=True)
    assert main(["ledger", "open", "chemistry", "--grant", "1000", "--ledger", where]) == 0
    for path in cluster.spool.glob(f"{job}.*"):  # those of other tests stay where they are
        if has_profile or not path.name.endswith(".0.h5"):
            (spool / path.name).write_bytes(path.read_bytes())
    collect = ["ledger", "collect", str(spool), "--key-file", str(cluster.key), "--ledger", where]
    for _ in range(2):
        assert main([*collect, "--by", "account", "--grace-s", "0"]) == 0
    lines = Ledger(where).statement("chemistry")[1:]
    found = {line.facts["job"]: line.facts for line in lines}
    assert len(found) == len(lines), "each once"
    return found


def test_a_killed_step_has_a_record_of_its_end(cluster):
    job = cluster.submit(LONG, "-N1", "-n2")  # has the CPUs of a whole node
    cluster.until_measured(job)
    cluster.run("scancel", job)
    assert cluster.wait(job)["JobState"] == "CANCELLED"
    (path,) = jobs.wait_until(lambda: list(cluster.spool.glob(f"{job}.*.0.json")), "the record", 30)
    sealed = records.read_record(str(path))
    assert sealed.reason(signature.read_key(cluster.key)) == ""
    assert (sealed.record.n_cpus, sealed.record.name) == (4, f"{job}.0") and sealed.record.ran_s > 0.5


def test_steps_that_overlap_pay_together_what_the_job_had(cluster, tmp_path):
    job = cluster.submit(OVERLAP, "-N1", "-n2", "-p", "shared", "-A", "chemistry", "--mpicoloc")
    assert cluster.wait(job)["ExitCode"] == "0:0"
    told = cluster.run("scontrol", "update", f"JobId={job}", "AdminComment=x", code=1)
    comment = cluster.facts(job)["AdminComment"]
    assert told == "" and "profile_fair_su" in comment, "it stays that of the profiles"
    found = charged(cluster, job, tmp_path / "all", has_profile=True)
    slurm = {name: facts["slurm"] for name, facts in found.items()}
    script, *steps = (slurm[f"{job}.{step}"] for step in ("batch", 0, 1))
    both_s = min(step["job_ran_s"] for step in steps) - max(
        step["job_ran_s"] - step["ran_s"] for step in steps
    )
    assert both_s >= 1.0, "they overlap"
    shared_cpu_s = sum(facts["overlap_cpu_s"] for facts in found.values())
    assert shared_cpu_s == pytest.approx(2 * both_s, abs=0.01)
    cpu_s = sum(facts["n_cores"] * facts["wall_s"] for facts in found.values())
    assert cpu_s == pytest.approx(script["job_n_cpus"] * script["ran_s"], abs=0.01), "all of the job, once"


def test_a_job_of_srun_alone_pays_for_all_of_its_nodes(cluster, tmp_path):
    """Its step has ended on the first node, and has its record, long before it has on the second one."""
    words = ("-N2", "-n2", "-A", "chemistry", "-J", "bare", "--mpicoloc")
    cluster.run("srun", *words, "sh", "-c", BARE)
    job = int((cluster.work / "bare").read_text())
    jobs.wait_until(lambda: list(cluster.spool.glob(f"{job}.*.allocation.json")), "the record", 30)
    found = charged(cluster, job, tmp_path / "all", has_profile=False)
    step, whole = (found[f"{job}.{step}"]["slurm"] for step in ("0", "allocation"))
    assert whole["ran_s"] >= step["ran_s"] + 2.0 and whole["n_cpus"] == whole["job_n_cpus"] >= 2
    cpu_s = sum(facts["n_cores"] * facts["wall_s"] for facts in found.values())
    assert cpu_s == pytest.approx(whole["n_cpus"] * whole["ran_s"], abs=0.01), "all of the job, once"


def test_a_job_of_salloc_pays_for_the_time_between_its_steps(cluster, monkeypatch):
    """Also where its epilog could not make the record."""
    told = cluster.run(
        "salloc", "-N1", "-n1", "sh", "-c", "echo $SLURM_JOB_ID; srun --mpicoloc true; sleep 3"
    )
    job = int(told.split()[0])
    found = jobs.wait_until(lambda: list(cluster.spool.glob(f"{job}.*.allocation.json")), "the record", 30)
    assert records.read_record(str(found[0])).record.ran_s >= 2.0
    assert cluster.wait(job)["ExitCode"] == "0:0"
    in_time = found[0].read_bytes()
    found[0].unlink()
    records.mark_job(str(cluster.spool), job)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    assert main(["slurm", "settle", "--spool", str(cluster.spool), "--key-file", str(cluster.key)]) == 0
    assert found[0].read_bytes() == in_time
