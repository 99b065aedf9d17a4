"""Twenty jobs of real programs in a real Slurm, three ways, as the tutorial has them."""

import getpass
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import day_simulated
import pytest
import slurm_jobs  # noqa: F401 it makes the next ones importable
from pages import LAB, ROOT, of_cluster

from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing import model_file, production, training_sets
from mpicoloc.pairing.training.fitting import MIN_PROGRAMS, MIN_ROWS
from mpicoloc.slurm import client

sys.path.insert(0, str(ROOT / "examples" / "slurm-day"))

import makespans

PAGE = ROOT / "docs" / "tutorial" / "slurm-day.md"
WAYS = ("exclusive", "shared", "pairs")
PROGRAMS = {"lmp", "hpcc", "heat2d", "nbody"}
BLOCK_LIMIT_S = 200
NEAR_FRAC, NEAR_S = 0.20, 6.0
"""Tolerance of simulated end times, the larger one counts: fraction of the makespan, and s.

Slurm reports whole seconds, and these errors add up from job to job.
"""
pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Day:
    """Results of the page, read before its last block: job numbers by way, Slurm's accounting, and so on."""

    ways: dict
    ended: list
    comments: dict
    audit: list
    profiles: dict
    charges: list
    left: list
    said: str
    model: dict

    def of(self, way):
        return {job.id: job for job in self.ended if job.id in self.ways[way]}


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """Run the page, and look before its last block ends the cluster."""
    folder = tmp_path_factory.mktemp("day")
    blocks, last, shell = of_cluster(PAGE, folder)
    with pytest.MonkeyPatch.context() as patch:
        try:
            yield seen(folder, shell, blocks, patch)
            shell.run(last)
        finally:
            slurm_cluster.stop(LAB)


def seen(folder, shell, blocks, patch):
    comments, said = {}, []
    for block in blocks:
        said.append(shell.run(block, BLOCK_LIMIT_S))
        if "SLURM_CONF" in shell.exported:  # slurmctld forgets a job after five minutes
            patch.setenv("SLURM_CONF", shell.exported["SLURM_CONF"])
            comments |= {job.id: job.admin_comment for job in client.snapshot().jobs}
    env = {**os.environ, **shell.exported}
    patch.setenv("XDG_CACHE_HOME", env["XDG_CACHE_HOME"])

    def told(*command):
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    statement = json.loads(told("mpicoloc", "ledger", "statement", getpass.getuser(), "--json"))
    return Day(
        ways={way: [int(word) for word in (folder / f"{way}.txt").read_text().split()] for way in WAYS},
        ended=makespans.ended(),
        comments=comments,
        audit=[json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()],
        profiles=makespans.profiles(folder / "spool"),
        charges=statement,
        left=told("srun", "-N2", "-n2", "--mpicoloc=off", "ls", "/dev/shm").split(),
        said="".join(said),
        model=modelled(folder),
    )


def modelled(folder):
    """The page's model: training set, card (None: no model), numbers of the last jobs, their audit log."""
    file, audit = folder / "slowdowns.model", folder / "model.jsonl"
    numbers = [int(word) for word in (folder / "model.txt").read_text().split()]
    runs, troubles = training_sets.read_runs(sorted(map(str, (folder / "spool").glob("*.h5"))))
    assert not troubles
    before = [run for run in runs.values() if int(production.job_number(run.id)) < min(numbers)]
    lines = audit.read_text().splitlines() if audit.exists() else []
    return {
        "given": training_sets.from_production(before)[0],
        "card": model_file.card(model_file.read(file)) if file.exists() else None,
        "numbers": numbers,
        "audit": [json.loads(line) for line in lines],
    }


@pytest.mark.parametrize("way", WAYS)
def test_every_job_ran_once_and_ended_well(day, way):
    assert len(set(day.ways[way])) == 20
    assert sorted(job.id for job in day.ended if job.id in day.ways[way]) == day.ways[way]
    found = day.of(way).values()
    assert {job.state for job in found} == {"COMPLETED"}
    assert sorted(job.name for job in found) == sorted([*PROGRAMS] * 5)
    assert {job.id for job in found} <= set(day.profiles)


def test_nobody_shares_where_each_has_its_node(day):
    assert not overlapping(day.of("exclusive"))


def test_a_program_shares_only_when_a_run_of_it_has_told_what_it_is_like(day):
    jobs = day.of("pairs")
    assert chosen(day.audit)
    for line in day.audit:
        if line["action"] == "commit":
            for number in line["share"]["jobs"]:
                told = (day.profiles[job] for job in jobs if jobs[job].name == jobs[number].name)
                assert any(run["start_unix_s"] + run["wall_s"] <= line["unix_s"] for run in told), line
    for program in PROGRAMS:
        first = min((job for job in jobs.values() if job.name == program), key=lambda job: job.start_s)
        assert not any(first.id in pair for pair in chosen(day.audit) | overlapping(jobs))


def test_chosen_pairs_ran_on_one_node_side_by_side_and_nobody_else_did(day):
    jobs = day.of("pairs")
    assert all(jobs[a].node == jobs[b].node for a, b in chosen(day.audit))
    together = overlapping(jobs)
    # The first of so short jobs may have ended when its partner comes.
    assert together and together <= chosen(day.audit)


def test_a_model_is_of_the_jobs_that_were_measured_and_the_service_pairs_by_it(day):
    jobs = {job.id: job for job in day.ended if job.id in day.model["numbers"]}
    assert len(jobs) == 8 and {job.state for job in jobs.values()} == {"COMPLETED"}
    assert overlapping(jobs) <= chosen(day.model["audit"])
    card, given = day.model["card"], day.model["given"]
    # A machine that has too much else to do leaves too few shutters.
    assert (card is not None) == (len(given.rows) >= MIN_ROWS and len(given.programs) >= MIN_PROGRAMS)
    if card is None:
        assert not day.model["audit"]
    else:
        assert card["training"]["sources"] == {"production": len(given.rows)}
        assert {*card["training"]["programs"]} == {*given.programs} <= PROGRAMS


def chosen(audit):
    """Pairs of numbers that the service told Slurm, and did not take back."""
    found = set()
    for line in audit:
        if line["action"] == "commit" and line["what"] == "said" and len(line["share"]["jobs"]) == 2:
            found.add(tuple(sorted(line["share"]["jobs"])))
        elif line["action"] == "release":
            found = {pair for pair in found if line["job"] not in pair}
    return found


def overlapping(jobs):
    """Pairs of numbers of jobs that were on one node at one time; Slurm tells whole seconds."""
    return {(a, b) for a in jobs for b in jobs if a < b and makespans.met(jobs[a], jobs[b])}


@pytest.mark.parametrize("way", WAYS)
def test_simulated_from_their_accounting_jobs_end_when_they_did(day, way):
    jobs = sorted(day.of(way).values(), key=lambda job: job.id)
    solo_s = day_simulated.alone_s(day.of("exclusive").values())
    makespan_s = max(job.end_s for job in jobs) - min(job.start_s for job in jobs)
    found = day_simulated.ends_s(way, jobs, solo_s)
    late_s = [abs(end_s - job.end_s) for end_s, job in zip(found, jobs, strict=True)]
    assert max(late_s) <= max(NEAR_FRAC * makespan_s, NEAR_S)


def test_every_job_has_its_price(day):
    for numbers in day.ways.values():
        for number in numbers:
            price = json.loads(day.comments[number][day.comments[number].index("{") :])["mpicoloc"]
            assert price["n_profiles"] == 1
            assert price["profile_fair_su"] == pytest.approx(day.profiles[number]["fair_su"], abs=1e-9)


def test_every_job_is_charged_once(day):
    charges = [line for line in day.charges["lines"] if line["kind"] == "charge"]
    assert sorted(line["facts"]["job"] for line in charges) == sorted(f"{job}.0" for job in day.ways["pairs"])
    assert all(line["amount_usu"] < 0 for line in charges)
    assert day.charges["balance_usu"] == sum(line["amount_usu"] for line in day.charges["lines"])


def test_no_job_leaves_a_file_in_memory(day):
    assert [name for name in day.left if name.startswith("mpicoloc.") and not name.endswith(".board")] == []


def test_makespans_are_told(day, capsys):
    rows = makespans.compared(day.ways, day.ended, day.profiles)
    table = makespans.table(rows)
    assert table in day.said
    with capsys.disabled():
        print(f"\n{table}")
